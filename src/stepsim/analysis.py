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

from stepsim.execution import FlatProgram, Times
from stepsim.fragments import Fragment, Stream, TaskKind
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


_EXPOSED = {
    Axis.TP: Part.EXPOSED_TP,
    Axis.EP: Part.EXPOSED_EP,
    Axis.DP: Part.EXPOSED_DP,
    Axis.PP: Part.EXPOSED_PP,
}
_WORK = {TaskKind.COMPUTE: Part.COMPUTE, TaskKind.HOST: Part.HOST}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A task as the breakdown sees it.

    `parts` are the parts that a task of the compute stream consists of, None for transfers, whose
    `exposed` part it is when it keeps the compute stream waiting. A `detached` transfer is waited
    for by nobody at its own end.
    """

    parts: NDArray[np.int64] | None
    exposed: Part = Part.INNER
    detached: bool = False


def breakdown(
    works: Sequence[Work], after: Sequence[tuple[int, ...]], start: Times, end: Times
) -> Times:
    """Parts of one program up to the last task anyone waits for, of shape (parts, actors), in ps.

    `start` and `end` have shape (tasks, actors); `after` lists what each task waits for.
    """
    actors = start.shape[1]
    total = np.zeros((len(Part), actors), dtype=np.int64)
    cursor = np.zeros(actors, dtype=np.int64)
    claimed: set[int] = set()
    idle = Part.HEAD
    for task, work in enumerate(works):
        if work.parts is None:
            continue
        awaited = _awaited(works, after, after[task], claimed)
        _share_gap(
            total, cursor, start[task], [(works[i], start[i], end[i]) for i in awaited], idle
        )
        total += work.parts[:, None]
        cursor, idle = end[task], Part.INNER
    left = [
        i for i, w in enumerate(works) if w.parts is None and i not in claimed and not w.detached
    ]
    last = np.max([cursor, *(end[i] for i in left)], axis=0)
    _share_gap(total, cursor, last, [(works[i], start[i], end[i]) for i in left], idle)
    return total


def _awaited(
    works: Sequence[Work],
    after: Sequence[tuple[int, ...]],
    before: tuple[int, ...],
    claimed: set[int],
) -> list[int]:
    """Transfers that a task waits for first of all: reached backwards through transfers only."""
    found: list[int] = []
    stack = list(before)
    while stack:
        task = stack.pop()
        if works[task].parts is None and task not in claimed:
            claimed.add(task)
            found.append(task)
            stack.extend(after[task])
    return found


def _share_gap(
    total: Times,
    begin: Times,
    end: Times,
    transfers: Sequence[tuple[Work, Times, Times]],
    idle: Part,
) -> None:
    """Add an idle gap of every actor to `total`: in flight, waiting to start, or just idle.

    Overlapping transfers share the gap in order of their start.
    """
    columns = np.arange(total.shape[1])
    cursor = begin
    if transfers:
        starts = np.stack([start for _, start, _ in transfers])
        ends = np.stack([end for _, _, end in transfers])
        flight = np.array([work.exposed for work, _, _ in transfers])
        waiting = np.where(flight == Part.EXPOSED_PP, idle, Part.SKEW)
        for which in np.argsort(starts, axis=0, kind="stable"):
            left = np.clip(starts[which, columns], cursor, end)
            arrived = np.clip(ends[which, columns], left, end)
            total[waiting[which], columns] += left - cursor
            total[flight[which], columns] += arrived - left
            cursor = arrived
    total[idle] += end - cursor


def fragment_parts(
    fragment: Fragment, graph: TaskGraph, start: Times, end: Times
) -> NDArray[np.int64]:
    """Parts of a fragment that runs without interruption, of shape (parts,)."""
    works = [
        _task_work(fragment, i, graph, int(end[i] - start[i])) for i in range(len(fragment.tasks))
    ]
    after = [task.after for task in fragment.tasks]
    parts: NDArray[np.int64] = breakdown(works, after, start[:, None], end[:, None])[:, 0]
    return parts


def cohort_breakdown(cohort: Cohort, graph: TaskGraph, step_time_ps: int) -> Times:
    """Parts of the step of every actor of a cohort, of shape (parts, actors), in ps."""
    flat = cohort.flat
    inner = {
        number: fragment_parts(graph.fragments[number], graph, times.start, times.end)
        for number, times in flat.times.items()
    }
    works = [_flat_work(flat, task, graph, inner) for task in range(len(flat.after))]
    total = breakdown(works, flat.after, cohort.start, cohort.end)
    total[Part.TAIL] += step_time_ps - total.sum(axis=0)
    return total


def _flat_work(
    flat: FlatProgram, task: int, graph: TaskGraph, inner: dict[int, NDArray[np.int64]]
) -> Work:
    segment = flat.program.segments[flat.segment[task]]
    if segment.fragment < 0:
        return Work(parts=None, exposed=Part.EXPOSED_PP, detached=segment.stream is Stream.EAGER)
    fragment = graph.fragments[segment.fragment]
    if flat.inner[task] >= 0:
        return _task_work(fragment, flat.inner[task], graph, flat.duration_ps[task])
    if segment.kind is SegmentKind.REDUCTION:
        return _task_work(fragment, 0, graph, 0)
    return Work(parts=inner[segment.fragment])


def _task_work(fragment: Fragment, number: int, graph: TaskGraph, duration_ps: int) -> Work:
    task = fragment.tasks[number]
    if task.comm >= 0:
        return Work(parts=None, exposed=_EXPOSED[graph.comms[task.comm].axis])
    parts = np.zeros(len(Part), dtype=np.int64)
    parts[_WORK[task.kind]] = duration_ps
    return Work(parts=parts)
