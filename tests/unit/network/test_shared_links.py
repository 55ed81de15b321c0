"""Steps whose transfers share links, each time computed by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import Span, row, rows_of, uniform_workload
from invariants import check_timeline

import stepsim
from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Phase, degrees_of
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.core.write import SegmentKind
from stepsim.face.results import Result
from stepsim.network.measured_times import CommTable
from stepsim.network.topology import (
    Dimension,
    DimensionKind,
    LinkClass,
    NestedTopology,
    Topology,
)
from stepsim.run.spans import TaskKind
from stepsim.workload.rows import CommOp, Microbatch, Role, Row, StepItem, Work, Workload

MS = 10**9
MB = 10**6
ALL_REDUCE = CollectiveKind.ALL_REDUCE
both_ways = pytest.mark.parametrize("fold_ranks", [True, False])


def network(kind: DimensionKind, npus: int, *, hop_ps: int = 0) -> NestedTopology:
    link = LinkClass(name="link", bandwidth=1e9, latency_ps=hop_ps)
    dimensions = (Dimension(kind=kind, size=npus, link=link),)
    return NestedTopology(name="test", source="test", dimensions=dimensions)


def work(compute_ps: int = 0, *comms: CommOp) -> Work:
    return Work(compute_ps=compute_ps, comms=comms)


def op(kind: CollectiveKind, group: Group, size_bytes: int) -> CommOp:
    axis = ParallelAxis.TP if group is Group.TP else ParallelAxis.DP
    return CommOp(kind=kind, group=group, axis=axis, size_bytes=size_bytes)


def gradients(*comms: CommOp) -> StepItem:
    """Gradients reduced after the pipeline."""
    role = Role.GRADIENTS
    return StepItem(name=role, phase=Phase.WEIGHT_GRAD, work=work(0, *comms), role=role)


def job(
    rows: Sequence[Row],
    *per_step: StepItem,
    tp: int = 1,
    dp: int = 1,
    pp: int = 1,
    ep: int = 1,
    message: int = 0,
    microbatches: int = 1,
) -> Workload:
    """One layer per row, the same on every stage."""
    block = Microbatch(embedding=(), layers=tuple((each,) for each in rows), head=())
    return Workload(
        source="test",
        degrees=degrees_of(tp=tp, ep=ep, pp=pp),
        npus=tp * dp * pp,
        pp_comm_bytes=message,
        microbatches=(block,) * microbatches,
        per_step=per_step,
    )


def times(result: Result, kind: TaskKind, rank: int = 0) -> list[tuple[int, int]]:
    """(start, end) of a rank's tasks of a kind, by start."""
    spans = rows_of(result.timeline, [rank])
    return sorted((span.start_ps, span.end_ps) for span in spans if span.kind is kind)


def fair(workload: Workload, topology: Topology, **options: Any) -> Result:
    """A checked run with shared links."""
    result = stepsim.simulate(workload, topology, contention="fair", **options)
    check_timeline(result.timeline)
    return result


def alone(workload: Workload, topology: Topology, **options: Any) -> int:
    """Step time when every transfer has its links to itself."""
    return stepsim.simulate(workload, topology, contention="none", **options).report.step_time_ps


def siblings(workload: Workload, topology: Topology, **options: Any) -> int:
    """Step time when groups that act together share links."""
    result = stepsim.simulate(workload, topology, contention="siblings", **options)
    check_timeline(result.timeline)
    return result.report.step_time_ps


TWO_REDUCTIONS = job([row(10, 20)], gradients(op(ALL_REDUCE, Group.DP, MB)), tp=2, dp=2)
"""All-reduces of ranks 0 and 2, and of 1 and 3: two steps of half a MB to the other rank."""


@both_ways
def test_two_equal_all_reduces_over_one_link_take_twice_the_bandwidth_time(
    fold_ranks: bool,
) -> None:
    """On a line 0-1-2-3 both cross the link between 1 and 2: 1 ms alone, plus 2 * 2 hops."""
    line = network(DimensionKind.LINE, 4, hop_ps=500)
    assert alone(TWO_REDUCTIONS, line, fold_ranks=fold_ranks) == 30 + 4 * 500 + MS
    assert siblings(TWO_REDUCTIONS, line, fold_ranks=fold_ranks) == 30 + 4 * 500 + 2 * MS
    shared = fair(TWO_REDUCTIONS, line, fold_ranks=fold_ranks)
    assert shared.report.step_time_ps == 30 + 4 * 500 + 2 * MS
    assert times(shared, TaskKind.COLLECTIVE) == [(30, 30 + 4 * 500 + 2 * MS)]


