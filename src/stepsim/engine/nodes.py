"""The graph of a run as one list of nodes, and its longest path level by level.

A node is a task, or a transfer of all its members. Where links are not shared in time a node ends
its duration after the last node that it waits for, so all nodes of a level, which wait for earlier
levels only, are one operation on columns.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from stepsim.base.arrays import Lists, Small, bounds, lists_of, row_numbers, spans
from stepsim.base.kept import keep
from stepsim.base.units import LARGEST_SUM
from stepsim.engine.compiled import compiled_passes
from stepsim.engine.fold import Actors
from stepsim.engine.lay_out import far_actor
from stepsim.engine.layouts import GROUPS, LaidOut, Times
from stepsim.graph.programs import SegmentKind, Shape
from stepsim.parallel.ranks import ParallelPlan

_SMALL = 1 << 14
"""Nodes of a graph up to which levels are found node by node, and kept one by one."""
_VARIANTS = 8
"""Nodes that are kept of graphs whose segments are the same."""


class _Level(NamedTuple):
    """Nodes from `low` to below `high`: those that each waits for begin at `begins` in `waits`."""

    low: int
    high: int
    waits: NDArray[np.intp]
    begins: NDArray[np.intp]


class NodeGraph(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Nodes in an order in which each follows those that it waits for, `after[i]`, ascending.

    `node_of[a]` has the node of every task of actor a. Level l is the nodes from `levels[l]` to
    `levels[l + 1]`; where programs wait for each other in a circle, nodes behind it are in none.
    """

    node_of: tuple[Small, ...]
    after: Lists
    levels: Small

    def __len__(self) -> int:
        return len(self.after)

    @property
    def is_complete(self) -> bool:
        """Whether every node can run."""
        return int(self.levels[-1]) == len(self)

    @cached_property
    def passes(self) -> list[_Level]:
        """The levels that wait for others, for a graph that is run again and again."""
        return [
            _Level(low, high, waits.astype(np.intp), begins.astype(np.intp))
            for low, high, waits, begins in _passes(self)
        ]

    def duration_ps(self, programs: Sequence[LaidOut]) -> Times:
        """How long each node takes: as long as its first task."""
        found = np.empty(len(self), dtype=np.int64)
        for nodes, laid in zip(self.node_of[::-1], programs[::-1], strict=True):
            found[nodes] = laid.duration_ps
        return found


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
        ends = [self.end.take(nodes) for nodes in self.graph.node_of]
        starts = [end - laid.duration_ps for end, laid in zip(ends, self.programs, strict=True)]
        return starts, ends


def run_levels(programs: Sequence[LaidOut], actors: Actors, plan: ParallelPlan) -> NodeTimes | None:
    """When every task of every actor runs.

    None where not every task can start, or the times may not fit 64 bits: events tell why.
    """
    graph = make_nodes(programs, actors, plan)
    time = graph.duration_ps(programs)
    if not graph.is_complete or float(time.sum(dtype=np.float64)) > LARGEST_SUM:
        return None
    compiled = compiled_passes(len(graph.after.values))
    if compiled:
        compiled.longest_path(graph.after.starts, graph.after.values, time)
    else:
        _by_levels(graph, time)
    return NodeTimes(graph=graph, programs=programs, end=time)


def _by_levels(graph: NodeGraph, time: Times) -> None:
    """Make how long every node takes its end, in ps: all of a level at a time."""
    latest = np.maximum.reduceat
    for low, high, waits, begins in graph.passes if len(graph) <= _SMALL else _passes(graph):
        here = time[low:high]
        np.add(here, latest(time.take(waits), begins), here)


def _passes(graph: NodeGraph) -> Iterator[tuple[int, int, Small, Small]]:
    """The levels that wait for others, each as a `_Level` has it."""
    levels, (starts, values) = graph.levels, (graph.after.starts, graph.after.values)
    rows = zip(pairwise(levels.tolist()), pairwise(starts[levels].tolist()), strict=True)
    for (low, high), (begin, end) in islice(rows, 1, None):
        yield low, high, values[begin:end], starts[low:high] - begin


