"""Where jobs lie: groups that fit in a rack or node are whole, and nothing that is idle counts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from unit.network.test_placed_groups import racks

from stepsim.base.axes import Group, RankOrder
from stepsim.base.structs import replace
from stepsim.files.load import topology_of
from stepsim.network.placement import SIZES_OF_GROUPS, find_crossing, place
from stepsim.network.topology import DimensionKind
from stepsim.parallel.modes import JobPlacement
from stepsim.workload.plan import Plan


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Degrees of up to a few hundred NPUs, expert groups of any size that divides a stage."""
    tp, cp, dp, pp = (draw(st.integers(1, top)) for top in (8, 4, 12, 4))
    ranks = tp * cp * dp
    expert_tp = draw(st.sampled_from([size for size in range(1, ranks + 1) if ranks % size == 0]))
    groups = ranks // expert_tp
    return Plan(
        tp=tp,
        cp=cp,
        dp=dp,
        pp=pp,
        ep=draw(st.sampled_from([ep for ep in range(1, groups + 1) if groups % ep == 0])),
        expert_tp=expert_tp,
        rank_order=draw(st.sampled_from(RankOrder)),
    )


def racks_of_groups(plan: Plan, group: Group, size: int) -> np.ndarray:
    """In how many racks of `size` each group of a kind lies: counted member by member."""
    npus = plan.npus_of(plan.groups(group))
    return np.array([len(set((row // size).tolist())) for row in npus])


@given(plan=plans())
def test_blocks_hold_whole_groups(plan: Plan) -> None:
    for group in SIZES_OF_GROUPS:
        assert racks_of_groups(plan, group, plan.npu_block(group)).max() == 1


@given(plan=plans(), size=st.integers(2, 72), kind=st.sampled_from(["switch", "rail"]))
def test_groups_that_fit_together_are_whole(plan: Plan, size: int, kind: str) -> None:
    """Where all blocks of groups nest in a number that fits in a rack, no group leaves one."""
    unit = int(np.lcm.reduce([plan.npu_block(group) for group in SIZES_OF_GROUPS]))
    assume(unit <= size)
    network = place(racks(size, kind=DimensionKind(kind)), plan, JobPlacement.ALIGNED)
    for group in SIZES_OF_GROUPS:
        assert racks_of_groups(plan, group, network.node_size).max() == 1


@given(plan=plans(), size=st.integers(2, 72), used=st.integers(1, 72))
def test_a_group_whose_block_divides_what_is_used_is_whole(
    plan: Plan, size: int, used: int
) -> None:
    network = place(racks(size, used=min(used, size)), plan, JobPlacement.ALIGNED)
    for group in SIZES_OF_GROUPS:
        if network.node_size % plan.npu_block(group) == 0:
            assert racks_of_groups(plan, group, network.node_size).max() == 1


@given(plan=plans(), size=st.integers(2, 72))
def test_idle_npus_are_no_npus_of_the_job(plan: Plan, size: int) -> None:
    """Racks hold the job, the last one maybe in part; their links are as fast as they were."""
    topology = racks(size)
    network = place(topology, plan, JobPlacement.ALIGNED)
    packed = place(topology, plan, JobPlacement.PACKED)
    assert packed.node_size == size
    if plan.npus <= size:
        assert network.node_size == size
    else:
        assert plan.npus <= network.npus < plan.npus + network.node_size
    assert network.link_classes == topology.link_classes


@given(plan=plans(), size=st.integers(2, 72))
def test_a_crossing_is_told_where_another_placement_has_none(plan: Plan, size: int) -> None:
    """Packed racks that cut groups are told of, exactly if aligned ones cut fewer kinds."""
    topology = racks(size)

    def cut(placement: JobPlacement, order: RankOrder) -> set[Group]:
        other = replace(plan, rank_order=order)
        size_of = place(topology, other, placement).node_size
        found = {g for g in SIZES_OF_GROUPS if racks_of_groups(other, g, size_of).max() > 1}
        return found - {Group.ETP} if plan.expert_degree == plan.tp else found

    network = place(topology, plan, JobPlacement.PACKED)
    told = find_crossing(topology, network, plan, JobPlacement.PACKED)
    now = cut(JobPlacement.PACKED, plan.rank_order)
    better = [
        order
        for order in (plan.rank_order, RankOrder.TP_DP_PP)
        if cut(JobPlacement.ALIGNED, order) < now
    ]
    assert bool(told) == bool(now)
    if told:
        assert set(told.groups) == now
        assert told.is_avoidable == bool(better)
        assert told.other_order is (better[0] if better else plan.rank_order)


@pytest.mark.parametrize(
    ("npus", "degrees", "taken"),
    [
        (72, {"dp": 72}, 72),  # fits in one rack
        (256, {"dp": 256, "ep": 32}, 64),
        (256, {"dp": 256, "ep": 64}, 64),
        (144, {"dp": 144, "ep": 72}, 72),  # more than is usual, since groups are whole then only
        (288, {"dp": 288, "ep": 36}, 36),  # 36 divides 72, but of 64 it is all that is whole
        (120, {"tp": 5, "dp": 24}, 60),
        (512, {"tp": 8, "dp": 64, "ep": 128}, 64),  # no rack holds 128
    ],
)
def test_npus_taken_of_a_rack_of_72(npus: int, degrees: dict[str, Any], taken: int) -> None:
    plan = Plan(**degrees, expert_tp=1)
    assert plan.npus == npus
    for name in ("gb200-nvl72", "gb300-nvl72"):
        network = place(topology_of(name), plan, JobPlacement.ALIGNED)
        assert network.node_size == taken
        assert network.npus == -(-npus // taken) * taken
