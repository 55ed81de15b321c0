"""The graph of a run as one list of nodes, and its longest path level by level.

A node is a task, or a transfer of all its members. Where links are not shared in time a node ends
its duration after the last node that it waits for, so all nodes of a level, which wait for earlier
levels only, are one operation on columns.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from stepsim.base.arrays import Ints, Lists, Small, bounds, row_numbers, spans
from stepsim.base.records import dataclass
from stepsim.base.units import LARGEST_SUM
from stepsim.engine.fold import Actors
from stepsim.engine.lay_out import GROUPS, LaidOut, Times, far_actor
from stepsim.graph.programs import SegmentKind
from stepsim.parallel.ranks import ParallelPlan
from stepsim.workload.rows import Group

_MESSAGE = GROUPS.index(Group.PP)


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

    @cached_property
    def task_of(self) -> Ints:
        """The first task of each node, among the tasks of all actors one after the other."""
        every = np.concatenate(self.node_of)
        first = np.empty(len(self), dtype=np.int64)
        first[every[::-1]] = np.arange(len(every))[::-1]
        return first


def run_levels(
    programs: Sequence[LaidOut], actors: Actors, plan: ParallelPlan
) -> tuple[list[Times], list[Times]] | None:
    """Start and end in ps of every task of every actor, as the events give them.

    None where not every task can start, or the times may not fit 64 bits: events tell why.
    """
    graph = make_nodes(programs, actors, plan)
    every = np.concatenate([laid.duration_ps for laid in programs])[graph.task_of]
    if not graph.is_complete or float(every.sum(dtype=np.float64)) > LARGEST_SUM:
        return None
    start, end = _longest_path(graph, every)
    return [start[nodes] for nodes in graph.node_of], [end[nodes] for nodes in graph.node_of]


def _longest_path(graph: NodeGraph, duration_ps: Times) -> tuple[Times, Times]:
    """Start and end of every node in ps, whose sum fits 64 bits."""
    start, end = np.zeros_like(duration_ps), duration_ps.copy()
    levels = graph.levels.tolist()
    starts, values = graph.after.starts, graph.after.values
    first = starts.tolist()
    for level in range(1, len(levels) - 1):
        here, past = levels[level], levels[level + 1]
        ends = end[values[first[here] : first[past]]]
        begin = np.maximum.reduceat(ends, starts[here:past] - first[here])
        start[here:past] = begin
        end[here:past] += begin
    return start, end


def make_nodes(programs: Sequence[LaidOut], actors: Actors, plan: ParallelPlan) -> NodeGraph:
    """The nodes of the laid-out programs of all actors."""
    firsts = bounds(np.array([len(laid) for laid in programs]))
    node = np.arange(firsts[-1], dtype=np.int32)
    for actor in range(len(programs)):
        mine = node[firsts[actor] : firsts[actor + 1]]
        _join_messages(mine, actor, programs, actors, plan, firsts)
    _join_groups(node, programs, actors, firsts)
    return _ordered(node, programs, firsts)


def _join_messages(
    mine: Small,
    actor: int,
    programs: Sequence[LaidOut],
    actors: Actors,
    plan: ParallelPlan,
    firsts: Small,
) -> None:
    """Receipts of an actor are the nodes of their senders."""
    laid = programs[actor]
    program = laid.program
    tasks = np.flatnonzero(program.kind[laid.segment] == SegmentKind.RECV)
    segments = laid.segment[tasks]
    stages = program.peer_stage[segments]
    for stage in set(stages.tolist()):
        sender = far_actor(actor, stage, actors, plan)
        here = stages == stage
        mine[tasks[here]] = firsts[sender] + programs[sender].first[program.peer[segments[here]]]


def _join_groups(node: Small, programs: Sequence[LaidOut], actors: Actors, firsts: Small) -> None:
    """Members of a collective are one node, that of the first of them."""
    tasks, keys = [], []
    for actor, laid in enumerate(programs):
        for group in set(laid.group.tolist()) - {-1, _MESSAGE}:
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


def _ordered(node: Small, programs: Sequence[LaidOut], firsts: Small) -> NodeGraph:
    """The nodes level by level, by how many others must end before each."""
    total = len(node)
    owners, earlier = [], []
    for actor, laid in enumerate(programs):
        mine = node[firsts[actor] : firsts[actor + 1]]
        owners.append(mine[laid.after.owners])
        earlier.append(mine[laid.after.values])
    owner, before = np.concatenate(owners), np.concatenate(earlier)
    del owners, earlier
    order = np.argsort(owner, kind="stable")
    after = Lists(bounds(np.bincount(owner, minlength=total)), before[order])
    del owner, before, order
    is_node = node == np.arange(total)
    order, levels = _levels(after, np.flatnonzero(is_node))
    place = np.full(total, -1, dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    counts = after.counts[order]
    values = place[after.values[spans(after.starts[order], counts)]]
    return NodeGraph(
        node_of=tuple(
            place[node[a:b]] for a, b in zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True)
        ),
        after=Lists(bounds(counts), values),
        levels=levels,
    )


def _levels(after: Lists, nodes: Ints) -> tuple[Ints, Small]:
    """Nodes level by level and where levels start; those that can never run come last."""
    followers = after.turned(len(after))
    starts, counts = followers.starts[:-1], followers.counts
    missing = after.counts.copy()
    level = nodes[missing[nodes] == 0]
    order, sizes = [level], [len(level)]
    mark = np.zeros(len(after), dtype=np.int32)
    while len(level):
        freed = followers.values[spans(starts[level], counts[level])]
        np.subtract.at(missing, freed, 1)
        ready = freed[missing[freed] == 0]
        mark[ready] = np.arange(len(ready), dtype=np.int32)
        level = ready[mark[ready] == np.arange(len(ready))]
        order.append(level)
        sizes.append(len(level))
    left = nodes[missing[nodes] > 0]
    return np.concatenate((*order, left)).astype(np.int64), bounds(np.array(sizes[:-1]))
