"""The flat table: which tasks, how long, after what; worked out by hand."""

import numpy as np
import pytest
from helpers import collective, line_of_npus, row

from stepsim.base.axes import Group
from stepsim.base.errors import SimulationError
from stepsim.base.structs import replace
from stepsim.base.units import MAX_INT64
from stepsim.core.actions import NO_HOST, CommNumbers, forward_tasks
from stepsim.core.flat import GROUPS, Tasks, lay_out, list_times
from stepsim.core.write import TaskGraph, write_graph
from stepsim.network.fold import every_rank, fold
from stepsim.network.prices import Prices
from stepsim.options import StepOptions
from stepsim.parallel.schedules import build
from stepsim.parallel.stages import Stages, StageWork
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp, Row, Work

HOP = 10
TP = collective(8, Group.TP)
"""Two steps of one hop each among two ranks."""


def reducing(*comms: CommOp) -> Row:
    """5 ps forward, its collectives, 7 ps backward."""
    return replace(row(5, 7), forward=Work(compute_ps=5, comms=comms))


def graph_of(plan: Plan, *rows: Row) -> TaskGraph:
    works = (StageWork(chunks=((rows,),), per_step=()),) * plan.pp
    stages = Stages(works=works, pp_comm_bytes=8, warnings=())
    schedule = build("1f1b", ranks=plan.pp, microbatches=plan.microbatches)
    return write_graph(stages, schedule, plan, StepOptions())


def laid_out(graph: TaskGraph, *, folded: bool = True, slow: float = 1.0) -> list[Tasks]:
    """Rank 0 is slowed by a factor."""
    prices = Prices(plan=graph.plan, topology=line_of_npus(graph.plan.npus, HOP), comms=graph.comms)
    factors = np.ones(graph.plan.npus)
    factors[0] = slow
    actors = fold(prices, graph.uses, factors) if folded else every_rank(prices)
    return lay_out(graph, actors, prices, factors)[0]


ALONE = Plan(tp=2)


def test_an_action_that_nobody_can_delay_is_one_task() -> None:
    """Both ranks of the group are one actor: forward 5 + 20 and backward 7."""
    (laid,) = laid_out(graph_of(ALONE, reducing(TP)))
    assert laid.duration_ps.tolist() == [5 + 2 * HOP, 7]
    assert laid.inner.tolist() == [-1, -1]
    assert laid.after.tolist() == [(), (0,)]
    assert laid.group.tolist() == [-1, -1]


def test_an_action_whose_collective_joins_actors_is_laid_out_task_by_task() -> None:
    """Compute, then the collective: the backward, which meets nobody, stays one task."""
    programs = laid_out(graph_of(ALONE, reducing(TP)), folded=False)
    assert programs[0] is programs[1]
    assert programs[0].duration_ps.tolist() == [5, 2 * HOP, 7]
    assert programs[0].inner.tolist() == [0, 1, -1]
    assert programs[0].after.tolist() == [(), (0,), (1,)]
    assert programs[0].group.tolist() == [-1, GROUPS.index(Group.TP), -1]
    assert programs[0].first.tolist() == [0, 2]


def test_what_waits_for_an_action_waits_for_all_of_it_that_nothing_in_it_waits_for() -> None:
    """A lagging collective and the row beside it both end the forward."""
    rows = replace(reducing(TP), forward_lag=5), row(9, 0)
    programs = laid_out(graph_of(ALONE, *rows), folded=False)
    forward = [i for i, segment in enumerate(programs[0].segment) if segment == 0]
    assert programs[0].after[forward[-1] + 1] == [1, 2]


def test_a_slow_rank_computes_longer_by_its_factor_rounded() -> None:
    programs = laid_out(graph_of(ALONE, reducing(TP)), slow=1.5)
    assert [laid.duration_ps.tolist() for laid in programs] == [
        [round(5 * 1.5), 2 * HOP, round(7 * 1.5)],
        [5, 2 * HOP, 7],
    ]


def test_microbatches_share_the_times_of_their_actions() -> None:
    (laid,) = laid_out(graph_of(Plan(tp=2, microbatches=3), reducing(TP)))
    assert len(laid.times) == 2
    assert laid.duration_ps.tolist() == [25, 7] * 3
    assert sorted({times.duration_ps for times in laid.times.values()}) == [7, 25]


def test_times_that_do_not_fit_64_bits_are_refused() -> None:
    rows = [row(MAX_INT64 // 2 + 1, 0)] * 2
    task_list = forward_tasks(rows, CommNumbers(alone=ALONE.alone), NO_HOST)
    with pytest.raises(SimulationError, match="106 days"):
        list_times(task_list, [task.duration_ps for task in task_list.tasks])
