"""What runs on the critical path of a step, contracted task lists laid out."""

from collections import defaultdict

import numpy as np

from stepsim.base.arrays import Ints, Small, ints
from stepsim.base.structs import Noun
from stepsim.core.actions import TaskList
from stepsim.core.ends import freed_by
from stepsim.core.flat import CONTRACTED, ListTimes
from stepsim.core.timeline import Timeline


class PathRuns(Noun, eq=False):
    """What an actor runs on the path, and when: messages, or tasks of a task list.

    Row i of `start_ps` and `end_ps` is the i-th time, in `segments[i]`; column k is task `tasks[k]`
    of the task list (-1: the message), which is a part `parts[k]` of the step.
    """

    actor: int
    segments: Small
    tasks: Ints
    parts: Ints
    start_ps: Ints
    end_ps: Ints


def path_runs(timeline: Timeline) -> list[PathRuns]:
    """The path by what runs on it; what runs first comes first."""
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
    which, parts = ints([inner]), tasks.parts[[number]]
    start, end = timeline.start[nodes][:, None], timeline.end[nodes][:, None]
    if parts[0] == CONTRACTED:
        times, task_list = tasks.times[look.task_list], tasks.program.lists[look.task_list]
        if times not in inside:
            inside[times] = _inside(task_list, times)
        which = inside[times]
        parts = task_list.parts[which]
        start, end = start + times.start[which], start + times.end[which]
    return PathRuns(
        actor=actor,
        segments=tasks.segment[places],
        tasks=which,
        parts=parts,
        start_ps=start,
        end_ps=end,
    )


def _inside(task_list: TaskList, times: ListTimes) -> Ints:
    """Tasks of the path through a contracted task list, the last first; none if it has none."""
    if not times.duration_ps:
        return np.zeros(0, np.int64)
    freed = freed_by(task_list.waits.after, times.start, times.end)
    path = [np.flatnonzero(times.end == times.duration_ps)[-1]]
    while times.start[path[-1]]:
        path.append(freed[path[-1]])
    return ints(path)
