"""From a workload, a topology and the user's wishes to a parallel plan."""

from collections.abc import Mapping
from math import lcm, prod
from typing import Any

from stepsim.base.errors import PlanError
from stepsim.base.kept import kept
from stepsim.base.structs import replace
from stepsim.network.topology import Topology
from stepsim.network.topology.network import MAX_NPUS
from stepsim.parallel.modes import EpLayout
from stepsim.parallel.ranks import ParallelPlan
from stepsim.workload.axes import ParallelAxis
from stepsim.workload.rows import Group, Workload

_MAX_MICROBATCHES = 1 << 20


def plan_job(
    workload: Workload,
    topology: Topology,
    *,
    npus: int | None = None,
    pp: int | None = None,
    microbatches: int | None = None,
    global_batch: int | None = None,
    microbatch_size: int = 1,
    ep_layout: EpLayout | None = None,
) -> tuple[ParallelPlan, list[str]]:
    """Plan of a job, and the assumptions made.

    `npus` scales dp and keeps the microbatches of a pipeline (weak scaling) unless `global_batch`,
    in samples of which a microbatch holds `microbatch_size`, is given. `pp` re-splits the layers.
    Raises PlanError when the numbers contradict each other.
    """
    _check_range("npus", npus, MAX_NPUS)
    _check_range("pp", pp, MAX_NPUS)
    _check_range("microbatches", microbatches, _MAX_MICROBATCHES)
    _check_range("global_batch", global_batch, MAX_NPUS * _MAX_MICROBATCHES)
    _check_range("microbatch_size", microbatch_size, _MAX_MICROBATCHES)
    warnings: list[str] = []
    stages = pp or workload.made_for.pp
    degrees = workload.made_for.degrees() | {ParallelAxis.PP: stages}
    expert_tp = _expert_tp(workload, ep_layout)
    size, origin = _job_size(workload, topology, npus, degrees, expert_tp, warnings)
    if size > MAX_NPUS:
        raise PlanError(f"{size} NPUs ({origin}): expected at most {MAX_NPUS}")
    degrees[ParallelAxis.TP] = _inner_size(workload, topology, size)
    split = {axis: degree for axis, degree in degrees.items() if axis.splits}
    replica = prod(split.values())
    if size % replica:
        named = {a: n for a, n in split.items() if n > 1 or a in (ParallelAxis.TP, ParallelAxis.PP)}
        shown = f"{'*'.join(named)} = {'*'.join(map(str, named.values()))} = {replica}"
        raise PlanError(f"{size} NPUs ({origin}): not divisible by {shown}")
    chosen: dict[str, Any] = {str(axis): degree for axis, degree in degrees.items()}
    plan = ParallelPlan(**chosen, dp=size // replica, expert_tp=expert_tp)
    count = microbatches or workload.made_for.microbatches or len(workload.microbatches)
    if global_batch is not None:
        if microbatches is not None:
            raise PlanError("global_batch and microbatches contradict each other: give one of them")
        count = _microbatches(plan, global_batch, microbatch_size)
    return replace(plan, microbatches=count), warnings


def check_held_degrees(plan: ParallelPlan, workload: Workload) -> None:
    """Raise PlanError when a plan changes a degree that the file's numbers already hold.

    Those are all but dp and pp: a job may have any number of replicas, and of stages.
    """
    if _has_dimension_groups(workload):
        return
    asked = plan.degrees()
    for axis, own in workload.made_for.degrees().items():
        if axis is not ParallelAxis.PP and own != asked[axis]:
            raise PlanError(
                f"{axis} is {asked[axis]}: {workload.source} was made for {axis} {own}, and its "
                "compute times and sizes hold for that alone"
            )


def _expert_tp(workload: Workload, ep_layout: EpLayout | None) -> int | None:
    """Ranks that share an expert in the layout asked for, else in the file's; None: as many as tp.

    Raises PlanError where a file was made for another layout.
    """
    own = workload.made_for.expert_tp
    if ep_layout is None:
        return own
    asked = 1 if ep_layout is EpLayout.FOLDED else None
    if own not in (None, asked or workload.made_for.tp):
        raise PlanError(
            f"ep_layout is {ep_layout}: in {workload.source} {own} ranks share an expert, and its "
            "compute times and sizes hold for that alone"
        )
    return asked


@kept(4)
def _has_dimension_groups(workload: Workload) -> bool:
    """Whether the policy speaks of topology dimensions instead of tp and dp."""
    return any(op.group in (Group.INNER, Group.OUTER) for op in workload.comms())


def _check_range(name: str, value: int | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        raise PlanError(f"{name} is {value}: expected 1 to {most}")


def _job_size(
    workload: Workload,
    topology: Topology,
    npus: int | None,
    degrees: Mapping[ParallelAxis, int],
    expert_tp: int | None,
    warnings: list[str],
) -> tuple[int, str]:
    """NPUs of the job and where the number comes from."""
    if npus is not None:
        return npus, "npus asked for"
    if workload.made_for.npus is not None:
        return workload.made_for.npus, "all_gpus in the file"
    size, pp = topology.default_npus, degrees[ParallelAxis.PP]
    split = prod(degree for axis, degree in degrees.items() if axis.splits)
    tp, shards = degrees[ParallelAxis.TP], degrees.get(ParallelAxis.FSDP, 1)
    unit = pp * lcm(split // pp, (expert_tp or tp) * degrees[ParallelAxis.EP], tp * shards)
    if not topology.grows:
        return size, f"the size of topology {topology.name}"
    rounded = -(-size // unit) * unit
    warnings.append(f"the file gives no all_gpus: stepsim assumes {rounded} NPUs (--npus sets it)")
    return rounded, "assumed"


def _inner_size(workload: Workload, topology: Topology, npus: int) -> int:
    """Tp, or the innermost dimension's size where the policy speaks of dimensions."""
    if _has_dimension_groups(workload):
        return min(topology.node_size, npus)
    return workload.made_for.tp


def _microbatches(plan: ParallelPlan, global_batch: int, microbatch_size: int) -> int:
    """Microbatches of a pipeline so that all pipelines together process the global batch."""
    per_round = plan.dp * microbatch_size
    if global_batch % per_round:
        raise PlanError(
            f"global_batch is {global_batch}: expected a multiple of dp * microbatch_size = "
            f"{plan.dp} * {microbatch_size} = {per_round}"
        )
    return global_batch // per_round
