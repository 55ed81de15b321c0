"""Which groups of a job lie alike, and who their siblings are; worked out by hand."""

import numpy as np
from helpers import two_levels

from stepsim.base.axes import Group
from stepsim.network.prices import GroupPatterns, find_patterns
from stepsim.workload.plan import Plan


def patterns(plan: Plan, group: Group, *, nodes: int, siblings: bool = False) -> GroupPatterns:
    """Groups of a kind over nodes of two NPUs."""
    members = plan.groups(group)
    npus = np.sort(plan.npus_of(members), axis=1)
    stage_ranks = plan.stage_ranks if siblings else 0
    return find_patterns(members, npus, plan.npus, two_levels(nodes), stage_ranks)


def test_groups_within_nodes_are_one_look() -> None:
    found = patterns(Plan(tp=2, dp=2), Group.TP, nodes=2)
    assert found.pattern.tolist() == [0, 0]
    assert found.group_of.tolist() == [0, 0, 1, 1]
    assert [found.row(rank) for rank in range(4)] == [0, 0, 1, 1]
    assert found.looks(np.array([0, 3])).tolist() == [0, 0]
    assert found.beside == (None,)


def test_groups_that_break_nodes_otherwise_are_other_looks() -> None:
    """Threes over nodes of two: 0 1 2 and 6 7 8 begin a node, 3 4 5 and 9 10 11 end one."""
    found = patterns(Plan(tp=3, dp=4), Group.TP, nodes=6)
    first, second, third, fourth = found.pattern.tolist()
    assert first == third != second == fourth
    assert found.look(0) == found.look(8) != found.look(3)
    assert found.key(first) != found.key(second)


def test_rows_of_a_stage_are_together_by_look() -> None:
    plan = Plan(tp=3, dp=2, pp=2)
    found = patterns(plan, Group.TP, nodes=6)
    assert [each.tolist() for _, each in found.rows(0, plan.stage_ranks)] == [[0], [1]]
    assert [each.tolist() for _, each in found.rows(1, plan.stage_ranks)] == [[2], [3]]


def test_siblings_are_the_groups_of_a_stage_that_may_meet() -> None:
    """Data-parallel pairs 0 2 and 1 3 cross nodes together; tp pairs stay in nodes of their own."""
    plan = Plan(tp=2, dp=2)
    across, inside = (
        patterns(plan, group, nodes=2, siblings=True) for group in (Group.DP, Group.TP)
    )
    (crossing,), (staying,) = across.beside, inside.beside
    assert crossing is not None
    assert staying is not None
    assert crossing.siblings.count == 2
    assert staying.siblings.count == 1


def test_siblings_of_stages_that_lie_alike_are_known_once() -> None:
    """Stages of four ranks on two nodes each: the groups of stage 1 have those of stage 0."""
    plan = Plan(tp=2, dp=2, pp=2)
    found = patterns(plan, Group.DP, nodes=4, siblings=True)
    assert len(found.pattern) == 4
    assert len({found.look(rank) for rank in range(8)}) == 1
    assert len(found.beside) == 1


def test_every_rank_is_in_the_group_that_holds_it() -> None:
    for group in (Group.TP, Group.DP):
        found = patterns(Plan(tp=3, dp=2, pp=2), group, nodes=6, siblings=True)
        for rank in range(12):
            assert rank in found.members[found.row(rank)]
