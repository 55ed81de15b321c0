"""A folded job with a column per rank: each rank has durations of its own, alike ones one program.

Ranks of a class run the same tasks, so a task is evaluated for all of them at once, as an array of
shape (ranks of the class, samples). A transfer has a column per process group: it starts when the
last of the group's members is there, and they go on when it ends. Equal to the unfolded job.
"""

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Protocol

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints, Lists
from stepsim.engine.lay_out import GROUPS, Times
from stepsim.explore.batch.evaluation import Batch
from stepsim.network.groups import lowered
from stepsim.tables.ends import EndView, NodeWaits, ends
from stepsim.workload.rows import Group


class _Durations(Protocol):
    """Times of tasks in ps, each of shape (columns or 1, samples)."""

    def computed(self, number: int, actor: int) -> Times:
        """Of length `number` on every rank of an actor."""

    def sent(self, number: int, columns: int) -> Times:
        """Of length `number` in every group."""


class _Places(Struct, frozen=True, kw_only=True):
    """Columns of an actor's ranks in a transfer: rank i has column `of_rank[i]`.

    `order` sorts the ranks by column; those of column `columns[k]` begin at `starts[k]` there.
    """

    of_rank: Ints
    order: Ints
    columns: Ints
    starts: Ints

    @classmethod
    def of(cls, of_rank: Ints) -> "_Places":
        """The columns of ranks, sorted once."""
        order = np.argsort(of_rank, kind="stable")
        columns, starts = np.unique(of_rank[order], return_index=True)
        return cls(of_rank=of_rank, order=order, columns=columns, starts=starts)

    def seen_by_ranks(self, end: Times) -> Times:
        """The end of a transfer as each rank has it, from that of every column."""
        return end[self.of_rank]

    def latest(self, ready: Times, width: int) -> Times:
        """The last of the ranks of each of `width` columns; 0 where none of the actor's is."""
        of_ranks = np.broadcast_to(ready, (len(self.order), ready.shape[1]))
        found: Times = np.maximum.reduceat(of_ranks[self.order], self.starts, axis=0)
        if len(found) == width:
            return found
        spread: Times = np.zeros((width, found.shape[1]), dtype=np.int64)
        spread[self.columns] = found
        return spread


class _Node(Struct, frozen=True, kw_only=True):
    """What a node is: how long it takes, and how wide it is.

    Without a `length` it takes no time: all of a task's ranks are ready. With `actor` it is a task
    of that actor's ranks, without one a transfer of `width` groups.
    """

    length: int | None = None
    actor: int | None = None
    width: int = 0


class NodeColumns:
    """The nodes of a job that was compiled without coalescing, in an order that can run.

    Where a transfer has columns of its own, each member's ranks are ready in a node before it.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._ranks = [np.flatnonzero(batch.actors.actor_of == a) for a in range(len(batch.actors))]
        self._known: dict[tuple[Group, tuple[int, ...]], tuple[int, list[_Places]]] = {}
        self._nodes: list[_Node] = []
        self._after: list[tuple[int, ...]] = []
        self._views: list[tuple[EndView | None, ...]] = []
        self._number: list[tuple[int, dict[int, _Places]]] = []
        self._make_nodes()

    @cached_property
    def _waits(self) -> NodeWaits:
        """What the nodes wait for; the ends that nothing waits for are the results."""
        awaited = {before for after in self._after for before in after}
        last = tuple(node for node in range(len(self._after)) if node not in awaited)
        return NodeWaits(after=Lists.of(self._after), results=last, views=tuple(self._views))

    def step_time_ps(self, durations: _Durations, samples: int) -> Times:
        """End of the last task of every sample."""
        step: Times = np.zeros(samples, dtype=np.int64)
        for end in ends(self._waits, self._durations(durations)):
            np.maximum(step, end.max(axis=0, initial=0), out=step)
        return step

    def _durations(self, durations: _Durations) -> Iterator[Times]:
        nothing = np.zeros((1, 1), dtype=np.int64)
        for node in self._nodes:
            if node.length is None:
                yield nothing
            elif node.actor is not None:
                yield durations.computed(node.length, node.actor)
            else:
                yield durations.sent(node.length, node.width)

    def _make_nodes(self) -> None:
        """Nodes of the compiled program, with what each actor's ranks do in them."""
        program = self._batch.passes.program
        tasks: list[list[tuple[int, int]]] = [[] for _ in program.length]
        for actor, nodes in enumerate(program.nodes):
            for task, node in enumerate(nodes.tolist()):
                tasks[node].append((actor, task))
        for length, members in zip(program.length, tasks, strict=True):
            self._add_node(length, members)

    def _add_node(self, length: int, members: list[tuple[int, int]]) -> None:
        group, width, columns = self._places(members)
        if not members:
            self._add(_Node(), [])
        elif group is None:
            ((actor, task),) = members
            self._add(_Node(length=length, actor=actor), self._awaited(actor, task))
        else:
            ready = [self._ready(*member, columns, width) for member in members]
            self._add(_Node(length=length, width=width), ready)
        self._number.append((len(self._nodes) - 1, columns))

    def _add(self, node: _Node, awaited: list[tuple[int, EndView | None]]) -> None:
        self._nodes.append(node)
        self._after.append(tuple(number for number, _ in awaited))
        self._views.append(tuple(view for _, view in awaited))

    def _ready(
        self, actor: int, task: int, columns: dict[int, _Places], width: int
    ) -> tuple[int, EndView | None]:
        """A node in which the ranks of a member are ready, and how the transfer sees it."""
        self._add(_Node(), self._awaited(actor, task))
        here = columns.get(actor)
        view = None if here is None else partial(here.latest, width=width)
        return len(self._nodes) - 1, view

    def _awaited(self, actor: int, task: int) -> list[tuple[int, EndView | None]]:
        """Nodes that an actor's task waits for, and where its ranks are in them."""
        nodes = self._batch.passes.program.nodes[actor]
        before = (int(nodes[i]) for i in self._batch.programs[actor].after[task])
        numbers = (self._number[node] for node in before)
        return [
            (number, columns[actor].seen_by_ranks if actor in columns else None)
            for number, columns in numbers
        ]

    def _places(
        self, members: list[tuple[int, int]]
    ) -> tuple[Group | None, int, dict[int, _Places]]:
        """Group kind of a node, its columns, and where the ranks of each actor are in them.

        A message goes from the ranks of a stage to those of another in their order.
        """
        if not members:
            return None, 0, {}
        actors = tuple(actor for actor, _ in members)
        first, task = members[0]
        number = int(self._batch.programs[first].group[task])
        group = None if number < 0 else GROUPS[number]
        if group is None or group is Group.PP:
            return group, len(self._ranks[first]), {}
        if (group, actors) not in self._known:
            span = self._batch.job.graph.plan.span(group)
            ranks = [self._ranks[actor] for actor in actors]
            met = [lowered(each, [span]) for each in ranks]
            groups = np.unique(np.concatenate(met))
            found = [_Places.of(np.searchsorted(groups, each)) for each in met]
            self._known[group, actors] = len(groups), found
        width, found = self._known[group, actors]
        return group, width, dict(zip(actors, found, strict=True))
