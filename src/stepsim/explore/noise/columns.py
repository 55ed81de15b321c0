"""A folded job with a column per rank: each rank has durations of its own, alike ones one program.

Ranks of a class run the same tasks, so a task is evaluated for all of them at once, as an array of
shape (ranks of the class, samples). A transfer has a column per process group: it starts when the
last of the group's members is there, and they go on when it ends. Equal to the unfolded job.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints, Lists
from stepsim.engine.lay_out import GROUPS, LaidOut, Times
from stepsim.explore.batch.evaluation import Batch
from stepsim.network.groups import lowered
from stepsim.tables.ends import EndView, NodeWaits, ends
from stepsim.workload.rows import Group


class NodeDurations(Protocol):
    """Times of tasks in ps, each of shape (columns or 1, samples)."""

    def computed(self, node: "ColumnNode") -> Times:
        """Of a task on every rank of its actor."""

    def sent(self, node: "ColumnNode") -> Times:
        """Of a transfer in every group."""


class ColumnPlaces(Struct, frozen=True, kw_only=True):
    """Columns of an actor's ranks in a transfer: rank i has column `of_rank[i]`.

    `order` sorts the ranks by column, None where they are; those of column `columns[k]` begin at
    `starts[k]` there. `members` ranks are in every column, 0 where columns differ in that.
    """

    of_rank: Ints
    order: Ints | None
    columns: Ints
    starts: Ints
    members: int

    @classmethod
    def of(cls, of_rank: Ints) -> "ColumnPlaces":
        """The columns of ranks, sorted once."""
        order = np.argsort(of_rank, kind="stable")
        columns, starts, counts = np.unique(of_rank[order], return_index=True, return_counts=True)
        return cls(
            of_rank=of_rank,
            order=None if (np.diff(order) == 1).all() else order,
            columns=columns,
            starts=starts,
            members=int(counts[0]) if (counts == counts[0]).all() else 0,
        )

    def seen_by_ranks(self, end: Times) -> Times:
        """The end of a transfer as each rank has it, from that of every column."""
        return end[self.of_rank]

    def latest(self, ready: Times, width: int) -> Times:
        """The last of the ranks of each of `width` columns; 0 where none of the actor's is."""
        if len(ready) == 1:
            found = np.asarray(np.broadcast_to(ready, (len(self.starts), ready.shape[1])))
        else:
            found = self._longest(ready if self.order is None else ready[self.order])
        if len(found) == width:
            return found
        spread: Times = np.zeros((width, found.shape[1]), dtype=np.int64)
        spread[self.columns] = found
        return spread

    def _longest(self, ready: Times) -> Times:
        """The last of each column, of ranks sorted by it; without reduceat six times as fast."""
        if self.members:
            groups = ready.reshape(len(self.starts), self.members, ready.shape[1])
            return np.asarray(groups.max(axis=1))
        found: Times = np.maximum.reduceat(ready, self.starts, axis=0)
        return found


class ColumnNode(Struct, frozen=True, kw_only=True):
    """What a node is, and how wide: `node` of the program, a task of the ranks of `actor`.

    Without a node it takes no time: all of a task's ranks are ready. With a `width` it is a
    transfer of so many groups: `actor` is then its first member, `places` have its members' ranks
    in the groups, and are empty for messages, which have a column for each rank of `actor`. With
    `members` above 1 it is a task of the slowest of so many ranks, in each of `width` groups. The
    nodes `chained` to it are tasks of the same ranks that wait for nothing else, one by one.
    """

    node: int | None = None
    chained: tuple[int, ...] = ()
    actor: int = 0
    width: int = 0
    members: int = 1
    places: Mapping[int, ColumnPlaces] = MappingProxyType({})


class _Chain(NamedTuple):
    """What the tasks of an actor wait `after`, and the `followers` that wait for them."""

    after: list[tuple[int, ...]]
    followers: list[list[int]]


def _chains(programs: Sequence[LaidOut]) -> list[_Chain]:
    """What waits for what in the program of every actor."""
    known: dict[int, _Chain] = {}
    for laid in programs:
        if id(laid) not in known:
            after = _needed(laid.after.tolist())
            followers: list[list[int]] = [[] for _ in after]
            for task, before in enumerate(after):
                for earlier in before:
                    followers[earlier].append(task)
            known[id(laid)] = _Chain(after, followers)
    return [known[id(laid)] for laid in programs]


