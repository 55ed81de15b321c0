"""The chain of tasks that makes the step as long as it is.

Unless links are shared fairly every task starts exactly when the last thing it waits for ends, so
the path can be walked back from the last task of the step to its beginning without a gap.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Ints
from stepsim.base.errors import SimulationError
from stepsim.engine.lay_out import GROUPS, TaskListTimes, Times, far_actor
from stepsim.engine.timeline import Cohort, Timeline
from stepsim.explain.breakdown import part_of
from stepsim.graph.actions import TaskList
from stepsim.graph.build import TaskGraph
from stepsim.graph.programs import Look
from stepsim.workload.rows import Group, Part

_Place = tuple[int, int]
"""An actor and the number of a task in its laid-out program."""

_Node = TypeVar("_Node")


class _PathStep(Struct, frozen=True, kw_only=True):
    """A task on the path: the rank that runs it, its number there, start and end in ps."""

    rank: int
    task: int
    start_ps: int
    end_ps: int


def critical_path(timeline: Timeline) -> list[_PathStep]:
    """Tasks of the path in order of time, each starting when the one before ends.

    Where several tasks end last, the one on the same rank is taken. Raises SimulationError if the
    path has a gap, which no run has unless links are shared fairly.
    """
    walk = Walk(timeline=timeline)
    places = walk_back(walk.last_task(), walk.before, walk.start_ps, walk.end_ps)
    ranks = timeline.actors.ranks
    steps = [
        _PathStep(
            rank=int(ranks[place[0]]),
            task=place[1],
            start_ps=walk.start_ps(place),
            end_ps=walk.end_ps(place),
        )
        for place in places
    ]
    return steps[::-1]


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


class PathTask(NamedTuple):
    """A task on the path: its rank, segment and place in the segment's task list (-1: message)."""

    rank: int
    segment: int
    task_list: int
    inner: int
    start_ps: int
    end_ps: int


def path_tasks(timeline: Timeline, path: Sequence[_PathStep]) -> Iterator[PathTask]:
    """Tasks of the path, coalesced task lists laid out; those inside one come last first."""
    inside: dict[TaskListTimes, list[tuple[int, int, int]]] = {}
    for step in path:
        laid = timeline.place(step.rank)[0].laid
        segment, inner = int(laid.segment[step.task]), int(laid.inner[step.task])
        task_list = laid.program.task_list(segment)
        if task_list < 0 or inner >= 0:
            yield PathTask(step.rank, segment, task_list, inner, step.start_ps, step.end_ps)
            continue
        times = laid.times[task_list]
        if times not in inside:
            inside[times] = [*_inside(timeline.graph.task_lists[task_list], times)]
        for number, start, end in inside[times]:
            begin = step.start_ps
            yield PathTask(step.rank, segment, task_list, number, begin + start, begin + end)


class PathRuns(Struct, frozen=True, kw_only=True, eq=False):
    """What a rank runs on the path, and when: messages of a look, or tasks of a task list.

    Row i of `start_ps` and `end_ps` is the i-th time; column k is task `tasks[k]` of the look's
    task list (-1: the message).
    """

    rank: int
    look: Look
    tasks: Ints
    start_ps: Times
    end_ps: Times


def path_runs(timeline: Timeline, path: Sequence[_PathStep]) -> list[PathRuns]:
    """The path by what runs on it, coalesced task lists laid out; what runs first comes first."""
    rows = {rank: timeline.place(rank)[0].laid.row for rank in {step.rank for step in path}}
    steps: dict[tuple[int, int], list[_PathStep]] = defaultdict(list)
    for step in path:
        steps[step.rank, rows[step.rank].item(step.task)].append(step)
    inside: dict[TaskListTimes, Ints] = {}
    return [_runs_of(timeline, several, inside) for several in steps.values()]


def _runs_of(
    timeline: Timeline, steps: Sequence[_PathStep], inside: dict[TaskListTimes, Ints]
) -> PathRuns:
    """What all these steps of a rank run; `inside` is the path through coalesced task lists."""
    rank, task = steps[0].rank, steps[0].task
    laid = timeline.place(rank)[0].laid
    look, inner = laid.rows[laid.row[task]]
    tasks = np.array([inner])
    start, end = np.array([(each.start_ps, each.end_ps) for each in steps]).T[:, :, None]
    if look.task_list >= 0 and inner < 0:
        times = laid.times[look.task_list]
        if times not in inside:
            rows = [*_inside(timeline.graph.task_lists[look.task_list], times)]
            inside[times] = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        tasks, begin, stop = inside[times]
        start, end = start + begin, start + stop
    return PathRuns(rank=rank, look=look, tasks=tasks, start_ps=start, end_ps=end)


