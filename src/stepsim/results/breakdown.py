"""Where the time of a rank's step goes.

The breakdown walks along a rank's compute stream. What runs there is compute (or host time); a
gap belongs to the transfers the next task waits for: exposed while one is in flight, skew before a
collective's slowest member arrives, idle before a pipeline neighbour has sent. So its parts sum
to the step time by construction.
"""

from collections import defaultdict
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from stepsim.base.records import dataclass
from stepsim.engine.lay_out import LaidOut, TaskListTimes, Times
from stepsim.engine.timeline import Cohort
from stepsim.graph.actions import Task, TaskKind, TaskList
from stepsim.graph.build import TaskGraph
from stepsim.graph.programs import SegmentKind
from stepsim.workload.axes import Part, Stream

_FEW = 6
WORK = {TaskKind.COMPUTE: Part.COMPUTE, TaskKind.HOST: Part.HOST}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alike:
    """Gaps that are shared out together: `transfers[:, i]` are awaited in gap number `gaps[i]`.

    What is left of them is `idle`. `flight` is what all transfers are, None where they differ.
    """

    gaps: NDArray[np.int64]
    transfers: NDArray[np.int64]
    idle: Part
    flight: Part | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Which transfers the compute stream of a program waits for, whatever the times are.

    `busy` are the tasks of the compute stream in order, and a gap lies before each of them and
    after the last, until the transfers `left` have ended. `work` are the tasks by what they are;
    coalesced ones are not among them. `exposed[i]` is what transfer i is when it is waited for.
    """

    busy: NDArray[np.int64]
    left: NDArray[np.int64]
    work: dict[Part, NDArray[np.int64]]
    exposed: NDArray[np.int64]
    alike: tuple[_Alike, ...]


def breakdown(gaps: Gaps, start: Times, end: Times, coalesced: Times) -> Times:
    """Parts of a program up to the last task anyone waits for: (parts, columns), in ps.

    `start` and `end` have shape (tasks, columns): a column is an actor, or a scenario. `coalesced`,
    of shape (parts, columns), is what coalesced tasks consist of.
    """
    total = coalesced.copy()
    for part, tasks in gaps.work.items():
        total[part] += (end[tasks] - start[tasks]).sum(axis=0)
    begin = np.concatenate((np.zeros_like(end[:1]), end[gaps.busy]))
    last = end[gaps.left].max(axis=0, initial=0)
    until = np.concatenate((start[gaps.busy], np.maximum(begin[-1], last)[None]))
    for alike in gaps.alike:
        share = _share_gaps if alike.flight is None else _share_even_gaps
        share(total, alike, gaps, start, end, begin[alike.gaps], until[alike.gaps])
    return total


@dataclass(slots=True, kw_only=True)
class TaskRows:
    """Tasks being listed for `find_gaps`: what each is, and earlier tasks it waits for.

    `None` is a coalesced task of the compute stream. Nobody waits for a `detached` transfer at its
    own end.
    """

    part: list[Part | None] = field(default_factory=list)
    after: list[tuple[int, ...]] = field(default_factory=list)
    detached: list[bool] = field(default_factory=list)

    def add(self, part: Part | None, after: tuple[int, ...], *, detached: bool = False) -> None:
        """List one more task."""
        self.part.append(part)
        self.after.append(after)
        self.detached.append(detached)


def find_gaps(rows: TaskRows) -> Gaps:
    """The gaps of a program; those with equally many and like transfers are shared out together."""
    is_busy = [part is None or part in WORK.values() for part in rows.part]
    busy = [i for i, each in enumerate(is_busy) if each]
    awaited, left = _awaited(rows, is_busy)
    by_look: dict[tuple[int, Part, Part | None], list[int]] = defaultdict(list)
    for gap, several in enumerate([*awaited, left]):
        flights = {rows.part[i] for i in several}
        idle = Part.INNER if gap else Part.HEAD
        look = len(several), idle, flights.pop() if len(flights) == 1 else None
        by_look[look].append(gap)
    awaited.append(left)
    return Gaps(
        busy=np.array(busy, dtype=np.int64),
        left=np.array(left, dtype=np.int64),
        work={
            part: np.array([i for i, each in enumerate(rows.part) if each is part], dtype=np.int64)
            for part in WORK.values()
        },
        exposed=np.array([part or Part.COMPUTE for part in rows.part], dtype=np.int64),
        alike=tuple(
            _Alike(
                gaps=np.array(gaps, dtype=np.int64),
                transfers=np.array([awaited[gap] for gap in gaps], dtype=np.int64).T,
                idle=idle,
                flight=flight,
            )
            for (_, idle, flight), gaps in by_look.items()
        ),
    )


def _awaited(rows: TaskRows, is_busy: list[bool]) -> tuple[list[list[int]], list[int]]:
    """Transfers that each busy task is the first to wait for, and those nobody waits for.

    They are reached backwards from the task through transfers only, and listed in program order.
    """
    claimed = list(is_busy)
    awaited: list[list[int]] = []
    for task, busy in enumerate(is_busy):
        if not busy:
            continue
        found: list[int] = []
        stack = list(rows.after[task])
        while stack:
            before = stack.pop()
            if not claimed[before]:
                claimed[before] = True
                found.append(before)
                stack.extend(rows.after[before])
        awaited.append(sorted(found))
    left = [i for i, taken in enumerate(claimed) if not taken and not rows.detached[i]]
    return awaited, left


def _share_even_gaps(
    total: Times, alike: _Alike, gaps: Gaps, start: Times, end: Times, begin: Times, until: Times
) -> None:
    """Add idle gaps, `begin` and `until` of shape (gaps, columns), whose transfers are all alike.

    Then only the union of the flights matters: starts and ends may be sorted each by itself.
    """
    starts, ends = _sorted(start[alike.transfers]), _sorted(end[alike.transfers])
    flight = alike.flight or Part.COMPUTE
    waiting = alike.idle if flight is Part.EXPOSED_PP else Part.SKEW
    cursor = begin
    for here, gone in zip(starts, ends, strict=True):
        left = np.minimum(np.maximum(here, cursor), until)
        arrived = np.minimum(np.maximum(gone, left), until)
        total[waiting] += (left - cursor).sum(axis=0)
        total[flight] += (arrived - left).sum(axis=0)
        cursor = arrived
    total[alike.idle] += (until - cursor).sum(axis=0)


def _sorted(rows: Times) -> Times:
    """Rows sorted element by element; exchanges are faster for the few that a gap mostly has."""
    if len(rows) > _FEW:
        return np.sort(rows, axis=0)
    for last in range(len(rows) - 1, 0, -1):
        for i in range(last):
            larger = np.maximum(rows[i], rows[i + 1])
            np.minimum(rows[i], rows[i + 1], out=rows[i])
            rows[i + 1] = larger
    return rows


def _share_gaps(
    total: Times, alike: _Alike, gaps: Gaps, start: Times, end: Times, begin: Times, until: Times
) -> None:
    """Add idle gaps whose transfers differ, or that have none.

    In flight a transfer is exposed, before it there is skew or idle time, after it idle time.
    Overlapping transfers share a gap in order of their start, then of their end, then of their
    part: of nothing but times, whatever else the run was made of.
    """
    cursor = begin
    if len(alike.transfers):
        starts, ends = start[alike.transfers], end[alike.transfers]
        flight = np.broadcast_to(gaps.exposed[alike.transfers][:, :, None], starts.shape)
        for rank in np.lexsort((flight, ends, starts), axis=0):
            here, gone, part = (
                np.take_along_axis(column, rank[None], axis=0)[0]
                for column in (starts, ends, flight)
            )
            left = np.clip(here, cursor, until)
            arrived = np.clip(gone, left, until)
            _add(total, np.where(part == Part.EXPOSED_PP, alike.idle, Part.SKEW), left - cursor)
            _add(total, part, arrived - left)
            cursor = arrived
    total[alike.idle] += (until - cursor).sum(axis=0)


def _add(total: Times, part: NDArray[np.int64], amount: Times) -> None:
    """Add amounts of shape (gaps, columns) to the parts they belong to."""
    for each in Part:
        mine = part == each
        if mine.any():
            total[each] += np.where(mine, amount, 0).sum(axis=0)


PartsOfLists = dict[TaskListTimes, NDArray[np.int64]]
"""Parts of coalesced task lists, found once."""


def cohort_breakdown(
    cohort: Cohort, graph: TaskGraph, step_time_ps: int, known: PartsOfLists
) -> Times:
    """Parts of the step of every actor of a cohort, of shape (parts, actors), in ps."""
    found = program_gaps(cohort.laid, graph)
    coalesced = np.zeros((len(Part), len(cohort.actors)), dtype=np.int64)
    for number, count in found.coalesced.items():
        times = cohort.laid.times[number]
        if times not in known:
            known[times] = list_parts(graph.task_lists[number], graph, times)
        coalesced += count * known[times][:, None]
    total = breakdown(found.gaps, *found.times(cohort.start, cohort.end), coalesced)
    total[Part.TAIL] += step_time_ps - total.sum(axis=0)
    return total


def list_parts(task_list: TaskList, graph: TaskGraph, times: TaskListTimes) -> NDArray[np.int64]:
    """Parts of a task list that runs without interruption, of shape (parts,), in ps."""
    rows = TaskRows()
    for task in task_list.tasks:
        rows.add(part_of(task, graph), task.after)
    nothing = np.zeros((len(Part), 1), dtype=np.int64)
    total = breakdown(find_gaps(rows), times.start[:, None], times.end[:, None], nothing)
    parts: NDArray[np.int64] = total[:, 0]
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramGaps:
    """The gaps of a laid-out program.

    Row i is task `source[i]`, or the end of a task list that was laid out: then `closing` names the
    row and the task list's tasks. `coalesced` counts how often each coalesced task list runs.
    """

    gaps: Gaps
    source: NDArray[np.int64]
    closing: tuple[tuple[int, slice], ...]
    coalesced: dict[int, int]

    def times(
        self, start: Times, end: Times, place: NDArray[np.int64] | None = None
    ) -> tuple[Times, Times]:
        """Starts and ends of the rows from those of the tasks, ps, both of shape (tasks, columns).

        `place[i]` is where task i lies in them, if not at i.
        """
        source = self.source if place is None else place[self.source]
        starts, ends = start[source], end[source]
        for row, mine in self.closing:
            starts[row] = ends[row] = end[mine if place is None else place[mine]].max(axis=0)
        return starts, ends


def program_gaps(laid: LaidOut, graph: TaskGraph) -> ProgramGaps:
    """Gaps of a program. A task list laid out ends when all of it has ended, as a coalesced one."""
    rows = TaskRows()
    place: list[int] = []
    source: list[int] = []
    closing: list[tuple[int, slice]] = []
    coalesced: dict[int, int] = defaultdict(int)
    for task, (number, inner) in enumerate(zip(laid.segment, laid.inner, strict=True)):
        segment = laid.program.segments[number]
        after = laid.after[task]
        if closing:  # rows and tasks are numbered alike before
            after = tuple([place[i] for i in after])
        place.append(len(source))
        source.append(task)
        if segment.task_list < 0:
            rows.add(Part.EXPOSED_PP, after, detached=segment.stream is Stream.EAGER)
            continue
        tasks = graph.task_lists[segment.task_list].tasks
        if inner < 0:
            coalesced[segment.task_list] += 1
            rows.add(None, after)
            continue
        rows.add(part_of(tasks[inner], graph), after)
        if inner == len(tasks) - 1 and segment.kind is not SegmentKind.REDUCTION:
            mine = slice(laid.first[number], task + 1)
            closing.append((len(source), mine))
            source.append(task)
            rows.add(None, tuple(place[mine]))
    return ProgramGaps(
        gaps=find_gaps(rows),
        source=np.array(source, dtype=np.int64),
        closing=tuple(closing),
        coalesced=dict(coalesced),
    )


def part_of(task: Task, graph: TaskGraph) -> Part:
    """The part that a task of a task list is; of a transfer, when it is waited for."""
    return WORK[task.kind] if task.comm < 0 else graph.comms[task.comm].axis.exposed
