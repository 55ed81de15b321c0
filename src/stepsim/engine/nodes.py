"""The graph of a run as one list of nodes, and its longest path level by level.

A node is a task, or a transfer of all its members. Where links are not shared in time a node ends
its duration after the last node that it waits for, so all nodes of a level, which wait for earlier
levels only, are one operation on columns.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stepsim.base.arrays import Bools, Lists, Small, bounds, row_numbers, spans
from stepsim.base.records import dataclass
from stepsim.base.units import LARGEST_SUM
from stepsim.engine.compiled import compiled_passes
from stepsim.engine.fold import Actors
from stepsim.engine.lay_out import GROUPS, LaidOut, Times, far_actor
from stepsim.graph.programs import SegmentKind, Shape
from stepsim.parallel.ranks import ParallelPlan

_VARIANTS = 8
"""Nodes that are kept of graphs whose segments are the same."""
_AT_ONCE = 1 << 18


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeGraph:
    """Nodes in an order in which each follows those that it waits for, `after[i]`.

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

    def duration_ps(self, programs: Sequence[LaidOut]) -> Times:
        """How long each node takes: as long as its first task."""
        found = np.empty(len(self), dtype=np.int64)
        for nodes, laid in zip(self.node_of[::-1], programs[::-1], strict=True):
            found[nodes[::-1]] = laid.duration_ps[::-1]
        return found


def run_levels(
    programs: Sequence[LaidOut], actors: Actors, plan: ParallelPlan
) -> tuple[list[Times], list[Times]] | None:
    """Start and end in ps of every task of every actor, as the events give them.

    None where not every task can start, or the times may not fit 64 bits: events tell why.
    """
    graph = make_nodes(programs, actors, plan)
    duration_ps = graph.duration_ps(programs)
    if not graph.is_complete or float(duration_ps.sum(dtype=np.float64)) > LARGEST_SUM:
        return None
    time = _longest_path(graph, duration_ps)
    ends = [time[nodes] for nodes in graph.node_of]
    time -= duration_ps
    return [time[nodes] for nodes in graph.node_of], ends


def _longest_path(graph: NodeGraph, duration_ps: Times) -> Times:
    """The end of every node in ps, whose sum fits 64 bits."""
    compiled = compiled_passes(len(graph.after.values))
    if compiled:
        return compiled.longest_path(graph.after.starts, graph.after.values, duration_ps)
    return _by_levels(graph, duration_ps)


def _by_levels(graph: NodeGraph, duration_ps: Times) -> Times:
    """The end of every node in ps: all of a level at a time."""
    end = duration_ps.copy()
    levels, starts, values = graph.levels.tolist(), graph.after.starts, graph.after.values
    edges = starts[graph.levels].tolist()
    first = starts[:-1] - np.repeat(starts[graph.levels[:-1]], np.diff(graph.levels))
    for level in range(1, len(levels) - 1):
        here = slice(levels[level], levels[level + 1])
        ends = end[values[edges[level] : edges[level + 1]]]
        end[here] += np.maximum.reduceat(ends, first[here])
    return end


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
        if (stages, far) not in known:
            if len(known) == _VARIANTS:
                known.clear()
            known[stages, far] = _flat_nodes(shapes, far)
        return known[stages, far]
    tasks = [_Tasks(laid.program.shape, laid.first, laid.after) for laid in programs]
    firsts = bounds(np.array([len(laid) for laid in programs]))
    first = _with_messages(tasks, far, firsts)
    _join_groups(first, programs, actors, firsts)
    return _ordered(first, tasks, firsts)


def _flat_nodes(shapes: tuple[Shape, ...], far: tuple[_Far, ...]) -> NodeGraph:
    """The nodes of actors whose segments are one task each."""
    tasks = [_Tasks(shape, shape.numbers, shape.after) for shape in shapes]
    firsts = bounds(np.array([len(shape) for shape in shapes]))
    return _ordered(_with_messages(tasks, far, firsts), tasks, firsts)


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


def _ordered(first: Small, tasks: Sequence[_Tasks], firsts: Small) -> NodeGraph:
    """The nodes level by level; `first[i]` is the first task of the node that task i is of."""
    is_first = first == np.arange(len(first), dtype=np.int32)
    node = (np.cumsum(is_first, dtype=np.int32) - 1)[first]
    after = _joined_after(node, is_first, [each.after for each in tasks], firsts)
    order, levels = _levels(after)
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=np.int32)
    after = after.taken(order)
    for values in np.split(after.values, range(_AT_ONCE, len(after.values), _AT_ONCE)):
        values[:] = place[values]
    node = place[node]
    return NodeGraph(
        node_of=tuple(node[a:b] for a, b in pairwise(firsts.tolist())), after=after, levels=levels
    )


def _joined_after(node: Small, is_first: Bools, after: Sequence[Lists], firsts: Small) -> Lists:
    """What nodes wait for: what their first task does, then what each other task does."""
    starts, place = _places(node, is_first, np.concatenate([each.counts for each in after]))
    values = np.empty(int(starts[-1]), dtype=np.int32)
    for each, (a, b) in zip(after, pairwise(firsts.tolist()), strict=True):
        values[spans(place[a:b], each.counts)] = node[a:b][each.values]
    return Lists(starts, values)


def _places(node: Small, is_first: Bools, counts: Small) -> tuple[Small, Small]:
    """Where the list of every node starts, and in it what each task waits for.

    `counts` says how many each task waits for.
    """
    others = np.flatnonzero(~is_first)
    others = others[np.argsort(node[others], kind="stable")]
    own, more, whole = node[others], counts[others], counts[is_first]
    before = bounds(more)[:-1]
    before = whole[own] + before - before[np.searchsorted(own, own)]
    np.add.at(whole, own, more)
    starts = bounds(whole)
    place = starts[node]
    place[others] += before
    return starts, place


def _levels(after: Lists) -> tuple[Small, Small]:
    """Nodes level by level and where levels start; those that can never run come last."""
    compiled = compiled_passes(len(after.values))
    if compiled:
        return compiled.levels(after.starts, after.values)
    followers = after.turned(len(after))
    starts, counts = followers.starts[:-1], followers.counts
    missing = after.counts.copy()
    level = np.flatnonzero(missing == 0).astype(np.int32)
    order, sizes = [level], [len(level)]
    mark = np.zeros(len(after), dtype=np.int32)
    one = np.int32(1)  # a number of another kind takes ten times as long
    while len(level):
        freed = followers.values[spans(starts[level], counts[level])]
        np.subtract.at(missing, freed, one)
        ready = freed[missing[freed] == 0]
        turn = np.arange(len(ready), dtype=np.int32)
        mark[ready] = turn
        level = ready[mark[ready] == turn]
        order.append(level)
        sizes.append(len(level))
    left = np.flatnonzero(missing > 0).astype(np.int32)
    return np.concatenate((*order, left)), bounds(np.array(sizes[:-1]))
