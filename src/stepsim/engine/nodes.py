"""The graph of a run as one list of nodes, for times without events.

A node is a task, or a transfer of all its members. They serve runs whose links are not shared in
time.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints, Lists, Small, bounds, row_numbers
from stepsim.base.kept import keep
from stepsim.base.units import LARGEST_SUM
from stepsim.engine.lay_out import GROUPS, LaidOut, Times, far_actor
from stepsim.graph.programs import SegmentKind, Shape
from stepsim.network.fold import Actors
from stepsim.parallel.ranks import ParallelPlan
from stepsim.tables.ends import NodeWaits, ends, ordered_waits

if TYPE_CHECKING:
    pass

_VARIANTS = 8
"""Nodes that are kept of graphs whose segments are the same."""


class NodeGraph(Struct, frozen=True, kw_only=True, eq=False):
    """The nodes of a run: what they wait for, and in `node_of[a]` that of every task of actor a."""

    node_of: tuple[Small, ...]
    waits: NodeWaits

    def __len__(self) -> int:
        return len(self.waits)

    @property
    def is_complete(self) -> bool:
        """Whether every node can run: no programs wait for each other in a circle."""
        return self.waits.runnable == len(self)

    def duration_ps(self, programs: Sequence[LaidOut]) -> Times:
        """How long each node takes: as long as its first task."""
        durations = np.empty(len(self), dtype=np.int64)
        for nodes, laid in zip(self.node_of[::-1], programs[::-1], strict=True):
            durations[nodes] = laid.duration_ps
        return durations


class NodeTimes(Struct, frozen=True, kw_only=True, eq=False):
    """The end in ps of every node of the laid-out programs of a run."""

    graph: NodeGraph
    programs: Sequence[LaidOut]
    end: Times

    @property
    def step_time_ps(self) -> int:
        """End of the last task."""
        return int(self.end.max(initial=0))

    def of_tasks(self) -> tuple[list[Times], list[Times]]:
        """Start and end of every task of every actor, as the events give them."""
        task_ends = [self.end.take(nodes) for nodes in self.graph.node_of]
        columns = zip(task_ends, self.programs, strict=True)
        return [end - laid.duration_ps for end, laid in columns], task_ends


def run_levels(programs: Sequence[LaidOut], actors: Actors, plan: ParallelPlan) -> NodeTimes | None:
    """When every task of every actor runs.

    It is None where not every task can start, or the times may not fit 64 bits: events tell why.
    """
    graph = make_nodes(programs, actors, plan)
    duration_ps = graph.duration_ps(programs)
    if not graph.is_complete or float(duration_ps.sum(dtype=np.float64)) > LARGEST_SUM:
        return None
    end = ends(graph.waits, duration_ps, out=duration_ps)
    return NodeTimes(graph=graph, programs=programs, end=end)


class _Tasks(NamedTuple):
    """An actor's tasks: the shape of its segments, the first task of each, what tasks wait for."""

    shape: Shape
    first: Small
    after: Lists


_Far = tuple[tuple[int, int], ...]
"""The stages that an actor receives from, and the actor of each that sends to it."""


def make_nodes(programs: Sequence[LaidOut], actors: Actors, plan: ParallelPlan) -> NodeGraph:
    """The nodes of the laid-out programs of all actors.

    Where every segment is one task that meets nobody but in messages, they depend on shapes alone,
    and stay beside these.
    """
    shapes = tuple(laid.program.shape for laid in programs)
    far = tuple(
        tuple((stage, far_actor(actor, stage, actors, plan)) for stage in shape.senders)
        for actor, shape in enumerate(shapes)
    )
    if not any(
        laid.meets or laid.after is not shape.after
        for laid, shape in zip(programs, shapes, strict=True)
    ):
        stages = tuple(laid.program.stage for laid in programs)
        flat: dict[object, NodeGraph] = shapes[0].family.known
        found = flat.get((stages, far))
        if found is None:
            found = _flat_nodes(shapes, far)
            keep(flat, (stages, far), found, _VARIANTS)
        return found
    return _joined_nodes(programs, actors, far)


