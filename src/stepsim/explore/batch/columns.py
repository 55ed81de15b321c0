"""A folded job with a column per rank: each rank has durations of its own, alike ones one program.

Ranks of a class run the same tasks, so a task is evaluated for all of them at once, as an array of
shape (ranks of the class, samples). A transfer has a column per process group: it starts when the
last of the group's members is there, and they go on when it ends. Equal to the unfolded job.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial

import numpy as np

from stepsim.base.arrays import Ints, Lists
from stepsim.base.axes import Group
from stepsim.base.structs import Noun, Numbers, replace
from stepsim.core.ends import ends
from stepsim.core.flat import GROUPS
from stepsim.explore.batch.evaluation import Batch
from stepsim.run.spans import EndView, NodeWaits


class ColumnPlaces(Noun):
    """Columns of an actor's ranks in a transfer: rank i has column `of_rank[i]`.

    `order` sorts the ranks by column; those of column `columns[k]` begin at `starts[k]` there.
    """

    of_rank: Ints
    order: Ints
    columns: Ints
    starts: Ints

    @classmethod
    def of(cls, of_rank: Ints) -> "ColumnPlaces":
        """The columns of ranks, sorted once."""
        order = np.argsort(of_rank, kind="stable")
        columns, starts = np.unique(of_rank[order], return_index=True)
        return cls(of_rank=of_rank, order=order, columns=columns, starts=starts)

    def seen_by_ranks(self, end: Ints) -> Ints:
        """The end of a transfer as each rank has it, from that of every column or of all alike."""
        return end if len(end) == 1 else end[self.of_rank]

    def latest(self, end: Ints, width: int, view: EndView | None = None) -> Ints:
        """The last of the ranks of each of `width` columns; 0 where none of the actor's is.

        Ranks see the end by the `view`, if there is one.
        """
        ready = view(end) if view else end
        every = np.broadcast_to(ready, (len(self.order), ready.shape[1]))[self.order]
        found: Ints = np.zeros((width, ready.shape[1]), np.int64)
        found[self.columns] = np.maximum.reduceat(every, self.starts, axis=0)
        return found


class ColumnNode(Noun):
    """What a node is, and how wide: `node` of the program, a task of the ranks of `actor`.

    With a `width` it is a transfer of so many groups: `actor` is then its first member, `places`
    have its members' ranks in the groups, and are empty for messages, which have a column for each
    rank of `actor`.
    """

    node: int
    actor: int
    width: int = 0
    places: Mapping[int, ColumnPlaces] = {}


NodeTimes = Callable[[ColumnNode], Ints]
"""What a node takes in ps, a task on every rank of its actor, a transfer in every group: of shape
(columns or 1, samples or 1)."""


class NodeColumns:
    """The nodes of a job in an order that can run, with a column for each of some `ranks`.

    Those are all ranks of every actor, unless fewer stand for them: then ranks that are left out
    must do what one of their groups' that is there does. `nodes` are in that order.
    """

    def __init__(self, batch: Batch, ranks: Sequence[Ints] | None = None) -> None:
        self._batch = batch
        every = (np.flatnonzero(batch.actors.actor_of == a) for a in range(len(batch.actors)))
        self._ranks = list(every if ranks is None else ranks)
        self._known: dict[tuple[Group, Numbers], tuple[int, list[ColumnPlaces]]] = {}
        self.nodes: list[ColumnNode] = []
        self._after: list[Numbers] = []
        self._views: list[tuple[EndView | None, ...]] = []
        members: list[list[tuple[int, int]]] = [[] for _ in range(len(batch.flat))]
        for actor, nodes in enumerate(batch.flat.node_of):
            for task, node in enumerate(nodes.tolist()):
                members[node].append((actor, task))
        for node, several in enumerate(members):
            self._add_node(node, several)

    @cached_property
    def _waits(self) -> NodeWaits:
        """What the nodes wait for; the ends that nothing waits for are the results."""
        waits = NodeWaits(after=Lists.of(self._after), views=tuple(self._views))
        return replace(waits, results=tuple(waits.last))

    def step_time_ps(self, took: NodeTimes, samples: int) -> Ints:
        """End of the last task of every sample."""
        step: Ints = np.zeros(samples, np.int64)
        for end in ends(self._waits, map(took, self.nodes)):
            np.maximum(step, end.max(axis=0, initial=0), out=step)
        return step

    def _add_node(self, node: int, members: list[tuple[int, int]]) -> None:
        """A node of the program, with what each member's ranks do in it."""
        width, places = self._places(members)
        self.nodes.append(ColumnNode(node=node, actor=members[0][0], width=width, places=places))
        awaited = [wait for member in members for wait in self._awaited(*member, places, width)]
        self._after.append(tuple(number for number, _ in awaited))
        self._views.append(tuple(view for _, view in awaited))

    def _awaited(
        self, actor: int, task: int, columns: dict[int, ColumnPlaces], width: int
    ) -> Iterator[tuple[int, EndView | None]]:
        """Nodes that an actor's task waits for, and how it sees where its ranks are in them."""
        flat = self._batch.flat
        for number in flat.node_of[actor][flat.programs[actor].after[task]].tolist():
            here, there = columns.get(actor), self.nodes[number].places.get(actor)
            view = there.seen_by_ranks if there else None
            if here is there:  # the same groups, whose members all wait for it
                view = None
            elif here:
                view = partial(here.latest, width=width, view=view)
            yield number, view

    def _places(self, members: list[tuple[int, int]]) -> tuple[int, dict[int, ColumnPlaces]]:
        """Columns of a node's groups, none for a task, and where ranks of each actor are in them.

        A message goes from the ranks of a stage to those of another in their order.
        """
        actors = tuple(actor for actor, _ in members)
        first, task = members[0]
        number = int(self._batch.flat.programs[first].group[task])
        if number < 0:
            return 0, {}
        group = GROUPS[number]
        if group is Group.PP:
            return len(self._ranks[first]), {}
        if (group, actors) not in self._known:
            plan = self._batch.job.graph.plan
            met = [plan.group_of(group, self._ranks[actor]) for actor in actors]
            groups = np.unique(np.concatenate(met))
            found = [ColumnPlaces.of(np.searchsorted(groups, each)) for each in met]
            self._known[group, actors] = len(groups), found
        width, found = self._known[group, actors]
        return width, dict(zip(actors, found, strict=True))
