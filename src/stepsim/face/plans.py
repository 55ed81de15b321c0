"""Searching plans from Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from stepsim.base.errors import within
from stepsim.base.fields import checked
from stepsim.base.structs import File, Names
from stepsim.explore.batches.draws import DrawnBatches
from stepsim.explore.plan.asked import PlanDocument, PlanQuestion, answer
from stepsim.explore.plan.budget import BudgetDocument, check_plan_file
from stepsim.explore.plan.search import Workers
from stepsim.face.described import takes_options
from stepsim.face.keywords import SharedKeywords
from stepsim.face.viewed import Viewed, taken_as
from stepsim.files.asked import read_inputs
from stepsim.views.plan import plans_shown
from stepsim.workload.model.model import Model

if TYPE_CHECKING:
    from stepsim.network.topology.network import TopologyLike


# to_json gives bytes of documents and a text of results
class PlanResult(Viewed, PlanDocument):  # type: ignore[misc]
    """The best plans of a search, and the ways to see them."""

    _kind = PlanDocument

    _shown = plans_shown


@takes_options
@checked
def plan(
    model: Model | File,
    topology: "TopologyLike | None" = None,
    *,
    gpus: int | str | Sequence[int],
    fix: Mapping[str, object] | None = None,
    search: Sequence[str] = (),
    max_pp: int | None = None,
    objective: str = "step",
    memory_share: float | None = None,
    runs: int = 20,
    top: int = 10,
    jobs: int | None = None,
    store: File | None = None,
    resume: bool = False,
    lengths: File | Sequence[int] | None = None,
    packer: str = "first-fit",
    steps: int = 100,
    seed: int = 0,
    **options: Unpack[SharedKeywords],
) -> PlanResult:
    """The best plans of a model on some GPUs: `plans` has one of a kind, the best first.

    `gpus` is a number, several, or a text such as "256..1024". `fix` has values that options may
    have, e.g. `{"tp": 8, "recompute": ["none", "full"]}`; `search` names options that are varied
    too: zero, recompute, overlap, dispatch, graphs. `options` are those that all plans share,
    such as `global_batch`, `sequence`, `precision`. A plan may take `memory_share` of a GPU's
    memory: 92 % unless it is said, all of it where nothing else fits. `jobs` processes simulate;
    `store` is a file for their results, which `resume` takes up again. With `lengths` of documents,
    as `stepsim.batches` has them, plans are judged by drawn `steps` under a `packer`. Raises
    PlanError where nothing divides or fits.
    """
    within("top", top, 1)
    sizes = gpus if isinstance(gpus, str | int) else ",".join(map(str, gpus))
    question = PlanQuestion(
        gpus=str(sizes),
        fix=_texts(fix or {}),
        search=tuple([search] if isinstance(search, str) else search),
        max_pp=max_pp,
        objective=objective,
        memory_share=memory_share,
        runs=runs,
        drawn=None if lengths is None else DrawnBatches.named(lengths, [packer], steps, seed),
    )
    workers = Workers(jobs=jobs, store=None if store is None else Path(store), resume=resume)
    asked = read_inputs(model, topology, options)
    found = answer(asked, question, workers=workers).document(top)
    return taken_as(PlanResult, found)


@checked
def assert_plan(
    plan: File,
    *,
    max_step: str | None = None,
    max_memory: str | None = None,
    max_bubble: str | None = None,
    calibration: File | None = None,
) -> BudgetDocument:
    """Simulate a plan file, for a test: raises AssertionError with every number that is exceeded.

    Limits are texts such as "12.5s", "76GiB" and "8%". A `calibration` replaces that of
    the plan. Raises PlanError where no limit is given.
    """
    limits = {"step": max_step, "memory": max_memory, "bubble": max_bubble}
    found = check_plan_file(Path(plan), **limits, calibration=calibration)
    exceeded = [line for line in found.lines if not line.holds]
    said = (f"{line.what} is {line.predicted}, above {line.budget}" for line in exceeded)
    if exceeded:
        raise AssertionError(f"{found.plan}: {'; '.join(said)}")
    return found


def _texts(fix: Mapping[str, object]) -> Names:
    """`tp=8` of a value, `mbs=1,2` of several."""
    return tuple(
        f"{name}={','.join(map(str, each)) if isinstance(each, list | tuple) else each}"
        for name, each in fix.items()
    )