@both_ways
@pytest.mark.parametrize("kind", [DimensionKind.SWITCH, DimensionKind.FULLY_CONNECTED])
def test_all_reduces_on_links_of_their_own_do_not_slow_each_other(
    kind: DimensionKind, fold_ranks: bool
) -> None:
    shared = fair(TWO_REDUCTIONS, network(kind, 4), fold_ranks=fold_ranks)
    assert shared.report.step_time_ps == 30 + MS


@both_ways
def test_equal_groups_on_a_ring_are_slowed_alike(fold_ranks: bool) -> None:
    """Ring of 4: ranks across send half each way, so every link carries half a flow of each group.

    Alone two steps of half a MB at twice a link's rate take half a ms, together twice as long.
    Folded, one actor stands for all and pays for both groups.
    """
    ring = network(DimensionKind.RING, 4)
    assert alone(TWO_REDUCTIONS, ring) == 30 + MS // 2
    assert siblings(TWO_REDUCTIONS, ring, fold_ranks=fold_ranks) == 30 + MS
    shared = fair(TWO_REDUCTIONS, ring, fold_ranks=fold_ranks)
    assert shared.report.step_time_ps == 30 + MS
    assert len(shared.timeline.actors) == (1 if fold_ranks else 4)


HALF = row(MS, MS // 2, MS // 2)
"""A row whose forward takes 1 ms, and each of its gradients half of one."""


@both_ways
def test_a_message_during_a_gradient_all_reduce_has_its_share(fold_ranks: bool) -> None:
    """Two stages of two data-parallel ranks on a switch: 0 and 1, 2 and 3; times in ms.

    Stage 0 computes forward until 2, its message arrives at 2.5, stage 1 computes until 4.5. Its
    second row's backward is over at 5.5: the first bucket, an all-reduce of 2 MB, has two steps of
    1 MB, 2 ms. Its first row's backward is over at 6.5: the gradient message and the bucket share
    the cable up from the rank, half each: the message of 0.5 MB takes 1 ms, until 7.5, and the
    bucket, which had 1 ms left, has half a ms left then: until 8. The second bucket ends at 10.

    Stage 0 computes backward from 7.5; its buckets run from 8.5 to 10.5 and from 10.5 to 12.5.
    """
    workload = job(
        [HALF, HALF], gradients(op(ALL_REDUCE, Group.DP, 4 * MB)), dp=2, pp=2, message=MB // 2
    )
    options: dict[str, Any] = {"dp_overlap": True, "dp_bucket": "1 B", "p2p": "eager"}
    switch = network(DimensionKind.SWITCH, 4)
    shared = fair(workload, switch, **options, fold_ranks=fold_ranks)
    expected: dict[tuple[TaskKind, int], list[tuple[float, float]]] = {
        (TaskKind.COLLECTIVE, 2): [(5.5, 8), (8, 10)],
        (TaskKind.SEND, 2): [(6.5, 7.5)],
        (TaskKind.RECV, 0): [(6.5, 7.5)],
        (TaskKind.COLLECTIVE, 0): [(8.5, 10.5), (10.5, 12.5)],
    }
    for task, ran in expected.items():
        assert times(shared, *task) == [(begin * MS, end * MS) for begin, end in ran]
    assert shared.report.step_time_ps == 12.5 * MS
    assert stepsim.simulate(workload, switch, **options).report.step_time_ps == 12 * MS


@both_ways
def test_messages_of_both_directions_do_not_slow_each_other(fold_ranks: bool) -> None:
    """Links go one way: activations pass gradients on a line, and both take their 3 ms alone."""
    workload = job([HALF], pp=2, message=3 * MB, microbatches=4)
    line = network(DimensionKind.LINE, 2)
    shared = fair(workload, line, p2p="overlap", fold_ranks=fold_ranks)
    there, back = (times(shared, TaskKind.SEND, rank) for rank in (0, 1))
    assert {end - start for start, end in there + back} == {3 * MS}
    assert any(a < d and c < b for a, b in there for c, d in back)


@pytest.mark.parametrize("topology", ["hgx-h100", "ideal"])
@pytest.mark.parametrize(
    ("name", "npus"), [("gpt_tp4", None), ("moe_128", None), ("gpt_1024", 256)]
)
def test_where_no_transfers_meet_shared_links_change_nothing(
    name: str, npus: int | None, topology: str, workloads: Path
) -> None:
    """Every task of every rank; on these networks only overlapped gradients meet other traffic."""
    path = workloads / f"{name}.txt"
    alone = stepsim.simulate(path, topology, npus=npus)
    shared = stepsim.simulate(path, topology, npus=npus, contention="fair")
    assert shared.report.step_time_ps == alone.report.step_time_ps
    for rank in alone.timeline.actors.ranks.tolist():
        one, other = alone.timeline.tasks(rank), shared.timeline.tasks(rank)
        assert (one.start == other.start).all()
        assert (one.end == other.end).all()


TALKING = replace(HALF, forward=work(MS, op(ALL_REDUCE, Group.TP, MB)))


def test_groups_that_slow_only_each_other_are_run_as_one_task() -> None:
    """Folded, two equal groups on a shared link are one actor, slower by a half."""
    workload = job([replace(HALF, forward=work(MS, op(ALL_REDUCE, Group.DP, MB)))], tp=2, dp=2)
    shared = fair(workload, network(DimensionKind.LINE, 4))
    apart = fair(workload, network(DimensionKind.LINE, 4), fold_ranks=False)
    assert shared.report.step_time_ps == apart.report.step_time_ps == (1 + 2 + 1) * MS
    assert len(shared.timeline.actors) == 2
    assert len(apart.timeline.flat) > 4


def test_groups_that_meet_other_traffic_are_laid_out() -> None:
    """The same collectives, and messages on the same links."""
    workload = job([TALKING, TALKING], tp=2, pp=2, message=MB, microbatches=2)
    switch = network(DimensionKind.SWITCH, 4)
    shared = fair(workload, switch).timeline
    assert len(shared.flat) > len(stepsim.simulate(workload, switch).timeline.flat)


@both_ways
@pytest.mark.parametrize("p2p", ["eager", "blocking", "overlap"])
def test_transfers_of_no_bytes_take_no_time(p2p: str, fold_ranks: bool) -> None:
    nothing = replace(row(10, 20), forward=work(10, op(ALL_REDUCE, Group.TP, 0)))
    workload = job([nothing], tp=2, pp=4, microbatches=5)
    line = network(DimensionKind.LINE, 8, hop_ps=700)
    shared = fair(workload, line, p2p=p2p, fold_ranks=fold_ranks)
    assert shared.report.step_time_ps == alone(workload, line, p2p=p2p)


def test_contention_is_none_siblings_or_fair() -> None:
    workload = uniform_workload(forward=1, backward=1, pp=1, microbatches=1)
    with pytest.raises(
        PlanError, match="contention is 'unfair': expected one of none, siblings, fair"
    ):
        stepsim.simulate(workload, "ideal", contention="unfair")


def bucket_sizes(result: Result) -> list[int]:
    return [span.size_bytes for span in buckets(result)]


def buckets(result: Result) -> list[Span]:
    """Gradient reductions of the first rank while the backward goes on, by start."""
    found = [span for span in rows_of(result.timeline, [0]) if span.label == "gradient bucket"]
    return sorted(found, key=lambda span: span.start_ps)


def weighted(*weights: int) -> list[Row]:
    return [row(5, 5, weight) for weight in weights]


@pytest.mark.parametrize(
    ("weights", "gradient", "bucket", "sizes"),
    [
        ((3, 2, 1), 99, "1 B", [16, 33, 50]),  # backward: the last row first; 1/6, 1/2, all of 99
        ((3, 2, 1), 99, "17 B", [49, 50]),
        ((3, 2, 1), 99, "50 B", [99]),
        ((0, 1, 0, 1, 0), 10, "1 B", [5, 5]),  # rows without weights reduce nothing
        ((1, 1, 1, 1, 1), 2, "1 B", [1, 1]),  # fewer bytes than rows: only what there is
    ],
)
def test_a_bucket_is_reduced_when_it_is_full(
    weights: tuple[int, ...], gradient: int, bucket: str, sizes: list[int]
) -> None:
    workload = job(weighted(*weights), gradients(op(ALL_REDUCE, Group.DP, gradient)), dp=2)
    run = fair(workload, network(DimensionKind.SWITCH, 2), dp_overlap=True, dp_bucket=bucket)
    assert bucket_sizes(run) == sizes


@pytest.mark.parametrize(
    ("asked", "warning"),
    [
        ({"dp_bucket": "1 B"}, "dp_bucket 1 B has no effect"),
        ({"algorithm": "broadcast=tree"}, "the step has no broadcast"),
        (
            {"comm_table": CommTable(source="none", curves=())},
            "the measured times cover no communication",
        ),
    ],
)
def test_options_without_effect_are_said(asked: dict[str, Any], warning: str) -> None:
    workload = job(weighted(1), gradients(op(ALL_REDUCE, Group.DP, 99)), dp=2)
    switch = network(DimensionKind.SWITCH, 2)
    found = stepsim.simulate(workload, switch, **asked).report.warnings
    plain = stepsim.simulate(workload, switch, algorithm="all_reduce=ring").report.warnings
    assert any(warning in text for text in found)
    assert not any(warning in text for text in plain)


def test_a_bucket_holds_its_share_of_every_gradient() -> None:
    """Of 600 and 300 bytes, by halves: a bucket counts both."""
    reduced = op(ALL_REDUCE, Group.DP, 600), op(CollectiveKind.REDUCE_SCATTER, Group.DP, 300)
    workload = job(weighted(2, 2), gradients(*reduced), dp=2)
    switch = network(DimensionKind.SWITCH, 2)
    apart = fair(workload, switch, dp_overlap=True, dp_bucket="450 B")
    assert bucket_sizes(apart) == [300, 150, 300, 150]
    together = fair(workload, switch, dp_overlap=True, dp_bucket="451 B")
    assert bucket_sizes(together) == [600, 300]


def test_a_slow_reduction_delays_the_next_and_the_rows_after_the_pipeline() -> None:
    """Backward rows end at 2 and 3 ms; buckets of 4 MB take 4 ms: from 2 to 6, from 6 to 10."""
    rows = [replace(HALF, forward=work(MS // 2))] * 2
    step = StepItem(name="adam", phase=Phase.FORWARD, work=work(2 * MS), role=Role.UPDATE)
    workload = job(rows, gradients(op(ALL_REDUCE, Group.DP, 8 * MB)), step, dp=2)
    run = fair(workload, network(DimensionKind.SWITCH, 2), dp_overlap=True, dp_bucket="1 MB")
    assert [(span.start_ps, span.end_ps) for span in buckets(run)] == [
        (2 * MS, 6 * MS),
        (6 * MS, 10 * MS),
    ]
    assert max(times(run, TaskKind.COMPUTE)) == (10 * MS, 12 * MS)
    later = stepsim.simulate(workload, network(DimensionKind.SWITCH, 2))
    assert later.report.step_time_ps == (3 + 8 + 2) * MS


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "dualpipe-v", "zb-v", "interleaved:2"])
@pytest.mark.parametrize("bucket", ["1 B", "1 MB", "1 GB"])
def test_every_gradient_is_reduced_once(schedule: str, bucket: str) -> None:
    """On every stage, by whichever action computes the last weight gradients of its chunks."""
    reduced = op(ALL_REDUCE, Group.DP, 7 * MB + 1), op(ALL_REDUCE, Group.DP_EP, 3 * MB + 2)
    workload = job(
        [*weighted(30, 20, 11, 7)], gradients(*reduced), dp=4, ep=2, pp=2, message=9, microbatches=4
    )
    switch = network(DimensionKind.SWITCH, 8)
    run = fair(workload, switch, schedule=schedule, dp_overlap=True, dp_bucket=bucket)
    graph = run.timeline.graph
    for program in graph.programs:
        sizes: dict[Group, list[int]] = {Group.DP: [], Group.DP_EP: []}
        together = []
        for look in (program.looks[i] for i in program.look):
            if look.kind is SegmentKind.REDUCTION:
                ops = [graph.comms[t.comm] for t in graph.task_lists[look.task_list].tasks]
                together.append(sum(each.size_bytes for each in ops))
                for each in ops:
                    sizes[each.group].append(each.size_bytes)
        assert [sum(each) for each in sizes.values()] == [7 * MB + 1, 3 * MB + 2]
        least = {"1 B": 1, "1 MB": MB, "1 GB": 10**9}[bucket]
        assert all(each >= least for each in together[:-1])


def test_more_buckets_cost_more_latency() -> None:
    """So overlap is no gain for its own sake: here compute takes no time and a hop much."""
    workload = job(weighted(1, 1, 1, 1), gradients(op(ALL_REDUCE, Group.DP, 400)), dp=2)
    line = network(DimensionKind.LINE, 2, hop_ps=MS)
    alone = stepsim.simulate(workload, line).report.step_time_ps
    many = stepsim.simulate(workload, line, dp_overlap=True, dp_bucket="1 B").report.step_time_ps
    one = stepsim.simulate(workload, line, dp_overlap=True).report.step_time_ps
    assert alone == one == 4 * 11 + 2 * MS + 400_000
    # Four buckets from the first row's backward on, which ends after 4 * 5 + 6 ps.
    assert many == 4 * 5 + 6 + 4 * (2 * MS + 100_000)