class _Tasks(NamedTuple):
    """An actor's tasks: the shape of its segments, the first task of each, what tasks wait for."""

    shape: Shape
    first: Small
    after: Lists


_Far = tuple[tuple[int, int], ...]
"""The stages that an actor receives from, and the actor of each that sends to it."""


def make_nodes(programs: Sequence[LaidOut], actors: Actors, plan: ParallelPlan) -> NodeGraph:
    """The nodes of the laid-out programs of all actors.

    Where every segment is one task that meets nobody but in messages, they depend on shapes alone.
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
        known: dict[object, NodeGraph] = shapes[0].family.known
        found = known.get((stages, far))
        if found is None:
            found = _flat_nodes(shapes, far)
            keep(known, (stages, far), found, _VARIANTS)
        return found
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
    place, levels = _places(nodes, after)
    nodes = tuple(place.take(mine) for mine in nodes)
    return NodeGraph(node_of=nodes, after=_waits(nodes, after, len(place)), levels=levels)


def _places(nodes: Sequence[Small], after: Sequence[Lists]) -> tuple[Small, Small]:
    """The place of every node in an order of levels, and where levels start."""
    missing = np.zeros(1 + max(int(mine.max(initial=-1)) for mine in nodes), dtype=np.int32)
    for mine, each in zip(nodes, after, strict=True):
        np.add.at(missing, mine, each.counts)
    order, levels = _levels(missing, _waits(nodes, after, len(missing), turned=True))
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=np.int32)
    return place, levels


def _waits(
    nodes: Sequence[Small], after: Sequence[Lists], most: int, *, turned: bool = False
) -> Lists:
    """What each node waits for; `turned`, what waits for it: ascending."""
    code = np.empty(sum(len(each.values) for each in after), dtype=np.int64)
    past = 0
    for mine, each in zip(nodes, after, strict=True):
        earlier, later = mine.take(each.values), mine.repeat(each.counts)
        here = code[past : past + len(earlier)]
        here[:] = earlier if turned else later
        here <<= 32
        here |= later if turned else earlier
        past += len(here)
    return lists_of(code, most)


def _levels(missing: Small, followers: Lists) -> tuple[Small, Small]:
    """Nodes level by level and where levels start; those that can never run come last.

    `missing` says how many each node waits for: it counts down, and tells the last mention of what
    several nodes have freed.
    """
    starts, counts, values = followers.starts, followers.counts, followers.values
    compiled = compiled_passes(len(values))
    if compiled:
        return compiled.levels(missing, starts, values)
    if len(missing) <= _SMALL:
        return _few_levels(missing.tolist(), starts.tolist(), values.tolist())
    level = np.flatnonzero(missing == 0)
    order, sizes = [level.astype(np.int32)], [len(level)]
    one = np.int32(1)  # a number of another kind takes ten times as long
    while len(level):
        freed = values.take(spans(starts.take(level), counts.take(level))).astype(np.intp)
        np.subtract.at(missing, freed, one)
        ready = freed.compress(missing.take(freed) == 0)
        turn = np.arange(-len(ready), 0, dtype=np.int32)
        missing[ready] = turn
        level = ready.compress(missing.take(ready) == turn)
        order.append(level.astype(np.int32))
        sizes.append(len(level))
    left = np.flatnonzero(missing > 0).astype(np.int32)
    return np.concatenate((*order, left)), bounds(np.array(sizes[:-1]))


def _few_levels(missing: list[int], starts: list[int], values: list[int]) -> tuple[Small, Small]:
    """As `_levels`, node by node: that is faster where levels are narrow."""
    order = [node for node, count in enumerate(missing) if not count]
    levels, here = [0], 0
    while here < len(order):
        past = len(order)
        levels.append(past)
        for node in order[here:past]:
            for follower in values[starts[node] : starts[node + 1]]:
                missing[follower] -= 1
                if not missing[follower]:
                    order.append(follower)
        here = past
    order += [node for node, count in enumerate(missing) if count]
    return np.array(order, dtype=np.int32), np.array(levels, dtype=np.int32)
