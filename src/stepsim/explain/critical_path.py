"""The chain of tasks that makes the step as long as it is.

Unless links are shared fairly every task starts exactly when the last thing it waits for ends, so
the path can be walked back from the last task of the step to its beginning without a gap.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np

from stepsim.base.arrays import Ints, Small, ints, rows_of
from stepsim.base.axes import Part
from stepsim.base.errors import SimulationError
from stepsim.base.structs import Noun
from stepsim.core.actions import TaskList
from stepsim.core.flat import ListTimes
from stepsim.core.timeline import Timeline
from stepsim.core.write import Look, TaskGraph
from stepsim.explain.breakdown import part_of

# An actor and the number of one of its tasks.
_Place = tuple[int, int]

_Node = TypeVar("_Node")


def critical_path(timeline: Timeline) -> list[_Place]:
    """Actors and their tasks on the path in order of time, each starting when the one before ends.

    Where several tasks end last, the one on the same rank is taken. Raises SimulationError if the
    path has a gap, which no run has unless links are shared fairly.
    """
    ends = [timeline.end[nodes] for nodes in timeline.flat.node_of]
    last = int(np.argmax([end.max(initial=-1) for end in ends]))  # the lowest actor of several
    top, before = (last, int(np.argmax(ends[last]))), partial(waited_for, timeline)
    return [*walk_back(top, before, timeline.start_ps, timeline.end_ps)][::-1]


def waited_for(timeline: Timeline, place: _Place) -> Iterator[_Place]:
    """What the members of a task wait for, the task's own first, the latest first."""
    for actor, task in timeline.flat.members(*place):
        for earlier in reversed(timeline.flat.programs[actor].after[task]):
            yield actor, earlier


def walk_back(
    last: _Node,
    before: Callable[[_Node], Iterable[_Node]],
    start_ps: Callable[[_Node], int],
    end_ps: Callable[[_Node], int],
) -> Iterator[_Node]:
    """The chain of nodes that makes `last` end when it does, last first.

    Of the nodes `before` one, that it waits for, the first that ends when it starts is taken, until
    one starts at 0. Raises SimulationError where none does.
    """
    node = last
    yield node
    while now := start_ps(node):
        found = next((each for each in before(node) if end_ps(each) == now), None)
        if found is None:
            raise SimulationError(f"critical path: nothing ends at {now} ps, where a task starts")
        node = found
        yield node


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
    for actor, task in critical_path(timeline):
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
            inside[times] = ints([*_inside(tasks.program.lists[look.task_list], times)])
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


def _inside(task_list: TaskList, times: ListTimes) -> Iterator[int]:
    """Tasks of the path through a contracted task list, the last first; none if it has none."""
    if times.duration_ps:
        yield from walk_back(
            int(np.flatnonzero(times.end == times.duration_ps)[-1]),
            lambda i: reversed(task_list.tasks[i].after),
            times.start.tolist().__getitem__,
            times.end.tolist().__getitem__,
        )
