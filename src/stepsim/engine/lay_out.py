"""Programs made ready to run: flat lists of tasks with durations, per actor.

A task list that nothing outside its rank's class can delay is one task whose inner times are known
(coalesced); any other is laid out task by task.
"""

from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Floats
from stepsim.base.errors import SimulationError
from stepsim.base.records import dataclass
from stepsim.base.units import MAX_INT64
from stepsim.engine.fold import Actors
from stepsim.engine.prices import Prices
from stepsim.engine.shared_links import Contention
from stepsim.graph.actions import Task, TaskKind, TaskList
from stepsim.graph.build import TaskGraph, Use
from stepsim.graph.programs import Program, Segment, SegmentKind
from stepsim.network.flights import Transfer
from stepsim.parallel.ranks import ParallelPlan
from stepsim.workload.rows import Group

Times = NDArray[np.int64]


_TOO_LONG = "the step exceeds 2**63 - 1 ps (106 days): it cannot be simulated"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskListTimes:
    """A task list run without interruption: start and end of its tasks from its start, in ps."""

    start: Times
    end: Times
    duration_ps: int


def task_list_times(task_list: TaskList, task_ps: Callable[[Task], int]) -> TaskListTimes:
    """Earliest times of a task list's tasks; `task_ps` says how long each takes.

    Raises SimulationError when the times do not fit 64 bits.
    """
    start: list[int] = []
    end: list[int] = []
    for task in task_list.tasks:
        begin = max((end[i] for i in task.after), default=0)
        start.append(begin)
        end.append(begin + task_ps(task))
    if max(end) > MAX_INT64:
        raise SimulationError(_TOO_LONG)
    return TaskListTimes(
        start=np.array(start, np.int64), end=np.array(end, np.int64), duration_ps=max(end)
    )


@dataclass(frozen=True, kw_only=True)
class LaidOut:
    """A program as the engine runs it: task i takes `duration_ps[i]` after all of `after[i]`.

    `segment[i]` is its segment and `inner[i]` its task within the segment's task list, -1 where the
    segment is one task; then `times[task_list]` holds the times inside, in ps. `group[i]` is the
    group that must meet before the task starts, None if it is the rank's own. `slowed[i]` names
    the communication where others may slow the task; its duration is then the shortest. `first[s]`
    is the first task of segment s.
    """

    program: Program
    segment: list[int]
    inner: list[int]
    duration_ps: list[int]
    group: list[Group | None]
    slowed: list[Use | None]
    after: list[tuple[int, ...]]
    first: list[int]
    times: dict[int, TaskListTimes]

    @cached_property
    def followers(self) -> list[tuple[int, ...]]:
        """Tasks that wait for each task."""
        found: list[list[int]] = [[] for _ in self.after]
        for task, before in enumerate(self.after):
            for each in before:
                found[each].append(task)
        return [tuple(tasks) for tasks in found]


Meeting = tuple[Group, int, int, int]
"""A transfer: group kind, group (or sending actor), segment and task of the task list."""


def meeting(
    laid: LaidOut, task: int, group: Group, actor: int, actors: Actors, plan: ParallelPlan
) -> tuple[Meeting, int]:
    """The transfer that a task of an actor takes part in, and how many members it has."""
    number = laid.segment[task]
    if group is Group.PP:
        segment = laid.program.segments[number]
        if segment.kind is SegmentKind.SEND:
            return (group, actor, number, 0), 2
        shift = (segment.peer_stage - laid.program.stage) * plan.stage_ranks
        sender = int(actors.actor_of[actors.ranks[actor] + shift])
        return (group, sender, segment.peer, 0), 2
    where = int(actors.groups[group][actor])
    return (group, where, number, laid.inner[task]), int(actors.sizes[group][where])


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """What the engine runs: the program of each actor, and its transfers on shared links."""

    programs: list[LaidOut]
    transfers: list[dict[Use, Transfer]]


