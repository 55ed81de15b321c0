"""Where the time of a rank's step goes.

The breakdown walks along a rank's compute stream. What runs there is compute (or host time); a
gap belongs to the transfers the next task waits for: exposed while one is in flight, skew before a
collective's slowest member arrives, bubble before a pipeline neighbour has sent. So its parts sum
to the step time by construction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stepsim.execution import FragmentTimes, Times
from stepsim.fragments import Fragment, Stream, Task, TaskKind
from stepsim.taskgraph import SegmentKind, TaskGraph
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
    """A task as the breakdown sees it: `start` and `end` of every actor, in ps.

    `parts` are the parts that a task of the compute stream consists of, None for transfers, whose
    `exposed` part it is when it keeps the compute stream waiting. `after` are earlier tasks that
    it waits for. Nobody waits for a `detached` transfer at its own end.
    """

    start: Times
    end: Times
    after: tuple[int, ...]
    parts: NDArray[np.int64] | None
    exposed: Part = Part.INNER
    detached: bool = False


def breakdown(works: Sequence[Work]) -> Times:
    """Parts of a program up to the last task anyone waits for: (parts, actors), in ps."""
    actors = len(works[0].start)
    total = np.zeros((len(Part), actors), dtype=np.int64)
    cursor = np.zeros(actors, dtype=np.int64)
    claimed: set[int] = set()
    idle = Part.HEAD
    for work in works:
        if work.parts is not None:
            awaited = _awaited(works, work.after, claimed)
            _share_gap(total, cursor, work.start, [works[i] for i in awaited], idle)
            total += work.parts[:, None]
            cursor, idle = work.end, Part.INNER
    left = [
        work
        for i, work in enumerate(works)
        if work.parts is None and i not in claimed and not work.detached
    ]
    last = np.max([cursor, *(work.end for work in left)], axis=0)
    _share_gap(total, cursor, last, left, idle)
    return total


def _awaited(works: Sequence[Work], after: tuple[int, ...], claimed: set[int]) -> list[int]:
    """Transfers that a task waits for first of all: reached backwards through transfers only."""
    found: list[int] = []
    stack = list(after)
    while stack:
        task = stack.pop()
        if works[task].parts is None and task not in claimed:
            claimed.add(task)
            found.append(task)
            stack.extend(works[task].after)
    return found


def _share_gap(
    total: Times, begin: Times, end: Times, transfers: Sequence[Work], idle: Part
) -> None:
    """Add an idle gap of every actor to `total`: in flight, waiting to start, or just idle.

    Overlapping transfers share the gap in order of their start.
    """
    columns = np.arange(total.shape[1])
    cursor = begin
    if transfers:
        starts = np.stack([work.start for work in transfers])
        ends = np.stack([work.end for work in transfers])
        flight = np.array([work.exposed for work in transfers])
        waiting = np.where(flight == Part.EXPOSED_PP, idle, Part.SKEW)
        for which in np.argsort(starts, axis=0, kind="stable"):
            left = np.clip(starts[which, columns], cursor, end)
            arrived = np.clip(ends[which, columns], left, end)
            total[waiting[which], columns] += left - cursor
            total[flight[which], columns] += arrived - left
            cursor = arrived
    total[idle] += end - cursor


PartsOfFragments = dict[FragmentTimes, NDArray[np.int64]]
"""Parts of coalesced fragments, found once."""


def cohort_breakdown(
    cohort: Cohort, graph: TaskGraph, step_time_ps: int, known: PartsOfFragments
) -> Times:
    """Parts of the step of every actor of a cohort, of shape (parts, actors), in ps."""
    total = breakdown(_works(cohort, graph, known))
    total[Part.TAIL] += step_time_ps - total.sum(axis=0)
    return total


def fragment_parts(fragment: Fragment, graph: TaskGraph, times: FragmentTimes) -> NDArray[np.int64]:
    """Parts of a fragment that runs without interruption, of shape (parts,), in ps."""
    works = [
        _task_work(task, graph, times.start[i : i + 1], times.end[i : i + 1], task.after)
        for i, task in enumerate(fragment.tasks)
    ]
    parts: NDArray[np.int64] = breakdown(works)[:, 0]
    return parts


def _works(cohort: Cohort, graph: TaskGraph, known: PartsOfFragments) -> list[Work]:
    """A cohort's tasks. A fragment laid out ends when all of it has ended, as a coalesced one."""
    flat = cohort.flat
    for number, times in flat.times.items():
        if times not in known:
            known[times] = fragment_parts(graph.fragments[number], graph, times)
    works: list[Work] = []
    place: list[int] = []
    for task, (number, inner) in enumerate(zip(flat.segment, flat.inner, strict=True)):
        segment = flat.program.segments[number]
        start, end = cohort.start[task], cohort.end[task]
        after = tuple(place[i] for i in flat.after[task])
        place.append(len(works))
        if segment.fragment < 0:
            detached = segment.stream is Stream.EAGER
            works.append(
                Work(
                    start=start,
                    end=end,
                    after=after,
                    parts=None,
                    exposed=Part.EXPOSED_PP,
                    detached=detached,
                )
            )
            continue
        tasks = graph.fragments[segment.fragment].tasks
        if inner < 0 and segment.kind is not SegmentKind.REDUCTION:
            works.append(
                Work(start=start, end=end, after=after, parts=known[flat.times[segment.fragment]])
            )
            continue
        works.append(_task_work(tasks[max(inner, 0)], graph, start, end, after))
        if inner == len(tasks) - 1 and segment.kind is not SegmentKind.REDUCTION:
            mine = slice(flat.first[number], task + 1)
            last = cohort.end[mine].max(axis=0)
            nothing = np.zeros(len(Part), dtype=np.int64)
            works.append(Work(start=last, end=last, after=tuple(place[mine]), parts=nothing))
    return works


def _task_work(
    task: Task, graph: TaskGraph, start: Times, end: Times, after: tuple[int, ...]
) -> Work:
    if task.comm >= 0:
        exposed = EXPOSED[graph.comms[task.comm].axis]
        return Work(start=start, end=end, after=after, parts=None, exposed=exposed)
    parts = np.zeros(len(Part), dtype=np.int64)
    parts[WORK[task.kind]] = task.duration_ps
    return Work(start=start, end=end, after=after, parts=parts)
