"""Programs made ready to run: flat lists of tasks with durations, per actor.

How it is laid out is known from who meets whom (`layouts`); here come the prices.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats
from stepsim.base.errors import SimulationError
from stepsim.base.units import MAX_INT64
from stepsim.engine.layouts import LaidOut, Met, TaskListTimes, layout_of
from stepsim.graph.actions import Task, TaskList
from stepsim.graph.build import TaskGraph
from stepsim.graph.programs import Program
from stepsim.network.fold import Actors
from stepsim.network.prices import Prices, Use
from stepsim.parallel.ranks import ParallelPlan
from stepsim.tables.ends import ends
from stepsim.tables.spans import TaskKind
from stepsim.tables.waits import listed_waits

if TYPE_CHECKING:
    from stepsim.network.contention import Contention
    from stepsim.network.flights import Transfer

_TOO_LONG = "the step exceeds 2**63 - 1 ps (106 days): it cannot be simulated"


def task_list_times(task_list: TaskList, task_ps: Callable[[Task], int]) -> TaskListTimes:
    """Earliest times of a task list's tasks; `task_ps` says how long each takes.

    Raises SimulationError when the times do not fit 64 bits.
    """
    try:
        duration_ps = np.array([task_ps(task) for task in task_list.tasks], dtype=np.int64)
        end = ends(listed_waits(task.after for task in task_list.tasks), duration_ps)
    except OverflowError:
        raise SimulationError(_TOO_LONG) from None
    return TaskListTimes(start=end - duration_ps, end=end, duration_ps=int(end.max()))


def far_actor(actor: int, stage: int, actors: Actors, plan: ParallelPlan) -> int:
    """The actor at the other end of an actor's messages with a stage."""
    shift = (stage - int(actors.stages[actor])) * plan.stage_ranks
    return actors.of(int(actors.ranks[actor]) + shift)


class Runnable(Struct, frozen=True, kw_only=True):
    """What the engine runs: the program of each actor, and its transfers on shared links."""

    programs: list[LaidOut]
    transfers: "list[dict[Use, Transfer]]"


def lay_out(
    graph: TaskGraph,
    actors: Actors,
    prices: Prices,
    slow: Floats | None = None,
    contention: "Contention | None" = None,
    *,
    by_look: bool = False,
    coalesce: bool = True,
) -> Runnable:
    """The laid-out program of every actor; actors that run the same at the same prices share one.

    With `by_look` only actors whose groups also lie alike do, so that they share it at all prices.

    `slow` are factors on the ranks' compute times. A task list is coalesced when every group of its
    collectives holds this actor alone and, with `contention`, nothing else crosses their links;
    none is without `coalesce`.
    """
    known: dict[tuple[object, ...], LaidOut] = {}
    runnable = Runnable(programs=[], transfers=[])
    for actor in range(len(actors)):
        program = graph.programs[int(actors.stages[actor])]
        rank, uses = int(actors.ranks[actor]), program.uses
        costs = [_cost(use, rank, prices, contention) for use in uses]
        paid = tuple(cost if isinstance(cost, int) else cost.duration_ps for cost in costs)
        transfers = {
            u: each for u, each in zip(uses, costs, strict=True) if not isinstance(each, int)
        }
        runnable.transfers.append(transfers)
        alone = {kind for kind, of in actors.groups.items() if actors.sizes[kind][of[actor]] == 1}
        groups = (graph.comms[use.comm].group for use in uses)
        met = tuple(
            Met(group, group in alone, use in transfers)
            for use, group in zip(uses, groups, strict=True)
        )
        factor = 1.0 if slow is None else float(slow[rank])
        looks = [_look(use, rank, prices) for use in uses] if by_look else []
        key = id(program), factor, met, paid, *looks
        if key not in known:
            known[key] = _laid_out(program, met, factor, paid, coalesce=coalesce)
        runnable.programs.append(known[key])
    return runnable


def _look(use: Use, rank: int, prices: Prices) -> int:
    return prices.patterns(use).look(rank)


def _cost(use: Use, rank: int, prices: Prices, contention: "Contention | None") -> "int | Transfer":
    patterns = prices.patterns(use)
    group = patterns.row(rank)
    if contention is None:
        return prices.duration_ps(use.comm, patterns, group)
    return contention.cost(use, group)


def _laid_out(
    program: Program,
    met: tuple[Met, ...],
    factor: float,
    paid: tuple[int, ...],
    *,
    coalesce: bool,
) -> LaidOut:
    """A program at such a factor on compute, whose uses take what is `paid` and are `met` so."""
    layout = layout_of(program, met, coalesce)
    every = zip(program.uses, paid, strict=True)
    prices = {use.comm: each for use, each in every if use.peer_stage < 0}
    times: dict[int, TaskListTimes] = {}
    row_ps = []
    for (look, inner), use in zip(layout.rows, layout.use_of_row, strict=True):
        number = look.task_list
        if use >= 0:
            row_ps.append(paid[use])
        elif inner >= 0:
            row_ps.append(_own_ps(program.lists[number].tasks[inner], factor))
        else:
            if number not in times:
                mine = program.lists[number]
                times[number] = _times_at(mine, factor, tuple(prices[comm] for comm in mine.comms))
            row_ps.append(times[number].duration_ps)
    if any(each > MAX_INT64 for each in row_ps):
        raise SimulationError(_TOO_LONG)
    return layout.make(program=program, row_ps=np.array(row_ps, dtype=np.int64), times=times)


def _own_ps(task: Task, factor: float) -> int:
    """How long a task takes that is no communication."""
    slows = task.kind is TaskKind.COMPUTE and factor != 1
    return round(task.duration_ps * factor) if slows else task.duration_ps


def _times_at(task_list: TaskList, factor: float, paid: tuple[int, ...]) -> TaskListTimes:
    """Times of a task list at such a factor, whose communications take what is `paid`."""
    prices = dict(zip(task_list.comms, paid, strict=True))
    return task_list_times(
        task_list, lambda task: prices[task.comm] if task.comm >= 0 else _own_ps(task, factor)
    )
