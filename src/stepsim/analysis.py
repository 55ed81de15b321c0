"""Where the time of a rank's step goes.

The breakdown walks along a rank's compute stream. What runs there is compute (or host time); a
gap belongs to the transfers the next task waits for: exposed while one is in flight, skew before a
collective's slowest member arrives, bubble before a pipeline neighbour has sent. So its parts sum
to the step time by construction.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stepsim.execution import FragmentTimes, Times
from stepsim.fragments import Fragment, Stream, Task, TaskKind
from stepsim.program import SegmentKind
from stepsim.taskgraph import TaskGraph
from stepsim.timeline import Cohort
from stepsim.workload import Axis


class Part(IntEnum):
    """Parts of a rank's step, in ps; their sum is the step time.

    `HEAD`, `INNER` and `TAIL` are bubbles: idle before the rank's first task, between, and after
    its last one until the step ends. Exposed time is idle while an awaited transfer is in flight.
    """

    COMPUTE = 0
    EXPOSED_TP = 1
    EXPOSED_EP = 2
    EXPOSED_DP = 3
    EXPOSED_PP = 4
    SKEW = 5
    HEAD = 6
    INNER = 7
    TAIL = 8
    HOST = 9


EXPOSED = {
    Axis.TP: Part.EXPOSED_TP,
    Axis.EP: Part.EXPOSED_EP,
    Axis.DP: Part.EXPOSED_DP,
    Axis.PP: Part.EXPOSED_PP,
}
WORK = {TaskKind.COMPUTE: Part.COMPUTE, TaskKind.HOST: Part.HOST}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The tasks of a program as the breakdown sees them; `start` and `end`: (tasks, actors), ps.

    `parts[i]` are the parts that task i of the compute stream consists of; -1 marks a transfer,
    whose `exposed[i]` part it is when it keeps the compute stream waiting. `after[i]` are earlier
    tasks that it waits for. Nobody waits for a `detached` transfer at its own end.
    """

    start: Times
    end: Times
    after: Sequence[tuple[int, ...]]
    parts: NDArray[np.int64]
    exposed: NDArray[np.int64]
    detached: NDArray[np.bool_]


def breakdown(work: Work) -> Times:
    """Parts of a program up to the last task anyone waits for: (parts, actors), in ps.

    Gaps with equally many awaited transfers are shared out together.
    """
    busy = np.flatnonzero(work.parts[:, 0] >= 0)
    awaited, left = _awaited(work, busy.tolist())
    total = np.repeat(work.parts[busy].sum(axis=0)[:, None], work.start.shape[1], axis=1)
    begin = np.concatenate((np.zeros_like(work.end[:1]), work.end[busy]))
    last = np.max([begin[-1], *(work.end[i] for i in left)], axis=0)
    until = np.concatenate((work.start[busy], last[None]))
    awaited.append(left)
    by_count: dict[int, list[int]] = defaultdict(list)
    for gap, several in enumerate(awaited):
        by_count[len(several)].append(gap)
    for gaps in by_count.values():
        rows = np.array([awaited[gap] for gap in gaps], dtype=np.int64).T
        idle = np.where(np.array(gaps) == 0, Part.HEAD, Part.INNER).astype(np.int64)
        _share_gaps(total, work, rows, begin[gaps], until[gaps], idle)
    return total


def _awaited(work: Work, busy: Sequence[int]) -> tuple[list[list[int]], list[int]]:
    """Transfers that each busy task is the first to wait for, and those nobody waits for.

    They are reached backwards from the task through transfers only.
    """
    is_busy = (work.parts[:, 0] >= 0).tolist()
    claimed = list(is_busy)
    awaited: list[list[int]] = []
    for task in busy:
        found: list[int] = []
        stack = list(work.after[task])
        while stack:
            before = stack.pop()
            if not claimed[before]:
                claimed[before] = True
                found.append(before)
                stack.extend(work.after[before])
        awaited.append(found)
    left = [i for i, taken in enumerate(claimed) if not taken and not work.detached[i]]
    return awaited, left


def _share_gaps(
    total: Times,
    work: Work,
    transfers: NDArray[np.int64],
    begin: Times,
    end: Times,
    idle: NDArray[np.int64],
) -> None:
    """Add idle gaps, `begin` and `end` of shape (gaps, actors), to the parts in `total`.

    A gap has the transfers `transfers[:, gap]`: in flight it is exposed, before they start it is
    skew or bubble, after them idle. Overlapping transfers share a gap in order of their start.
    """
    cursor = begin
    idle = np.broadcast_to(idle[:, None], begin.shape)
    if len(transfers):
        starts, ends = work.start[transfers], work.end[transfers]
        order = np.argsort(starts, axis=0, kind="stable")
        flight = np.broadcast_to(work.exposed[transfers][:, :, None], starts.shape)
        for rank in order:
            which = rank[None]
            here, gone, part = (
                np.take_along_axis(column, which, axis=0)[0] for column in (starts, ends, flight)
            )
            left = np.clip(here, cursor, end)
            arrived = np.clip(gone, left, end)
            _add(total, np.where(part == Part.EXPOSED_PP, idle, Part.SKEW), left - cursor)
            _add(total, part, arrived - left)
            cursor = arrived
    _add(total, idle, end - cursor)


