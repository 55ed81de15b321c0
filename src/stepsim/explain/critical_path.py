"""What runs on the critical path of a step, contracted task lists laid out, and its parts."""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from stepsim.base.arrays import Ints, Small, ints, rows_of
from stepsim.base.axes import Part
from stepsim.base.structs import Noun
from stepsim.core.actions import TaskList
from stepsim.core.ends import freed_by
from stepsim.core.flat import ListTimes
from stepsim.core.timeline import Timeline
from stepsim.core.write import Look, TaskGraph
from stepsim.explain.breakdown import part_of


class PathRuns(Noun, eq=False):
    """What an actor runs on the path, and when: messages of a look, or tasks of a task list.

    Row i of `start_ps` and `end_ps` is the i-th time, in `segments[i]`; column k is task `tasks[k]`
    of the look's task list (-1: the message).
    """

    actor: int
    look: Look
    segments: Small
    tasks: Ints
    start_ps: Ints
    end_ps: Ints


def path_runs(timeline: Timeline) -> list[PathRuns]:
    """The path by what runs on it, contracted task lists laid out; what runs first comes first."""
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for actor, task in timeline.path:
        places[actor, timeline.flat.programs[actor].row.item(task)].append(task)
    inside: dict[ListTimes, Ints] = {}
    return [_runs_of(timeline, *which, several, inside) for which, several in places.items()]


def _runs_of(
    timeline: Timeline, actor: int, number: int, places: list[int], inside: dict[ListTimes, Ints]
) -> PathRuns:
    """What tasks of a row run; `inside` is the path through contracted task lists."""
    tasks, nodes = timeline.flat.programs[actor], timeline.flat.node_of[actor][places]
    look, inner, _ = tasks.rows[number]
    which = np.array([inner])
    start, end = timeline.start[nodes][:, None], timeline.end[nodes][:, None]
    if look.task_list >= 0 and inner < 0:
        times = tasks.times[look.task_list]
        if times not in inside:
            inside[times] = _inside(tasks.program.lists[look.task_list], times)
        which = inside[times]
        start, end = start + times.start[which], start + times.end[which]
    return PathRuns(
        actor=actor,
        look=look,
        segments=tasks.segment[places],
        tasks=which,
        start_ps=start,
        end_ps=end,
    )


def path_parts(graph: TaskGraph, path: Iterable[PathRuns]) -> dict[Part, int]:
    """The path's time by what it is spent on, in ps; the sum is the step time."""
    total = dict.fromkeys(Part, 0)
    for runs in path:
        times_ps = (runs.end_ps - runs.start_ps).sum(axis=0)
        for task, time_ps in rows_of(runs.tasks, times_ps):
            part = Part.EXPOSED_PP
            if task >= 0:
                part = part_of(graph.task_lists[runs.look.task_list].tasks[task], graph)
            total[part] += time_ps
    return total


def _inside(task_list: TaskList, times: ListTimes) -> Ints:
    """Tasks of the path through a contracted task list, the last first; none if it has none."""
    if not times.duration_ps:
        return np.zeros(0, np.int64)
    freed = freed_by(task_list.waits.after, times.start, times.end)
    path = [np.flatnonzero(times.end == times.duration_ps)[-1]]
    while times.start[path[-1]]:
        path.append(freed[path[-1]])
    return ints(path)
