"""What stepsim understood of a workload: the numbers behind `stepsim inspect`."""

from collections import defaultdict
from collections.abc import Iterable

from stepsim.base.axes import CollectiveKind, Group, Phase
from stepsim.base.structs import Names, Noun, Numbers
from stepsim.parallel.schedules import Placement
from stepsim.parallel.stages import Stages, split_stages
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Work, Workload
from stepsim.workload.scaling import placeholder_rows


class _Traffic(Noun):
    """Collectives of one kind in one group: how many, and their sizes added up."""

    group: Group
    kind: CollectiveKind
    count: int
    size_bytes: int


class Inspection(Noun):
    """A workload as it will be run. Compute is per phase in ps, of one stage.

    `compute_ps` and `traffic` are of the first microbatch of stage 0, `step_compute_ps` and
    `step_traffic` of what stage 0 runs once per step.
    """

    workload: Workload
    plan: Plan
    layers_per_stage: Numbers
    pp_comm_bytes: int
    compute_ps: dict[Phase, int]
    traffic: tuple[_Traffic, ...]
    step_compute_ps: int
    step_traffic: tuple[_Traffic, ...]
    placeholders: tuple[int, int]
    warnings: Names


def inspect_workload(workload: Workload, plan: Plan, warnings: Iterable[str] = ()) -> Inspection:
    """Add up what one rank of the first stage computes and communicates."""
    slices = len(workload.layout.slices) if workload.layout else 0
    placement = Placement(ranks=plan.pp, chunks=max(slices // plan.pp, 1))
    stages = split_stages(workload, plan, placement)
    rows = [row for chunk in stages.works[0].chunks for row in chunk[0]]
    step = stages.works[0].per_step
    return Inspection(
        workload=workload,
        plan=plan,
        layers_per_stage=_layers_per_stage(workload, stages),
        pp_comm_bytes=stages.pp_comm_bytes,
        compute_ps={phase: sum(getattr(row, phase).compute_ps for row in rows) for phase in Phase},
        traffic=_traffic(  # weight-gradient collectives run once per step, not per microbatch
            work for row in rows for work in (row.forward, row.input_grad)
        ),
        step_compute_ps=sum(item.work.compute_ps for item in step),
        step_traffic=_traffic([*(item.work for item in step), *(row.weight_grad for row in rows)]),
        placeholders=placeholder_rows(workload),
        warnings=(*workload.said, *warnings, *stages.warnings),
    )


def _layers_per_stage(workload: Workload, stages: Stages) -> Numbers:
    """Layers of each stage in the first block, counted by their first rows."""
    starts = {id(layer[0]) for layer in workload.microbatches[0].layers}
    return tuple(
        sum(id(row) in starts for chunk in work.chunks for row in chunk[0]) for work in stages.works
    )


def _traffic(works: Iterable[Work]) -> tuple[_Traffic, ...]:
    sizes: dict[tuple[Group, CollectiveKind], list[int]] = defaultdict(list)
    for work in works:
        for op in work.comms:
            sizes[op.group, op.kind].append(op.size_bytes)
    return tuple(
        _Traffic(group=group, kind=kind, count=len(several), size_bytes=sum(several))
        for (group, kind), several in sorted(sizes.items())
    )
