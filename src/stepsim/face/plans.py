"""Searching plans from Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.base.errors import PlanError
from stepsim.explore.plan import Objective, search_plans
from stepsim.explore.plan.asked import make_space, parse_fixed, parse_sizes
from stepsim.explore.plan.document import PlanDocument
from stepsim.files.asked import read_inputs
from stepsim.files.models.megatron_plan import megatron_plan
from stepsim.workload.model.model import Model

if TYPE_CHECKING:
    from stepsim.network.topology.network import TopologyLike


def plan(
    model: Model | str | Path,
    topology: "TopologyLike | None" = None,
    *,
    gpus: int | str | Sequence[int],
    fix: Mapping[str, object] | None = None,
    max_pp: int | None = None,
    objective: str = "step",
    memory_share: float = 1.0,
    runs: int = 20,
    top: int = 10,
    **options: object,
) -> PlanDocument:
    """The best plans of a model on some GPUs: `plans` has one of a kind, the best first.

    `gpus` is a number, several, or a text such as "256..1024". `fix` has values that options may
    have, e.g. `{"tp": 8, "recompute": ["none", "full"]}`. `options` are those that all plans share,
    such as `global_batch`, `sequence`, `precision`. Raises PlanError where nothing divides or fits.
    """
    job = read_inputs(model, topology, options)
    if not isinstance(job.workload, Model):
        raise PlanError("model: a workload file has one plan: expected a model")
    if objective not in list(Objective):
        raise PlanError(f"objective is {objective!r}: expected one of {', '.join(Objective)}")
    sizes = gpus if isinstance(gpus, str | int) else ",".join(map(str, gpus))
    space = make_space(
        job.workload,
        job.topology,
        job.options,
        parse_sizes(str(sizes)),
        fixed=parse_fixed(_texts(fix or {})),
        most={"pp": max_pp} if max_pp else {},
    )
    found = search_plans(
        job.workload,
        space,
        job.topology,
        runs=runs,
        memory_limit=memory_share,
        objective=Objective(objective),
    )
    best = found.plans[0].plan
    return PlanDocument.of(
        found,
        space.base,
        topology=job.topology.name,
        top=top,
        arguments=megatron_plan(best, best.stage_slices(space.architecture)),
    )


def _texts(fix: Mapping[str, object]) -> list[str]:
    """`tp=8` of a value, `mbs=1,2` of several."""
    return [
        f"{name}={','.join(map(str, each)) if isinstance(each, list | tuple) else each}"
        for name, each in fix.items()
    ]
