"""A folded job with a column per rank: each rank has durations of its own, alike ones one program.

Ranks of a class run the same tasks, so a task is evaluated for all of them at once, as an array of
shape (ranks of the class, samples). A transfer has a column per process group: it starts when the
last of the group's members is there, and they go on when it ends. Equal to the unfolded job.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.engine.layouts import GROUPS, Times
from stepsim.engine.orbits import lowered
from stepsim.explore.batch.evaluation import Batch
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

    def latest(self, ready: Times, width: int) -> Times:
        """The last of the ranks of each of `width` columns; 0 where none of the actor's is."""
        found: Times = np.maximum.reduceat(ready[self.order], self.starts, axis=0)
        if len(found) == width:
            return found
        spread: Times = np.zeros((width, found.shape[1]), dtype=np.int64)
        spread[self.columns] = found
        return spread


_After = tuple[tuple[int, _Places | None], ...]
"""Nodes that an actor's task waits for, and where its ranks are in them (None: in their order)."""


class _Node(Struct, frozen=True, kw_only=True):
    """A task, or a transfer of several members: actor, its places, what it waits for."""

    length: int
    members: tuple[tuple[int, _Places | None, _After], ...]
    width: int
    is_sent: bool


class NodeColumns:
    """The nodes of a job that was compiled without coalescing, in an order that can run."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._ranks = [np.flatnonzero(batch.actors.actor_of == a) for a in range(len(batch.actors))]
        self._known: dict[tuple[Group, tuple[int, ...]], tuple[int, list[_Places]]] = {}
        self._nodes = list(self._make_nodes())
        self._done_with = self._last_uses()

    def step_time_ps(self, durations: _Durations, samples: int) -> Times:
        """End of the last task of every sample."""
        step: Times = np.zeros(samples, dtype=np.int64)
        ends: dict[int, Times] = {}
        for number, node in enumerate(self._nodes):
            end = ends[number] = self._end(node, ends, durations, samples)
            if number in self._done_with[number]:
                np.maximum(step, end.max(axis=0, initial=0), out=step)
            for before in self._done_with[number]:
                del ends[before]
        return step

    def _end(
        self, node: _Node, ends: dict[int, Times], durations: _Durations, samples: int
    ) -> Times:
        if not node.members:
            return np.zeros((1, samples), dtype=np.int64)
        actor, _, after = node.members[0]
        if not node.is_sent:
            return self._ready(actor, after, ends, samples) + durations.computed(node.length, actor)
        start: Times = np.zeros(1, dtype=np.int64)
        for actor, places, after in node.members:
            ready = self._ready(actor, after, ends, samples)
            start = np.maximum(start, places.latest(ready, node.width) if places else ready)
        return start + durations.sent(node.length, node.width)

    def _ready(self, actor: int, after: _After, ends: dict[int, Times], samples: int) -> Times:
        """When each rank of an actor has all that a task waits for, of shape (ranks, samples)."""
        views = [
            ends[node] if there is None else ends[node][there.of_rank] for node, there in after
        ]
        if not views:
            return np.zeros((len(self._ranks[actor]), samples), dtype=np.int64)
        ready = views[0]
        for view in views[1:]:
            ready = np.maximum(ready, view)
        return ready

    def _make_nodes(self) -> Iterator[_Node]:
        """Nodes of the compiled program, with what each actor's ranks do in them."""
        program = self._batch.passes.program
        tasks: list[list[tuple[int, int]]] = [[] for _ in program.length]
        for actor, nodes in enumerate(program.nodes):
            for task, node in enumerate(nodes.tolist()):
                tasks[node].append((actor, task))
        places: list[dict[int, _Places]] = []
        for number, several in enumerate(tasks):
            group, width, mine = self._places(several)
            places.append(mine)
            members = tuple(
                (actor, mine.get(actor), self._after(actor, task, places))
                for actor, task in several
            )
            yield _Node(
                length=program.length[number],
                members=members,
                width=width,
                is_sent=group is not None,
            )

    def _after(self, actor: int, task: int, places: list[dict[int, _Places]]) -> _After:
        nodes = self._batch.passes.program.nodes[actor]
        before = (int(nodes[i]) for i in self._batch.programs[actor].after[task])
        return tuple((node, places[node].get(actor)) for node in before)

    def _places(
        self, several: list[tuple[int, int]]
    ) -> tuple[Group | None, int, dict[int, _Places]]:
        """Group kind of a node, its columns, and where the ranks of each actor are in them.

        A message goes from the ranks of a stage to those of another in their order.
        """
        if not several:
            return None, 0, {}
        actors = tuple(actor for actor, _ in several)
        first, task = several[0]
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

    def _last_uses(self) -> list[list[int]]:
        """For each node those that nothing after it waits for; itself if nothing ever does."""
        last = list(range(len(self._nodes)))
        for number, node in enumerate(self._nodes):
            for _, _, after in node.members:
                for before, _ in after:
                    last[before] = number
        found: list[list[int]] = [[] for _ in self._nodes]
        for number, use in enumerate(last):
            found[use].append(number)
        return found