def _needed(after: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """What every task waits for, without what others of these wait for anyhow.

    For example a task after 0 and 1, of which 1 is after 0, is after 1 alone.
    """
    return [before if len(before) < 2 else _last_of(before, after) for before in after]


def _last_of(before: tuple[int, ...], after: list[tuple[int, ...]]) -> tuple[int, ...]:
    first, open_tasks, passed = min(before), sorted(before), set[int]()
    others = {*open_tasks[:-1]}
    while open_tasks and not others <= passed:
        earlier = {task for task in after[open_tasks.pop()] if task >= first} - passed
        passed |= earlier
        open_tasks += earlier
    return tuple(task for task in before if task not in passed)


class NodeColumns:
    """The nodes of a job in an order that can run, with a column for each of some `ranks`.

    Those are all ranks of every actor, unless fewer stand for them: then ranks that are left out
    must do what one of their groups' that is there does. Where a transfer has columns of its own,
    each member's ranks are ready in a node before it. Where ranks are `alike`, times of a task are
    draws of one law: tasks for which one task alone waits, and it for nothing else, are then one
    node, and what all ranks of a group start together, and the group's transfers alone wait for,
    has a column per group: that of its slowest rank. `nodes` are in that order.
    """

    def __init__(
        self, batch: Batch, ranks: Sequence[Ints] | None = None, *, alike: bool = False
    ) -> None:
        self._batch = batch
        every = (np.flatnonzero(batch.actors.actor_of == a) for a in range(len(batch.actors)))
        self._ranks = list(every if ranks is None else ranks)
        self._alike = alike
        self._chains = _chains(batch.programs)
        self._tasks: list[list[tuple[int, int]]] = [[] for _ in batch.passes.program.length]
        self._known: dict[tuple[Group, tuple[int, ...]], tuple[int, list[ColumnPlaces]]] = {}
        self.nodes: list[ColumnNode] = []
        self._after: list[tuple[int, ...]] = []
        self._views: list[tuple[EndView | None, ...]] = []
        self._number: list[tuple[int, dict[int, ColumnPlaces]]] = []
        self._make_nodes()

    @cached_property
    def _waits(self) -> NodeWaits:
        """What the nodes wait for; the ends that nothing waits for are the results."""
        awaited = {before for after in self._after for before in after}
        last = tuple(node for node in range(len(self._after)) if node not in awaited)
        return NodeWaits(after=Lists.of(self._after), results=last, views=tuple(self._views))

    def step_time_ps(self, durations: NodeDurations, samples: int) -> Times:
        """End of the last task of every sample."""
        step: Times = np.zeros(samples, dtype=np.int64)
        for end in ends(self._waits, self._durations(durations)):
            np.maximum(step, end.max(axis=0, initial=0), out=step)
        return step

    def _durations(self, durations: NodeDurations) -> Iterator[Times]:
        nothing = np.zeros((1, 1), dtype=np.int64)
        for node in self.nodes:
            if node.node is None:
                yield nothing
            else:
                is_sent = node.width and node.members == 1
                yield durations.sent(node) if is_sent else durations.computed(node)

    def _make_nodes(self) -> None:
        """Nodes of the compiled program, with what each actor's ranks do in them."""
        for actor, nodes in enumerate(self._batch.passes.program.nodes):
            for task, node in enumerate(nodes.tolist()):
                self._tasks[node].append((actor, task))
        for node, members in enumerate(self._tasks):
            self._add_node(node, members)

    def _add_node(self, node: int, members: list[tuple[int, int]]) -> None:
        group, width, columns = self._places(members)
        if members and group is None:
            self._add_computed(node, *members[0])
            return
        if not members:
            self._add(ColumnNode(), [])
        else:
            ready = [wait for member in members for wait in self._ready(*member, columns, width)]
            self._add(
                ColumnNode(node=node, actor=members[0][0], width=width, places=columns), ready
            )
        self._number.append((len(self.nodes) - 1, columns))

    def _add_computed(self, node: int, actor: int, task: int) -> None:
        """Add a task of an actor's ranks, or of the slowest of each group, and those behind it."""
        if not self._alike:
            self._add(ColumnNode(node=node, actor=actor), self._awaited(actor, task))
            self._number.append((len(self.nodes) - 1, {}))
            return
        before = self._chains[actor].after[task]
        if len(before) == 1 and self._next(actor, before[0]) == task:
            self._number.append(self._number[self._node(actor, before[0])])
            return
        chained, last = list[int](), task
        while (following := self._next(actor, last)) is not None:
            last = following
            chained.append(self._node(actor, last))
        met = self._met(actor, task, last)
        width, members = (len(met.starts), met.members) if met else (0, 1)
        added = ColumnNode(
            node=node, chained=tuple(chained), actor=actor, width=width, members=members
        )
        self._add(added, self._awaited(actor, task, met))
        self._number.append((len(self.nodes) - 1, {actor: met} if met else {}))

    def _node(self, actor: int, task: int) -> int:
        """The number of a task's node in the program."""
        return self._batch.passes.program.nodes[actor].item(task)

    def _next(self, actor: int, task: int) -> int | None:
        """The task of the same ranks that alone waits for one, and for it alone; None without."""
        chain, group = self._chains[actor], self._batch.programs[actor].group
        following = chain.followers[task]
        if len(following) != 1 or group[task] >= 0 or group[following[0]] >= 0:
            return None
        return following[0] if len(chain.after[following[0]]) == 1 else None

    def _met(self, actor: int, task: int, last: int) -> ColumnPlaces | None:
        """The groups whose ranks start a task together, and alone wait for the last behind it."""
        after = [self._place(actor, each) for each in self._chains[actor].followers[last]]
        met = after[0] if after else None
        if met is None or met.members < 2 or any(place is not met for place in after):
            return None
        return met if self._are_columns(actor, task, met) else None

    def _place(self, actor: int, task: int) -> ColumnPlaces | None:
        """The columns of an actor's ranks in the groups of a transfer; None of other tasks."""
        _, width, columns = self._places(self._tasks[self._node(actor, task)])
        place = columns.get(actor)
        return place if place and len(place.starts) == width else None

    def _are_columns(self, actor: int, task: int, place: ColumnPlaces) -> bool:
        """Whether a task waits for something, and all of it has the columns of these groups."""
        before = self._before(actor, task)
        return bool(before) and all(columns.get(actor) is place for _, columns in before)

    def _add(self, node: ColumnNode, awaited: list[tuple[int, EndView | None]]) -> None:
        self.nodes.append(node)
        self._after.append(tuple(number for number, _ in awaited))
        self._views.append(tuple(view for _, view in awaited))

    def _ready(
        self, actor: int, task: int, columns: dict[int, ColumnPlaces], width: int
    ) -> list[tuple[int, EndView | None]]:
        """Nodes in which the ranks of a member are ready, and how the transfer sees them."""
        here = columns.get(actor)
        if here is None:
            return self._awaited(actor, task)
        if len(here.starts) == width and self._are_columns(actor, task, here):
            return self._awaited(actor, task, here)
        latest = partial(here.latest, width=width)
        awaited = self._awaited(actor, task)
        if len(awaited) == 1 and awaited[0][1] is None:
            return [(awaited[0][0], latest)]
        self._add(ColumnNode(), awaited)
        return [(len(self.nodes) - 1, latest)]

    def _awaited(
        self, actor: int, task: int, place: ColumnPlaces | None = None
    ) -> list[tuple[int, EndView | None]]:
        """Nodes that an actor's task waits for, and where its ranks are in them.

        A task with a column for each of the groups of `place` sees theirs as they are.
        """
        return [
            (
                number,
                columns[actor].seen_by_ranks
                if actor in columns and columns[actor] is not place
                else None,
            )
            for number, columns in self._before(actor, task)
        ]

    def _before(self, actor: int, task: int) -> list[tuple[int, dict[int, ColumnPlaces]]]:
        """Nodes that an actor's task waits for, and the columns of ranks in them."""
        after = self._chains[actor].after[task]
        return [self._number[self._node(actor, each)] for each in after]

    def _places(
        self, members: list[tuple[int, int]]
    ) -> tuple[Group | None, int, dict[int, ColumnPlaces]]:
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
            found = [ColumnPlaces.of(np.searchsorted(groups, each)) for each in met]
            self._known[group, actors] = len(groups), found
        width, found = self._known[group, actors]
        return group, width, dict(zip(actors, found, strict=True))