def _add(total: Times, part: NDArray[np.int64], amount: Times) -> None:
    """Add amounts of shape (gaps, actors) to the parts they belong to."""
    for each in Part:
        mine = part == each
        if mine.any():
            total[each] += np.where(mine, amount, 0).sum(axis=0)


PartsOfFragments = dict[FragmentTimes, NDArray[np.int64]]
"""Parts of coalesced fragments, found once."""


def cohort_breakdown(
    cohort: Cohort, graph: TaskGraph, step_time_ps: int, known: PartsOfFragments
) -> Times:
    """Parts of the step of every actor of a cohort, of shape (parts, actors), in ps."""
    for number, times in cohort.flat.times.items():
        if times not in known:
            known[times] = fragment_parts(graph.fragments[number], graph, times)
    total = breakdown(_cohort_work(cohort, graph, known))
    total[Part.TAIL] += step_time_ps - total.sum(axis=0)
    return total


def fragment_parts(fragment: Fragment, graph: TaskGraph, times: FragmentTimes) -> NDArray[np.int64]:
    """Parts of a fragment that runs without interruption, of shape (parts,), in ps."""
    rows = _Rows()
    for task, length in zip(fragment.tasks, (times.end - times.start).tolist(), strict=True):
        rows.add(*_kind_of(task, graph, length), after=task.after)
    parts: NDArray[np.int64] = breakdown(rows.work(times.start[:, None], times.end[:, None]))[:, 0]
    return parts


@dataclass(slots=True, kw_only=True)
class _Rows:
    """Columns of a `Work` being written."""

    parts: list[NDArray[np.int64]] = field(default_factory=list)
    exposed: list[Part] = field(default_factory=list)
    detached: list[bool] = field(default_factory=list)
    after: list[tuple[int, ...]] = field(default_factory=list)

    def add(
        self,
        parts: NDArray[np.int64],
        exposed: Part = Part.INNER,
        *,
        after: tuple[int, ...],
        detached: bool = False,
    ) -> None:
        self.parts.append(parts)
        self.exposed.append(exposed)
        self.detached.append(detached)
        self.after.append(after)

    def work(self, start: Times, end: Times) -> Work:
        return Work(
            start=start,
            end=end,
            after=self.after,
            parts=np.array(self.parts),
            exposed=np.array(self.exposed, dtype=np.int64),
            detached=np.array(self.detached),
        )


_NOTHING = np.zeros(len(Part), dtype=np.int64)
_NO_PARTS = np.full(len(Part), -1, dtype=np.int64)


def _cohort_work(cohort: Cohort, graph: TaskGraph, known: PartsOfFragments) -> Work:
    """A cohort's tasks. A fragment laid out ends when all of it has ended, as a coalesced one."""
    flat, rows = cohort.flat, _Rows()
    place: list[int] = []
    source: list[int] = []
    closing: list[tuple[int, slice]] = []
    for task, (number, inner) in enumerate(zip(flat.segment, flat.inner, strict=True)):
        segment = flat.program.segments[number]
        after = tuple(place[i] for i in flat.after[task])
        place.append(len(source))
        source.append(task)
        if segment.fragment < 0:
            detached = segment.stream is Stream.EAGER
            rows.add(_NO_PARTS, Part.EXPOSED_PP, after=after, detached=detached)
            continue
        tasks = graph.fragments[segment.fragment].tasks
        queued = segment.kind is not SegmentKind.REDUCTION
        if inner < 0 and queued:
            rows.add(known[flat.times[segment.fragment]], after=after)
            continue
        length = flat.duration_ps[task]
        rows.add(*_kind_of(tasks[max(inner, 0)], graph, length), after=after)
        if inner == len(tasks) - 1 and queued:
            mine = slice(flat.first[number], task + 1)
            closing.append((len(source), mine))
            source.append(task)
            rows.add(_NOTHING, after=tuple(place[mine]))
    start, end = cohort.start[source], cohort.end[source]
    for row, mine in closing:
        start[row] = end[row] = cohort.end[mine].max(axis=0)
    return rows.work(start, end)


def _kind_of(task: Task, graph: TaskGraph, duration_ps: int) -> tuple[NDArray[np.int64], Part]:
    """Parts of a task of a fragment, and the part that it is when it is waited for."""
    if task.comm >= 0:
        return _NO_PARTS, EXPOSED[graph.comms[task.comm].axis]
    parts = np.zeros(len(Part), dtype=np.int64)
    parts[WORK[task.kind]] = duration_ps
    return parts, Part.INNER
