"""What every timeline must satisfy, told from the task graph and nothing else."""

from collections import defaultdict

import numpy as np

from stepsim.base.axes import Stream
from stepsim.core.timeline import Timeline
from stepsim.run.spans import TaskKind

Place = tuple[int, int, int]
"""Rank, segment, task of the task list (-1 for messages)."""


def check_timeline(timeline: Timeline) -> None:
    """Streams are serial; every task starts exactly when the last thing it waits for has ended."""
    check_streams(timeline)
    start, end = task_times(timeline)
    before = predecessors(timeline)
    ready = {p: max((end[q] for q in waits), default=0) for p, waits in before.items()}
    assert ready.keys() == start.keys()
    for members in meetings(timeline):
        begins = max(ready[p] for p in members)
        lengths = {end[p] - start[p] for p in members}
        assert {start[p] for p in members} == {begins}, members
        assert len(lengths) == 1, members
        assert min(lengths) >= 0, members


def check_same_times(one: Timeline, other: Timeline) -> None:
    """Every task of every rank ran at the same time in both."""
    for rank in range(one.graph.plan.npus):
        mine, theirs = one.tasks(rank), other.tasks(rank)
        assert (mine.start == theirs.start).all(), rank
        assert (mine.end == theirs.end).all(), rank


def check_streams(timeline: Timeline) -> None:
    """No two spans of a serial stream overlap on any simulated rank."""
    for spans in timeline.spans():
        for stream in np.unique(spans.stream[spans.stream != Stream.EAGER]).tolist():
            queued = spans.taken(spans.stream == stream)
            queued = queued.taken(np.lexsort((queued.end_ps, queued.start_ps)))
            assert (queued.start_ps[1:] >= queued.end_ps[:-1]).all(), Stream(stream).name


def task_times(timeline: Timeline) -> tuple[dict[Place, int], dict[Place, int]]:
    """Start and end of every task of every rank."""
    start: dict[Place, int] = {}
    end: dict[Place, int] = {}
    for rank in range(timeline.graph.plan.npus):
        times = timeline.tasks(rank)
        columns = (times.tasks.segment, times.tasks.inner, times.start, times.end)
        for segment, inner, a, b in zip(*(c.tolist() for c in columns), strict=True):
            start[rank, segment, inner], end[rank, segment, inner] = a, b
    return start, end


def predecessors(timeline: Timeline) -> dict[Place, list[Place]]:
    """What each task waits for on its own rank."""
    graph = timeline.graph
    found: dict[Place, list[Place]] = {}
    for rank in range(graph.plan.npus):
        program = graph.programs[graph.plan.stage_of(rank)]
        whole: list[list[Place]] = []
        for number, look in enumerate(program.looks[i] for i in program.look):
            entry = [place for earlier in program.after[number] for place in whole[earlier]]
            if look.task_list < 0:
                found[rank, number, -1] = entry
                whole.append([(rank, number, -1)])
                continue
            tasks = graph.task_lists[look.task_list].tasks
            for inner, task in enumerate(tasks):
                inside = [(rank, number, i) for i in task.after]
                found[rank, number, inner] = inside or entry
            whole.append([(rank, number, inner) for inner in range(len(tasks))])
    return found


def meetings(timeline: Timeline) -> list[list[Place]]:
    """Tasks that must start and end together: groups of collectives, the ends of a message."""
    graph, plan = timeline.graph, timeline.graph.plan
    group_of = {
        op.group: {
            int(rank): number
            for number, members in enumerate(plan.groups(op.group))
            for rank in members
        }
        for op in graph.comms
    }
    found: dict[tuple[object, ...], list[Place]] = defaultdict(list)
    for rank in range(plan.npus):
        stage = plan.stage_of(rank)
        program = graph.programs[stage]
        for number, look in enumerate(program.looks[i] for i in program.look):
            if look.task_list < 0:
                far = rank + (look.peer_stage - stage) * plan.stage_ranks
                ends = sorted([(rank, number), (far, program.peer.item(number))])
                found["message", *ends].append((rank, number, -1))
                continue
            for inner, task in enumerate(graph.task_lists[look.task_list].tasks):
                if task.kind is TaskKind.COLLECTIVE:
                    group = graph.comms[task.comm].group
                    key = (group, group_of[group][rank], number, inner)
                    found[key].append((rank, number, inner))
                else:
                    found["own", rank, number, inner].append((rank, number, inner))
    return list(found.values())
