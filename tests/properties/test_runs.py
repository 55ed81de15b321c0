"""What holds in every run, whatever the job."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from helpers import examples, few, row
from hypothesis import given
from hypothesis import strategies as st
from invariants import check_timeline

import stepsim
from stepsim.base.structs import replace
from stepsim.face import Result
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.workload.rows import (
    CollectiveKind,
    CommOp,
    Group,
    MadeFor,
    Microbatch,
    ParallelAxis,
    Part,
    Role,
    Row,
    StepItem,
    Work,
    Workload,
)

TIMES = st.integers(0, 5_000)


@st.composite
def comms(draw: st.DrawFn, groups: list[Group], axis: ParallelAxis) -> tuple[CommOp, ...]:
    kind = draw(st.sampled_from([k for k in CollectiveKind if k is not CollectiveKind.SEND_RECV]))
    if not draw(st.booleans()):
        return ()
    group = draw(st.sampled_from(groups))
    chosen = ParallelAxis.EP if group is Group.EP else axis
    return (CommOp(kind=kind, group=group, axis=chosen, size_bytes=draw(st.integers(1, 10**6))),)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    blank = row(0, 0)
    model = [Group.TP, Group.EP, Group.STAGE]
    return replace(
        blank,
        forward=Work(compute_ps=draw(TIMES), comms=draw(comms(model, ParallelAxis.TP))),
        input_grad=Work(compute_ps=draw(TIMES), comms=draw(comms(model, ParallelAxis.TP))),
        weight_grad=Work(
            compute_ps=draw(TIMES), comms=draw(comms([Group.DP, Group.DP_EP], ParallelAxis.DP))
        ),
        recompute=draw(st.integers(0, 9)) == 0,
        forward_lag=draw(st.sampled_from([0, 0, 0, 1, 2])),
    )


@st.composite
def items(draw: st.DrawFn) -> StepItem:
    """A phase of a random row, in any role."""
    phase, work = draw(st.sampled_from(draw(rows()).works()))
    role, per_layer = draw(st.sampled_from(Role)), draw(st.booleans())
    return StepItem(name="item", phase=phase, work=work, role=role, per_layer=per_layer)


@st.composite
def jobs(draw: st.DrawFn) -> Workload:
    tp, pp = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 2, 3]))
    dp = draw(st.sampled_from([1, 2, 4]))
    ep = draw(st.sampled_from([e for e in (1, 2, 4) if dp % e == 0]))
    blocks = [
        Microbatch(
            embedding=tuple(draw(st.lists(rows(), max_size=1))),
            layers=tuple((each,) for each in draw(st.lists(rows(), min_size=1, max_size=3))),
            head=tuple(draw(st.lists(rows(), max_size=1))),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]
    return Workload(
        source="random",
        made_for=MadeFor(tp=tp, ep=ep, pp=pp, npus=tp * dp * pp),
        pp_comm_bytes=draw(st.integers(1, 10**6)),
        microbatches=tuple(blocks),
        loss=tuple(draw(st.lists(rows(), max_size=1))),
        per_step=tuple(draw(st.lists(items(), max_size=6))),
    )


@st.composite
def networks(draw: st.DrawFn) -> NestedTopology:
    kinds = st.sampled_from(list(DimensionKind))
    links = [
        LinkClass(
            name=name,
            bandwidth=draw(st.sampled_from([1e9, 5e10, 4.5e11])),
            latency_ps=draw(TIMES),
            endpoint_latency_ps=draw(TIMES),
        )
        for name in ("inner", "outer")
    ]
    return NestedTopology(
        name="random",
        source="test",
        dimensions=(
            Dimension(kind=draw(kinds), size=draw(st.sampled_from([2, 4, 5])), link=links[0]),
            Dimension(kind=draw(kinds), size=20, link=links[1]),
        ),
        launch_latency_ps=draw(TIMES),
    )


def parts_per_rank(result: Result) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    ranks = result.ranks
    table: np.ndarray[tuple[int, int], np.dtype[np.int64]] = ranks.breakdown[ranks.actor_of]
    return table


@examples(60)
@given(workload=jobs(), network=networks(), p2p=st.sampled_from(["eager", "blocking"]))
def test_every_run_is_consistent_and_folding_changes_nothing(
    workload: Workload, network: NestedTopology, p2p: str
) -> None:
    full = stepsim.simulate(workload, network, p2p=p2p, fold_ranks=False)
    check_timeline(full.timeline)
    folded = stepsim.simulate(workload, network, p2p=p2p)
    check_timeline(folded.timeline)
    for result in (full, folded):
        table = parts_per_rank(result)
        assert (table.sum(axis=1) == result.report.step_time_ps).all()
        assert (table >= 0).all()
    assert folded.report.step_time_ps == full.report.step_time_ps
    assert folded.report.pipeline_time_ps == full.report.pipeline_time_ps
    assert (parts_per_rank(folded) == parts_per_rank(full)).all()
    for rank in range(full.report.npus):
        one, other = folded.timeline.tasks(rank), full.timeline.tasks(rank)
        assert (one.start == other.start).all()
        assert (one.end == other.end).all()
    assert folded.report.links == full.report.links
    assert folded.report.critical_path_ps == full.report.critical_path_ps
    assert sum(full.report.critical_path_ps.values()) == full.report.step_time_ps


@examples(40)
@given(workload=jobs(), network=networks())
def test_eager_is_never_slower_than_blocking(workload: Workload, network: NestedTopology) -> None:
    eager = stepsim.simulate(workload, network, p2p="eager").report
    blocking = stepsim.simulate(workload, network, p2p="blocking").report
    assert eager.step_time_ps <= blocking.step_time_ps


@examples(40)
@given(workload=jobs(), network=networks(), which=st.integers(0, 1))
def test_a_faster_link_class_is_never_slower(
    workload: Workload, network: NestedTopology, which: int
) -> None:
    dimensions = list(network.dimensions)
    link = dimensions[which].link
    faster = replace(link, bandwidth=link.bandwidth * 2, latency_ps=link.latency_ps // 2)
    dimensions[which] = replace(dimensions[which], link=faster)
    better = replace(network, dimensions=tuple(dimensions))
    slow = stepsim.simulate(workload, network).report.step_time_ps
    assert stepsim.simulate(workload, better).report.step_time_ps <= slow


TOPOLOGIES = ("hgx-h100", "hgx-a100", "ring", "ideal")


@examples(20)
@given(workload=jobs(), network=networks())
def test_the_same_input_gives_the_same_bytes(workload: Workload, network: NestedTopology) -> None:
    first = stepsim.simulate(workload, network).to_json()
    assert stepsim.simulate(workload, network).to_json() == first


@pytest.mark.parametrize(
    ("name", "p2p", "topology"),
    few(
        product(("moe_128", "gpt_tp4"), ("eager", "blocking"), TOPOLOGIES),
        ("moe_128", "eager", "hgx-h100"),
        ("gpt_tp4", "blocking", "hgx-h100"),
    ),
)
def test_seed_timelines_hold_every_dependency(
    name: str, p2p: str, topology: str, workloads: Path
) -> None:
    result = (
        stepsim.simulate(
            workloads / f"{name}.txt", topology, p2p=p2p, fold_ranks=False, npus=32, pp=4
        )
        if name == "gpt_tp4"
        else stepsim.simulate(workloads / f"{name}.txt", topology, p2p=p2p, fold_ranks=False)
    )
    check_timeline(result.timeline)
    assert (parts_per_rank(result).sum(axis=1) == result.report.step_time_ps).all()
    assert result.report.breakdown_ps.keys() == {part.key for part in Part}
    assert sum(result.report.breakdown_ps.values()) == result.report.step_time_ps
