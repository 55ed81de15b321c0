"""Parameters in shards: gathered one unit ahead, gradients reduced behind, beside compute."""

import pytest

from stepsim import simulate
from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Part, Phase, degrees_of
from stepsim.base.errors import ScheduleError
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.face.steps import collective_time
from stepsim.workload.model.layout import LayerLayout, counted_layout
from stepsim.workload.rows import (
    CommOp,
    Microbatch,
    PerParameter,
    Role,
    Row,
    Shards,
    Work,
    Workload,
)

LAYERS, SIZE = 6, 1 << 24
GATHER = CommOp(
    kind=CollectiveKind.ALL_GATHER, group=Group.FSDP, axis=ParallelAxis.FSDP, size_bytes=SIZE
)
REDUCE = replace(GATHER, kind=CollectiveKind.REDUCE_SCATTER, axis=ParallelAxis.DP)
LONG = 10**10


def layer(compute_ps: int, *, again: bool = True, once: bool = False) -> tuple[Row, ...]:
    shards = Shards(gather=(GATHER,), reduce=() if once else (REDUCE,), again=again, once=once)
    first = Row(
        name="a",
        forward=Work(compute_ps=compute_ps),
        input_grad=Work(compute_ps=compute_ps),
        weight_grad=Work(compute_ps=compute_ps),
        parameters=10,
        shards=shards,
    )
    return (first, replace(first, name="b", shards=None, expert_parameters=3))


def job(compute_ps: int, *, pp: int = 1, fsdp: int = 8, **how: bool) -> Workload:
    block = Microbatch(embedding=(), layers=(layer(compute_ps, **how),) * LAYERS, head=())
    return Workload(
        source="shards",
        degrees=degrees_of(fsdp=fsdp, pp=pp),
        npus=8 * pp,
        microbatches=(block,),
        layout=LayerLayout(),
    )


def alone(kind: CollectiveKind) -> int:
    seconds = collective_time("hgx-h100", kind, SIZE, range(8))
    return round(seconds * PS_PER_S)


def test_compute_hides_all_but_the_first_gather_and_the_last_reduction() -> None:
    report = simulate(job(LONG), "hgx-h100", contention="none").report
    first, last = alone(CollectiveKind.ALL_GATHER), alone(CollectiveKind.REDUCE_SCATTER)
    assert max(first, last) < LONG
    assert report.step_time_ps == first + LAYERS * 2 * 3 * LONG + last
    parts = report.breakdown_ps
    assert (parts[Part.EXPOSED_FSDP.key], parts[Part.EXPOSED_DP.key]) == (first, last)


def test_without_compute_the_gathers_follow_each_other() -> None:
    report = simulate(job(1), "hgx-h100", contention="none").report
    gathers = 2 * LAYERS * alone(CollectiveKind.ALL_GATHER)
    assert gathers < report.step_time_ps < gathers + 2 * alone(CollectiveKind.REDUCE_SCATTER)


def test_parameters_that_stay_are_gathered_in_the_forward_alone() -> None:
    kept = simulate(job(1, again=False), "hgx-h100", contention="none").report
    counts = {(use.group, use.kind): use.count for use in kept.comms}
    assert counts[Group.FSDP, CollectiveKind.ALL_GATHER] == LAYERS
    assert counts[Group.FSDP, CollectiveKind.REDUCE_SCATTER] == LAYERS


def test_the_next_microbatch_gathers_while_the_last_one_computes() -> None:
    report = simulate(job(LONG), "hgx-h100", microbatches=3, contention="none").report
    first, last = alone(CollectiveKind.ALL_GATHER), alone(CollectiveKind.REDUCE_SCATTER)
    assert report.step_time_ps == first + 3 * LAYERS * 2 * 3 * LONG + last


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "dualpipe-v"])
def test_what_is_gathered_once_goes_with_every_schedule(schedule: str) -> None:
    work = job(LONG, pp=2, fsdp=8, once=True)
    report = simulate(work, "hgx-h100", schedule=schedule, microbatches=4, contention="none").report
    counts = {(use.group, use.kind): use.count for use in report.comms}
    assert counts[Group.FSDP, CollectiveKind.ALL_GATHER] == LAYERS // 2


@pytest.mark.parametrize(("once", "reduce"), [(False, (REDUCE,)), (False, ()), (True, (REDUCE,))])
def test_shards_with_split_backwards_are_refused(once: bool, reduce: tuple[CommOp, ...]) -> None:
    shards = Shards(gather=(GATHER,), reduce=reduce, once=once)
    rows = tuple(replace(row, shards=shards) for row in layer(LONG))
    block = Microbatch(embedding=(), layers=(rows,) * LAYERS, head=())
    work = replace(job(LONG, pp=2), microbatches=(block,))
    with pytest.raises(ScheduleError, match="split backwards are not modelled"):
        simulate(work, "hgx-h100", schedule="zb-h1", microbatches=4)


@pytest.mark.parametrize("contention", ["none", "fair"])
def test_shards_fold_and_share_links(contention: str) -> None:
    folded, every = (
        simulate(
            job(LONG, pp=2), "hgx-h100", microbatches=4, contention=contention, fold_ranks=fold
        )
        for fold in (True, False)
    )
    assert folded.report.step_time_ps == every.report.step_time_ps


def test_a_layout_says_which_stage_has_which_layers_and_what_they_own() -> None:
    work = replace(
        job(LONG, pp=2, again=False),
        layout=counted_layout([1, 5]),
        per_parameter=(
            PerParameter(name="dense", phase=Phase.FORWARD, role=Role.UPDATE, compute_ps=1000),
            PerParameter(
                name="experts", phase=Phase.FORWARD, role=Role.UPDATE, compute_ps=1.5, experts=True
            ),
        ),
    )
    report = simulate(work, "hgx-h100", microbatches=4, contention="none").report
    computed = [stage.breakdown_ps[Part.COMPUTE.key] for stage in report.stages]
    assert computed == [
        4 * layers * 6 * LONG + layers * 20 * 1000 + round(layers * 3 * 1.5) for layers in (1, 5)
    ]
