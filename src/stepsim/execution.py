"""Programs made ready to run: flat lists of tasks with durations, per actor.

A fragment that nothing outside its rank's class can delay is one task whose inner times are known
(coalesced); any other is laid out task by task.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stepsim.fragments import Fragment
from stepsim.pricing import Prices
from stepsim.program import Program, Segment, SegmentKind
from stepsim.symmetry import Actors
from stepsim.taskgraph import TaskGraph
from stepsim.workload import Group

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FragmentTimes:
    """A fragment run without interruption: start and end of its tasks from its start, in ps."""

    start: Times
    end: Times
    duration_ps: int


def fragment_times(fragment: Fragment, comm_ps: Callable[[int], int]) -> FragmentTimes:
    """Earliest times of a fragment's tasks; `comm_ps` prices a communication number."""
    start: list[int] = []
    end: list[int] = []
    for task in fragment.tasks:
        begin = max((end[i] for i in task.after), default=0)
        start.append(begin)
        end.append(begin + (comm_ps(task.comm) if task.comm >= 0 else task.duration_ps))
    return FragmentTimes(
        start=np.array(start, np.int64), end=np.array(end, np.int64), duration_ps=max(end)
    )


@dataclass(frozen=True, kw_only=True)
class FlatProgram:
    """A program as the engine runs it: task i takes `duration_ps[i]` after all of `after[i]`.

    `segment[i]` is its segment and `inner[i]` its task within the segment's fragment, -1 where the
    segment is one task; then `times[fragment]` holds the times inside. `group[i]` is the group
    that must meet before the task starts, None if it is the rank's own. `first[s]` is the first
    task of segment s.
    """

    program: Program
    segment: list[int]
    inner: list[int]
    duration_ps: list[int]
    group: list[Group | None]
    after: list[tuple[int, ...]]
    first: list[int]
    times: dict[int, FragmentTimes]

    @cached_property
    def followers(self) -> list[tuple[int, ...]]:
        """Tasks that wait for each task."""
        found: list[list[int]] = [[] for _ in self.after]
        for task, before in enumerate(self.after):
            for each in before:
                found[each].append(task)
        return [tuple(tasks) for tasks in found]


def flatten(graph: TaskGraph, actors: Actors, prices: Prices) -> list[FlatProgram]:
    """Flat program of every actor; actors that run the same at the same prices share one.

    A fragment is coalesced when every group of its collectives holds this actor alone.
    """
    known: dict[tuple[object, ...], FlatProgram] = {}
    times: dict[tuple[int, ...], FragmentTimes] = {}
    used = [_comms_used(graph, program) for program in graph.programs]
    flats = []
    for actor in range(len(actors)):
        stage = int(actors.stages[actor])
        rank = int(actors.ranks[actor])
        alone = frozenset(
            kind for kind, group in actors.groups.items() if actors.sizes[kind][group[actor]] == 1
        )
        paid = {key: _price(prices, rank, stage, *key) for key in used[stage]}
        key = stage, alone, *paid.values()
        if key not in known:
            flattener = _Flattener(graph=graph, paid=paid, alone=alone, known=times)
            known[key] = flattener.run(graph.programs[stage])
        flats.append(known[key])
    return flats


_Use = tuple[int, int, bool]
"""A communication as a program uses it: its number, the peer's stage (-1), whether it sends."""


def _comms_used(graph: TaskGraph, program: Program) -> list[_Use]:
    fragments = {segment.fragment for segment in program.segments} - {-1}
    collectives = {(t.comm, -1, False) for f in fragments for t in graph.fragments[f].tasks}
    messages = {_message_use(s) for s in program.segments if s.peer >= 0}
    return sorted({use for use in collectives if use[0] >= 0} | messages)


def _message_use(segment: Segment) -> _Use:
    return segment.comm, segment.peer_stage, segment.kind is SegmentKind.SEND


def _price(prices: Prices, rank: int, stage: int, comm: int, peer: int, sends: bool) -> int:
    if peer < 0:
        patterns = prices.groups(prices.comms[comm].group)
    else:
        patterns = prices.pairs(*((stage, peer) if sends else (peer, stage)))
    return prices.duration_ps(comm, patterns, int(patterns.group_of[rank]))


@dataclass(slots=True, kw_only=True)
class _Flattener:
    """Lays one program out; `paid` are the prices, `alone` the groups with nobody to wait for.

    `known` are the times of fragments at the prices of their collectives.
    """

    graph: TaskGraph
    paid: dict[_Use, int]
    alone: frozenset[Group]
    known: dict[tuple[int, ...], FragmentTimes]

    def run(self, program: Program) -> FlatProgram:
        flat = FlatProgram(
            program=program,
            segment=[],
            inner=[],
            duration_ps=[],
            group=[],
            after=[],
            first=[],
            times={},
        )
        ends: list[tuple[int, ...]] = []
        for number, segment in enumerate(program.segments):
            before = tuple(end for earlier in segment.after for end in ends[earlier])
            flat.first.append(len(flat.after))
            if segment.fragment < 0:
                self._task(flat, number, -1, self.paid[_message_use(segment)], Group.PP, before)
            elif self._is_private(segment.fragment):
                times = flat.times.get(segment.fragment) or self._times(segment.fragment)
                flat.times[segment.fragment] = times
                self._task(flat, number, -1, times.duration_ps, None, before)
            else:
                ends.append(self._lay_out(flat, number, segment.fragment, before))
                continue
            ends.append((flat.first[-1],))
        return flat

    def _times(self, fragment: int) -> FragmentTimes:
        tasks = self.graph.fragments[fragment].tasks
        key = fragment, *(self._collective_ps(task.comm) for task in tasks if task.comm >= 0)
        if key not in self.known:
            self.known[key] = fragment_times(self.graph.fragments[fragment], self._collective_ps)
        return self.known[key]

    def _collective_ps(self, comm: int) -> int:
        return self.paid[comm, -1, False]

    def _is_private(self, fragment: int) -> bool:
        tasks = self.graph.fragments[fragment].tasks
        return all(self.graph.comms[t.comm].group in self.alone for t in tasks if t.comm >= 0)

    def _lay_out(
        self, flat: FlatProgram, number: int, fragment: int, before: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add every task of a fragment; returns those that nothing in it waits for."""
        base = len(flat.after)
        tasks = self.graph.fragments[fragment].tasks
        for inner, task in enumerate(tasks):
            after = tuple(base + i for i in task.after) or before
            if task.comm >= 0:
                group = self.graph.comms[task.comm].group
                self._task(flat, number, inner, self._collective_ps(task.comm), group, after)
            else:
                self._task(flat, number, inner, task.duration_ps, None, after)
        waited_for = {i for task in tasks for i in task.after}
        return tuple(base + i for i in range(len(tasks)) if i not in waited_for)

    @staticmethod
    def _task(
        flat: FlatProgram,
        segment: int,
        inner: int,
        duration_ps: int,
        group: Group | None,
        after: tuple[int, ...],
    ) -> None:
        flat.segment.append(segment)
        flat.inner.append(inner)
        flat.duration_ps.append(duration_ps)
        flat.group.append(group)
        flat.after.append(after)