def lay_out(
    graph: TaskGraph,
    actors: Actors,
    prices: Prices,
    slow: Floats | None = None,
    contention: Contention | None = None,
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
    times: dict[tuple[float, ...], TaskListTimes] = {}
    used = [graph.uses(stage) for stage in range(len(graph.programs))]
    runnable = Runnable(programs=[], transfers=[])
    for actor in range(len(actors)):
        stage = int(actors.stages[actor])
        rank = int(actors.ranks[actor])
        alone = frozenset(
            kind for kind, group in actors.groups.items() if actors.sizes[kind][group[actor]] == 1
        )
        costs = {use: _cost(use, rank, prices, contention) for use in used[stage]}
        transfers = {u: cost for u, cost in costs.items() if not isinstance(cost, int)}
        paid = {u: cost if isinstance(cost, int) else cost.duration_ps for u, cost in costs.items()}
        factor = 1.0 if slow is None else float(slow[rank])
        looks = [_look(use, rank, prices) for use in used[stage]] if by_look else []
        key = stage, factor, alone, *paid.values(), *transfers, *looks
        if key not in known:
            laying_out = _LayingOut(
                graph=graph,
                factor=factor,
                paid=paid,
                slowed=frozenset(transfers),
                alone=alone,
                coalesce=coalesce,
                known=times,
            )
            known[key] = laying_out.run(stage)
        runnable.programs.append(known[key])
        runnable.transfers.append(transfers)
    return runnable


def _look(use: Use, rank: int, prices: Prices) -> int:
    patterns = prices.patterns(use)
    return int(patterns.pattern[patterns.group_of[rank]])


def _cost(use: Use, rank: int, prices: Prices, contention: Contention | None) -> int | Transfer:
    patterns = prices.patterns(use)
    group = int(patterns.group_of[rank])
    if contention is None:
        return prices.duration_ps(use.comm, patterns, group)
    return contention.cost(use, group)


@dataclass(slots=True, kw_only=True)
class _LayingOut:
    """Lays one program out; `paid` are the prices, `alone` the groups with nobody to wait for.

    `factor` slows compute, `slowed` are the communications that others may slow, `known` the times
    of task lists at such a factor and the prices of their collectives.
    """

    graph: TaskGraph
    factor: float
    paid: dict[Use, int]
    slowed: frozenset[Use]
    alone: frozenset[Group]
    coalesce: bool
    known: dict[tuple[float, ...], TaskListTimes]
    collectives: dict[int, Use] = field(init=False)
    messages: dict[tuple[int, bool], tuple[int, Use | None]] = field(init=False)

    def __post_init__(self) -> None:
        self.collectives = {use.comm: use for use in self.paid if use.peer_stage < 0}
        self.messages = {
            (use.peer_stage, use.sends): (paid, use if use in self.slowed else None)
            for use, paid in self.paid.items()
            if use.peer_stage >= 0
        }

    def run(self, stage: int) -> LaidOut:
        program = self.graph.programs[stage]
        laid = LaidOut(
            program=program,
            segment=[],
            inner=[],
            duration_ps=[],
            group=[],
            slowed=[],
            after=[],
            first=[],
            times={},
        )
        ends: list[tuple[int, ...]] = []
        for number, segment in enumerate(program.segments):
            waits = [ends[earlier] for earlier in segment.after]
            before = waits[0] if len(waits) == 1 else tuple(chain.from_iterable(waits))
            laid.first.append(len(laid.after))
            if segment.task_list < 0:
                sends = segment.kind is SegmentKind.SEND
                duration_ps, slowed = self.messages[segment.peer_stage, sends]
                _add(laid, number, -1, duration_ps, before, Group.PP, slowed)
            elif segment.task_list in laid.times or self._is_private(segment):
                times = laid.times.get(segment.task_list) or self._times(segment.task_list)
                laid.times[segment.task_list] = times
                _add(laid, number, -1, times.duration_ps, before)
            else:
                ends.append(self._add_tasks(laid, number, segment.task_list, before))
                continue
            ends.append((laid.first[-1],))
        return laid

    def _times(self, task_list: int) -> TaskListTimes:
        tasks = self.graph.task_lists[task_list].tasks
        key = task_list, self.factor, *(self._task_ps(task) for task in tasks if task.comm >= 0)
        if key not in self.known:
            self.known[key] = task_list_times(self.graph.task_lists[task_list], self._task_ps)
        return self.known[key]

    def _task_ps(self, task: Task) -> int:
        if task.comm >= 0:
            return self.paid[self.collectives[task.comm]]
        if task.kind is TaskKind.COMPUTE and self.factor != 1:
            return round(task.duration_ps * self.factor)
        return task.duration_ps

    def _is_private(self, segment: Segment) -> bool:
        """Whether nobody outside the actor can delay or slow the task list's collectives.

        Reductions stay apart: each of them may be waited for beside transfers of other kinds.
        """
        if not self.coalesce or segment.kind is SegmentKind.REDUCTION:
            return False
        tasks = self.graph.task_lists[segment.task_list].tasks
        comms = {task.comm for task in tasks} - {-1}
        return all(
            self.graph.comms[comm].group in self.alone and self.collectives[comm] not in self.slowed
            for comm in comms
        )

    def _add_tasks(
        self, laid: LaidOut, number: int, task_list: int, before: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add every task of a task list; returns those that nothing in it waits for."""
        base = len(laid.after)
        tasks = self.graph.task_lists[task_list].tasks
        for inner, task in enumerate(tasks):
            after = tuple(base + i for i in task.after) or before
            if task.comm >= 0:
                group = self.graph.comms[task.comm].group
                use = self.collectives[task.comm]
                slowed = use if use in self.slowed else None
                _add(laid, number, inner, self.paid[use], after, group, slowed)
            else:
                _add(laid, number, inner, self._task_ps(task), after)
        waited_for = {i for task in tasks for i in task.after}
        return tuple(base + i for i in range(len(tasks)) if i not in waited_for)


def _add(
    laid: LaidOut,
    segment: int,
    inner: int,
    duration_ps: int,
    after: tuple[int, ...],
    group: Group | None = None,
    slowed: Use | None = None,
) -> None:
    laid.segment.append(segment)
    laid.inner.append(inner)
    laid.duration_ps.append(duration_ps)
    laid.after.append(after)
    laid.group.append(group)
    laid.slowed.append(slowed)
