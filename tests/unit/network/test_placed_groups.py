"""Where jobs lie in racks of eight NPUs: how many of each they take, and which groups cross."""

import pytest

from stepsim.base.axes import Group, RankOrder
from stepsim.network.placement import crossing, find_crossing, idle_npus, place, whole_degrees
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.parallel.modes import JobPlacement
from stepsim.workload.plan import Plan

ALIGNED, PACKED = JobPlacement.ALIGNED, JobPlacement.PACKED


def racks(
    size: int = 8,
    *,
    used: int = 0,
    kind: DimensionKind = DimensionKind.SWITCH,
    slow: float = 5e10,
) -> NestedTopology:
    """Racks of so many NPUs on one fabric, as many as a job needs."""
    inside = Dimension(
        kind=DimensionKind.SWITCH,
        size=size,
        used=used,
        link=LinkClass(name="fast", latency_ps=0, bandwidth=9e11),
    )
    outside = Dimension(
        kind=kind, size=1, link=LinkClass(name="slow", latency_ps=0, bandwidth=slow)
    )
    return NestedTopology(name="racks", source="test", dimensions=(inside, outside), grows=True)


@pytest.mark.parametrize(
    ("tp", "dp", "taken"),
    [(8, 2, 8), (3, 6, 6), (5, 4, 5), (16, 2, 8)],
)
def test_a_job_takes_of_each_rack_what_its_groups_fill(tp: int, dp: int, taken: int) -> None:
    """Groups of three take six of eight; those larger than a rack cannot be whole in any."""
    plan = Plan(tp=tp, dp=dp)
    network = place(racks(), plan, ALIGNED)
    assert network.node_size == taken
    assert network.npus >= plan.npus
    assert place(racks(), plan, PACKED).node_size == 8


def test_a_job_that_one_rack_holds_lies_in_it() -> None:
    network = place(racks(), Plan(tp=3, dp=2), ALIGNED)
    assert network.npus == 8
    assert not idle_npus(network)


def test_idle_npus_are_said() -> None:
    plan = Plan(tp=3, dp=6)
    (text,) = idle_npus(place(racks(), plan, ALIGNED))
    assert text.startswith("the job takes 6 of the 8 NPUs of each fast block")
    assert idle_npus(place(racks(), plan, PACKED)) == ()


def test_groups_cross_racks_where_they_are_packed() -> None:
    """Ranks 6 7 8 are a group: in racks of eight it is broken, in six of each it is whole."""
    plan = Plan(tp=3, dp=6)
    assert crossing(plan, place(racks(), plan, ALIGNED)) == ()
    packed = place(racks(), plan, PACKED)
    assert crossing(plan, packed) == (Group.TP,)
    found = find_crossing(racks(), packed, plan, PACKED)
    assert found is not None
    assert found.is_avoidable
    assert (found.block, found.links, found.other_placement) == (8, "fast", ALIGNED)
    assert found.text == (
        "placement packed: tp groups span several fast blocks of 8 NPUs, "
        "with --placement aligned they fit in one"
    )


def test_another_order_of_ranks_may_keep_groups_whole() -> None:
    """With stages innermost a tensor-parallel pair is two ranks apart and fills two racks."""
    plan = Plan(tp=2, pp=8, rank_order=RankOrder.PP_TP_DP)
    network = place(racks(8), plan, ALIGNED)
    found = find_crossing(racks(8), network, plan, ALIGNED)
    assert found is not None
    assert found.other_order is RankOrder.TP_DP_PP
    assert "with --rank-order tp-dp-pp they fit in one" in found.text


def test_groups_larger_than_a_rack_cross_in_any_case() -> None:
    plan = Plan(tp=16, dp=2)
    network = place(racks(), plan, ALIGNED)
    found = find_crossing(racks(), network, plan, ALIGNED)
    assert found is not None
    assert not found.is_avoidable
    assert found.text == "tp groups span several fast blocks of 8 NPUs"
    assert list(whole_degrees(racks(), plan, ALIGNED, Group.TP)) == [8, 4, 2, 1]


def test_racks_that_are_no_faster_inside_are_no_blocks() -> None:
    plan = Plan(tp=16, dp=2)
    even = place(racks(slow=9e11), plan, ALIGNED)
    assert crossing(plan, even) == ()


def test_other_networks_are_taken_as_they_are() -> None:
    """A ring of racks knows who is beside whom: nothing may stay idle."""
    ringed = racks(kind=DimensionKind.RING)
    assert place(ringed, Plan(tp=3, dp=6), ALIGNED).node_size == 8