def path_parts(graph: TaskGraph, path: Iterable[PathRuns]) -> dict[Part, int]:
    """The path's time by what it is spent on, in ps; the sum is the step time."""
    spent: dict[int, Ints] = {}
    for runs in path:
        time_ps = (runs.end_ps - runs.start_ps).sum(axis=0)
        number = runs.look.task_list
        if number not in spent:
            tasks = len(graph.task_lists[number].tasks) if number >= 0 else 1
            spent[number] = np.zeros(tasks, dtype=np.int64)
        spent[number][runs.tasks] += time_ps
    total = dict.fromkeys(Part, 0)
    for number, times in spent.items():
        if number < 0:
            total[Part.EXPOSED_PP] += int(times[0])
            continue
        for task in np.flatnonzero(times).tolist():
            part = part_of(graph.task_lists[number].tasks[task], graph)
            total[part] += int(times[task])
    return total


def _inside(task_list: TaskList, times: TaskListTimes) -> Iterator[tuple[int, int, int]]:
    """Tasks of the path through a coalesced task list, its start and end; none if it has none."""
    if not times.duration_ps:
        return
    starts, ends = times.start.tolist(), times.end.tolist()
    for task in walk_back(
        int(np.flatnonzero(times.end == times.duration_ps)[-1]),
        lambda i: reversed(task_list.tasks[i].after),
        starts.__getitem__,
        ends.__getitem__,
    ):
        yield task, starts[task], ends[task]


class Walk(Struct, kw_only=True):
    """Looks up times and partners of tasks by actor, to find what each task waited for."""

    timeline: Timeline
    columns: list[tuple[Cohort, int]] = field(default_factory=list)
    meeting: dict[tuple[Group, int], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        actors = self.timeline.actors
        self.columns = [self.timeline.place(rank) for rank in actors.ranks.tolist()]
        found: dict[tuple[Group, int], list[int]] = defaultdict(list)
        for group, numbers in actors.groups.items():
            for actor, number in enumerate(numbers.tolist()):
                found[group, number].append(actor)
        self.meeting = found

    def last_task(self) -> _Place:
        """The task that ends last, of the lowest actor."""
        ends = [cohort.end[:, column] for cohort, column in self.columns]
        actor = int(np.argmax([end.max(initial=-1) for end in ends]))
        return actor, int(np.argmax(ends[actor]))

    def start_ps(self, place: _Place) -> int:
        """When a task starts."""
        cohort, column = self.columns[place[0]]
        return cohort.start.item(place[1], column)

    def end_ps(self, place: _Place) -> int:
        """When a task ends."""
        cohort, column = self.columns[place[0]]
        return cohort.end.item(place[1], column)

    def before(self, place: _Place) -> Iterator[_Place]:
        """What the members of a task wait for, the task's own first, the latest first."""
        for actor, task in self.members(place):
            for before in reversed(self.columns[actor][0].laid.after[task]):
                yield actor, before

    def far(self, actor: int, stage: int) -> int:
        """The actor at the other end of an actor's messages with a stage."""
        return far_actor(actor, stage, self.timeline.actors, self.timeline.graph.plan)

    def members(self, place: _Place) -> list[_Place]:
        """The task itself first, then those that start together with it."""
        actor, task = place
        laid = self.columns[actor][0].laid
        kind, number = laid.group.item(task), laid.segment.item(task)
        if kind < 0:
            return [place]
        group = GROUPS[kind]
        if group is Group.PP:
            peer = self.far(actor, laid.program.shape.peer_stage.item(number))
            first = self.columns[peer][0].laid.first
            return [place, (peer, first.item(laid.program.shape.peer.item(number)))]
        where = int(self.timeline.actors.groups[group][actor])
        others = [a for a in self.meeting[group, where] if a != actor]
        inner = int(laid.inner[task])
        firsts = ((a, int(self.columns[a][0].laid.first[number])) for a in others)
        return [place, *((a, first + inner) for a, first in firsts)]
