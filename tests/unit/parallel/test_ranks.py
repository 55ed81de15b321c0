"""Rank order and process groups, on cases small enough to write by hand."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import few
from hypothesis import given, strategies as st
from jobs import short_job
from pairs import in_turn

from stepsim import simulate
from stepsim.base.axes import Group, RankOrder
from stepsim.base.errors import PlanError
from stepsim.workload.plan import Plan


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    tp, dp, pp = (draw(st.integers(1, 6)) for _ in range(3))
    cp = draw(st.integers(1, 3))
    ranks = tp * cp * dp
    ep = draw(st.sampled_from([n for n in range(1, ranks + 1) if ranks % n == 0]))
    shared: list[int | None] = [n for n in range(1, ranks + 1) if (ranks // ep) % n == 0]
    shared += [None] if cp * dp % ep == 0 else []
    shards = [n for n in range(1, cp * dp + 1) if (cp * dp) % n == 0]
    return Plan(
        tp=tp,
        cp=cp,
        dp=dp,
        pp=pp,
        ep=ep,
        expert_tp=draw(st.sampled_from(shared)),
        zero=3,
        shard_ranks=draw(st.sampled_from(shards)),
    )


def listed(plan: Plan, group: Group) -> list[list[int]]:
    return sorted(plan.groups(group).tolist())


def coordinates(plan: Plan, rank: int) -> tuple[int, int, int]:
    """Its tp index, that of its replica and its stage, by the groups that it is in."""
    return (
        next(group.index(rank) for group in listed(plan, Group.TP) if rank in group),
        rank % plan.stage_ranks // plan.tp,
        plan.stage_of(rank),
    )


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (Group.EP, [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]),
        (Group.DP_EP, [[0, 4], [1, 5], [2, 6], [3, 7], [8, 12], [9, 13], [10, 14], [11, 15]]),
        (Group.STAGE, [list(range(8)), list(range(8, 16))]),
    ],
)
def test_groups_of_tp2_dp4_pp2_ep2(group: Group, expected: list[list[int]]) -> None:
    assert listed(Plan(tp=2, dp=4, pp=2, ep=2), group) == expected


@pytest.mark.parametrize(
    ("ep", "expert_groups", "across"),
    [
        (2, [[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (4, [[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 4], [1, 5], [2, 6], [3, 7]]),
    ],
)
def test_folded_expert_groups_take_consecutive_ranks(
    ep: int, expert_groups: list[list[int]], across: list[list[int]]
) -> None:
    plan = Plan(tp=4, dp=2, ep=ep, expert_tp=1)
    assert listed(plan, Group.EP) == expert_groups
    assert listed(plan, Group.DP_EP) == across


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (Group.CP, [[0, 2], [1, 3], [4, 6], [5, 7]]),
        (Group.DP, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        (Group.DP_CP, [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (Group.EP, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (Group.DP_EP, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        (Group.ETP, [[rank] for rank in range(8)]),
        (Group.DP_FSDP, [[0, 4], [1, 5], [2, 6], [3, 7]]),
    ],
)
def test_groups_of_tp2_cp2_dp2_with_experts_spread_over_all(
    group: Group, expected: list[list[int]]
) -> None:
    plan = Plan(tp=2, cp=2, dp=2, ep=4, expert_tp=1, zero=3, shard_ranks=2)
    assert listed(plan, group) == expected


@given(plans(), st.sampled_from(Group))
def test_every_kind_of_group_partitions_the_ranks(plan: Plan, group: Group) -> None:
    groups = plan.groups(group)
    assert sorted(groups.ravel().tolist()) == list(range(plan.npus))
    assert groups.shape[1] == plan.group_size(group)
    assert np.all(np.diff(groups, axis=1) > 0)


@given(plans(), st.sampled_from([g for g in Group if g is not Group.PP]))
def test_groups_other_than_pp_lie_inside_one_stage(plan: Plan, group: Group) -> None:
    stages = plan.groups(group) // plan.stage_ranks
    assert np.all(stages == stages[:, :1])


@given(plans())
def test_ranks_of_an_expert_group_hold_different_experts(plan: Plan) -> None:
    across = {r: i for i, ranks in enumerate(listed(plan, Group.DP_EP)) for r in ranks}
    for ranks in listed(plan, Group.EP):
        assert len({across[rank] for rank in ranks}) == plan.ep


@given(plans())
def test_coordinates_are_the_digits_of_the_rank(plan: Plan) -> None:
    for rank in range(plan.npus):
        tp, dp, pp = coordinates(plan, rank)
        assert (tp < plan.tp, dp < plan.replicas, pp < plan.pp) == (True, True, True)
        assert rank == tp + plan.tp * (dp + plan.replicas * pp)
        assert plan.stage_of(rank) == pp


@pytest.mark.parametrize("field", ["tp", "cp", "dp", "pp", "ep", "shard_ranks", "microbatches"])
@pytest.mark.parametrize("value", [0, -2])
def test_degrees_below_one_are_refused(field: str, value: int) -> None:
    degrees: dict[str, Any] = {field: value}
    with pytest.raises(PlanError, match=f"{field} is {value}"):
        Plan(**degrees)


@pytest.mark.parametrize(("tp", "dp", "ep"), [(2, 4, 3), (2, 4, 16), (1, 1, 2)])
def test_ep_must_divide_dp_or_folded_the_stage(tp: int, dp: int, ep: int) -> None:
    said = f"ep x expert_tp is {ep}: expected a divisor of tp x cp x dp, {tp * dp}$"
    for expert_tp in (None, 1):
        with pytest.raises(PlanError, match=said):
            Plan(tp=tp, dp=dp, ep=ep, expert_tp=expert_tp)


def test_expert_groups_do_not_jump_between_layouts_with_the_number_of_npus(moe: Path) -> None:
    """ep 4 and tp 8: dp is 2, 4, 5, 8 and 9, and the rule is the same for all."""

    def exchange(npus: int, layout: str) -> int:
        report = simulate(moe, "hgx-h100", npus=npus, ep_layout=layout).report
        assert report.ep_layout == layout
        return max(use.time_ps for use in report.comms if use.kind == "all_to_all")

    folded = {exchange(npus, "folded") for npus in (64, 128, 160, 256, 288)}
    inside = {exchange(npus, "dp") for npus in (128, 256)}
    assert (len(folded), len(inside)) == (1, 1)
    assert 3 * max(folded) < min(inside)  # within a node, and between nodes
    for npus in (64, 160, 288):
        with pytest.raises(PlanError, match=r"must divide dp \(\d\), or be folded"):
            exchange(npus, "dp")


def test_a_layout_without_experts_is_named(workloads: Path) -> None:
    report = simulate(workloads / "gpt_tp4.txt", "ideal", ep_layout="folded").report
    assert "ep_layout folded has no effect: ep is 1" in report.warnings


def test_shards_and_parts_of_experts_must_divide_what_they_share() -> None:
    with pytest.raises(PlanError, match=r"shard_ranks is 3: expected a divisor of dp x cp, 8"):
        Plan(cp=2, dp=4, shard_ranks=3)
    with pytest.raises(PlanError, match="ep x expert_tp is 6: expected a divisor of"):
        Plan(tp=2, dp=4, ep=2, expert_tp=3)


@pytest.mark.parametrize("order", RankOrder)
def test_every_rank_order_fills_the_npus_and_its_first_axis_runs_fastest(order: RankOrder) -> None:
    plan = Plan(tp=2, dp=3, pp=4, rank_order=order)
    ranks = np.arange(24, dtype=np.int64)
    npus = plan.npus_of(ranks)
    assert sorted(npus.tolist()) == ranks.tolist()
    index = {"tp": ranks % 2, "dp": ranks // 2 % 3, "pp": ranks // 6}
    strides = {"tp": 2, "dp": 3, "pp": 4}
    fastest, middle, slowest = order.split("-")
    expected = index[fastest] + strides[fastest] * (
        index[middle] + strides[middle] * index[slowest]
    )
    assert npus.tolist() == expected.tolist()
    assert (Plan(tp=2, dp=3, pp=4).npus_of(ranks) == ranks).all()


ORDERS, CONTENTIONS = ("pp-tp-dp", "dp-tp-pp"), ("none", "fair")


@pytest.mark.parametrize(
    ("order", "contention"),
    few(product(ORDERS, CONTENTIONS), *in_turn(ORDERS, CONTENTIONS)),
)
def test_rank_orders_move_traffic_and_fold(order: str, contention: str) -> None:
    """With tensor parallelism across nodes its collectives go over the fabric."""
    moe = short_job("moe_128", layers=5)
    usual = simulate(moe, "hgx-h100", contention=contention)
    other, every = (
        simulate(moe, "hgx-h100", rank_order=order, contention=contention, fold_ranks=fold)
        for fold in (True, False)
    )
    assert other.report.step_time_ps == every.report.step_time_ps != usual.report.step_time_ps
    assert sum(link.total_bytes for link in other.report.links) > 0