def _joined_nodes(programs: Sequence[LaidOut], actors: Actors, far: tuple[_Far, ...]) -> NodeGraph:
    """The nodes of actors whose collectives are one node for all that meet."""
    tasks = [_Tasks(laid.program.shape, laid.first, laid.after) for laid in programs]
    firsts = bounds(np.array([len(laid) for laid in programs]))
    first = _with_messages(tasks, far, firsts)
    _join_groups(first, programs, actors, firsts)
    return _ordered(_numbered(first, firsts), [each.after for each in tasks])


def _flat_nodes(shapes: tuple[Shape, ...], far: tuple[_Far, ...]) -> NodeGraph:
    """The nodes of actors whose segments are one task each."""
    tasks = [_Tasks(shape, shape.numbers, shape.after) for shape in shapes]
    firsts = bounds(np.array([len(shape) for shape in shapes]))
    nodes = _numbered(_with_messages(tasks, far, firsts), firsts)
    return _ordered(nodes, [each.after for each in tasks])


def _with_messages(tasks: Sequence[_Tasks], far: Sequence[_Far], firsts: Small) -> Small:
    """The first task of the node of every task: of receipts, what sends."""
    node = np.arange(firsts[-1], dtype=np.int32)
    for mine, begin, senders in zip(tasks, firsts.tolist(), far, strict=False):
        receives = mine.shape.kind == SegmentKind.RECV
        for stage, sender in senders:
            segments = np.flatnonzero(receives & (mine.shape.peer_stage == stage))
            sent = tasks[sender].first[mine.shape.peer[segments]]
            node[begin + mine.first[segments]] = firsts[sender] + sent
    return node


def _join_groups(node: Small, programs: Sequence[LaidOut], actors: Actors, firsts: Small) -> None:
    """Members of a collective are one node, that of the first of them."""
    tasks, keys = [], []
    for actor, laid in enumerate(programs):
        for group in laid.meets:
            where = int(actors.groups[GROUPS[group]][actor])
            if actors.sizes[GROUPS[group]][where] > 1:
                here = np.flatnonzero(laid.group == group)
                same = np.full(len(here), where * len(GROUPS) + group)
                tasks.append(here + firsts[actor])
                keys.append(np.stack((same, laid.segment[here], laid.inner[here]), axis=1))
    if tasks:
        members = np.concatenate(tasks)
        first, key = row_numbers(np.concatenate(keys))
        node[members] = members[first][key]


def _numbered(first: Small, firsts: Small) -> list[Small]:
    """The node of every task of every actor; `first[i]` is the first task of that of task i."""
    is_first = first == np.arange(len(first), dtype=np.int32)
    node = (np.cumsum(is_first, dtype=np.int32) - 1).take(first)
    return [node[a:b] for a, b in pairwise(firsts.tolist())]


def _ordered(nodes: Sequence[Small], after: Sequence[Lists]) -> NodeGraph:
    """The nodes level by level, from the node of every task and what each task waits for."""
    count = 1 + max(int(numbers.max(initial=-1)) for numbers in nodes)
    place, waits = ordered_waits(partial(_pairs, nodes, after), count)
    return NodeGraph(node_of=tuple(place.take(numbers) for numbers in nodes), waits=waits)


def _pairs(nodes: Sequence[Small], after: Sequence[Lists]) -> Ints:
    """Pairs `before << 32 | after` of nodes, for every wait of every task."""
    pairs = np.empty(sum(len(waits.values) for waits in after), dtype=np.int64)
    begin = 0
    for numbers, waits in zip(nodes, after, strict=True):
        part = pairs[begin : begin + len(waits.values)]
        part[:] = numbers.take(waits.values)
        part <<= 32
        part |= numbers.repeat(waits.counts)
        begin += len(part)
    return pairs
