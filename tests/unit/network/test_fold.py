"""Which ranks behave alike, worked out by hand from who meets whom."""

from collections.abc import Sequence

import numpy as np
import pytest
from helpers import collective, prices_of, row, two_levels

from stepsim.base.axes import Group
from stepsim.base.structs import replace
from stepsim.core.write import TaskGraph, write_graph
from stepsim.network.fold import Actors, every_rank, fold
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.schedules import build
from stepsim.parallel.stages import Stages, StageWork
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp, Work


def graph_of(plan: Plan, *comms: CommOp) -> TaskGraph:
    """Every stage runs one row with these forward collectives."""
    rows = ((replace(row(5, 7), forward=Work(compute_ps=5, comms=comms)),),)
    works = (StageWork(chunks=(rows,), per_step=()),) * plan.pp
    stages = Stages(works=works, pp_comm_bytes=8, warnings=())
    schedule = build("1f1b", ranks=plan.pp, microbatches=plan.microbatches)
    return write_graph(stages, schedule, plan, StepOptions())


def classes(
    graph: TaskGraph, *, slow: Sequence[int] = (), topology: Topology | None = None
) -> list[list[int]]:
    """Ranks of every actor; ranks in `slow` compute half as fast."""
    factors = np.ones(graph.plan.npus)
    factors[list(slow)] = 2.0
    plain = prices_of(graph, 10)
    prices = replace(plain, topology=topology or plain.topology)
    actors = fold(prices, graph.uses, factors)
    found = [np.flatnonzero(actors.actor_of == a).tolist() for a in range(len(actors))]
    assert [len(each) for each in found] == actors.counts.tolist()
    assert [each[0] for each in found] == actors.ranks.tolist()
    return found


TP, DP = collective(8, Group.TP), collective(8, Group.DP)
GRID = Plan(tp=2, dp=3)


def test_ranks_of_a_stage_behave_alike_where_nothing_tells_them_apart() -> None:
    assert classes(graph_of(Plan(tp=2, dp=3, pp=2), TP, DP)) == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9, 10, 11],
    ]


def test_a_slow_rank_is_told_apart_and_so_are_those_that_meet_it() -> None:
    """Ranks 0 1, 2 3, 4 5 are the tp groups: only 1 meets the slow 0."""
    assert classes(graph_of(GRID, TP), slow=[0]) == [[0], [1], [2, 3, 4, 5]]


def test_what_meets_those_that_meet_it_is_told_apart_too() -> None:
    """With dp groups 0 2 4 and 1 3 5: 2 and 4 meet 0; 3 and 5 meet 1, which meets 0."""
    assert classes(graph_of(GRID, TP, DP), slow=[0]) == [[0], [1], [2, 4], [3, 5]]


def test_ranks_that_meet_nobody_are_only_slow_or_not() -> None:
    assert classes(graph_of(GRID), slow=[1, 4]) == [[0, 2, 3, 5], [1, 4]]


def test_a_slow_rank_is_felt_along_its_pipeline_alone() -> None:
    """Two stages of three ranks: rank 4 sends to and receives from rank 1."""
    plan = Plan(dp=3, pp=2)
    assert classes(graph_of(plan), slow=[1]) == [[0, 2], [1], [3, 5], [4]]


def test_groups_that_pay_other_prices_are_told_apart() -> None:
    """Groups of three over nodes of two: the ranks of the first and the second lie differently."""
    plan = Plan(tp=3, dp=2)
    assert classes(graph_of(plan, TP), topology=two_levels(nodes=3)) == [[0, 1, 2], [3, 4, 5]]
    assert classes(graph_of(plan, TP)) == [[0, 1, 2, 3, 4, 5]]


def actors_of(graph: TaskGraph, *, folded: bool) -> Actors:
    prices = prices_of(graph, 10)
    return fold(prices, graph.uses) if folded else every_rank(prices)


@pytest.mark.parametrize("folded", [True, False])
def test_groups_hold_the_actors_that_stand_for_their_members(folded: bool) -> None:
    """Folded, one actor meets itself; else three data-parallel groups of two."""
    graph = graph_of(Plan(tp=3, dp=2), DP)
    actors = actors_of(graph, folded=folded)
    assert len(actors) == (1 if folded else 6)
    assert actors.groups[Group.DP].tolist() == ([0] if folded else [0, 1, 2, 0, 1, 2])
    assert actors.sizes[Group.DP].tolist() == ([1] if folded else [2, 2, 2])
    assert int(actors.counts.sum()) == 6
