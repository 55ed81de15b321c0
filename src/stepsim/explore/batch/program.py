"""The graph of a job as one list of nodes: what each waits for, and how long it takes.

A node is a task, or a transfer of all its members. Nodes are in an order in which each follows
those it waits for.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Floats, Ints, Small
from stepsim.base.errors import SimulationError
from stepsim.engine.beside import runs_beside
from stepsim.engine.lay_out import LaidOut
from stepsim.engine.nodes import NodeGraph, make_nodes
from stepsim.explore.batch.lengths import FixedLength, LengthTable
from stepsim.explore.batch.slowed import slowed_lengths
from stepsim.graph.programs import SegmentKind
from stepsim.network.fold import Actors
from stepsim.network.prices import Use
from stepsim.tables.ends import NodeWaits, ends, listed_waits
from stepsim.tables.spans import TaskKind


class BatchProgram(Struct, frozen=True, kw_only=True):
    """Node i takes the length with number `length[i]` after what `waits` has for it.

    `nodes[a][t]` is the node of task t of actor a. The step ends with the last of `last`, the
    pipeline with the last of `pipeline`. Ranks are together inside actions for the sum of
    `busy_lengths` (a number of times each) and of the ends of `busy_nodes` (likewise, -1 times
    where an action begins).
    """

    waits: NodeWaits
    length: tuple[int, ...]
    nodes: tuple[Small, ...]
    last: frozenset[int]
    pipeline: frozenset[int]
    busy_lengths: dict[int, int]
    busy_nodes: dict[int, int]

    @property
    def uses(self) -> dict[int, int]:
        """How many nodes take each length."""
        return Counter(self.length)

    def __len__(self) -> int:
        return len(self.length)


def compile_program(
    programs: Sequence[LaidOut], actors: Actors, slow: Floats | None, table: LengthTable
) -> BatchProgram:
    """Nodes of the laid-out programs of all actors; their lengths are added to `table`.

    `slow[a]` is the factor on the compute of actor a. Raises SimulationError if the programs wait
    for each other in a circle: running them tells where.
    """
    graph = make_nodes(programs, actors, table.graph.plan)
    if not graph.is_complete:
        raise SimulationError(
            f"{len(graph) - graph.waits.runnable} tasks wait for each other in a circle: "
            "simulate the job to see which"
        )
    writer = _NodeWriter(programs=programs, actors=actors, slow=slow, table=table, graph=graph)
    for actor in range(len(actors)):
        writer.add_lengths(actor)
    if table.cost:
        writer.slow_compute()
    for actor in range(len(actors)):
        writer.add_entries(actor)
    return writer.finish()


class _Streams(NamedTuple):
    """Tasks of a laid-out program that compute, and that communicate.

    `losses` are the numbers of each communication's length and of what is lost beside it.
    """

    compute: Ints
    comm: Ints
    losses: list[tuple[int, int]]


class _NodeWriter(Struct, kw_only=True):
    programs: Sequence[LaidOut]
    actors: Actors
    slow: Floats | None
    table: LengthTable
    graph: NodeGraph
    after: list[tuple[int, ...]] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    pipeline: list[int] = field(default_factory=list)
    busy_lengths: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    busy_nodes: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    known: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.after = self.graph.waits.after.tolist()
        self.length = [-1] * len(self.graph)

    def add_lengths(self, actor: int) -> None:
        """The lengths of an actor's tasks."""
        laid = self.programs[actor]
        if id(laid) not in self.known:
            self.known[id(laid)] = self.lengths(laid, actor)
        for node, number in zip(
            self.graph.node_of[actor].tolist(), self.known[id(laid)], strict=True
        ):
            if self.length[node] < 0:
                self.length[node] = number

    def lengths(self, laid: LaidOut, actor: int) -> list[int]:
        """Numbers of the lengths of a laid-out program's tasks."""
        rank, stage = int(self.actors.ranks[actor]), laid.program.stage
        slow = 1.0 if self.slow is None else float(self.slow[actor])
        numbers = np.empty(len(laid), dtype=np.int64)
        for look, inner, tasks in laid.alike():
            if look.task_list < 0:
                sends, peer = look.kind is SegmentKind.SEND, look.peer_stage
                use = Use(comm=laid.program.message, stage=stage, peer_stage=peer, sends=sends)
                numbers[tasks] = self.table.comm(use, rank)
                continue
            task_list = self.table.graph.task_lists[look.task_list]
            numbers[tasks] = (
                self.table.task_list(task_list, stage, rank, slow)
                if inner < 0
                else self.table.task(task_list.tasks[inner], stage, rank, slow)
            )
        found: list[int] = numbers.tolist()
        return found

    def slow_compute(self) -> None:
        """Compute beside communications takes as long as the job as it is says."""
        lengths = self.table.now_ps(self.length)
        end = np.array([int(each[0]) for each in ends(listed_waits(self.after), lengths)])
        start = end - np.array([int(each[0]) for each in lengths])
        known: dict[int, _Streams] = {}
        for actor, laid in enumerate(self.programs):
            own = self.graph.node_of[actor]
            if id(laid) not in known:
                known[id(laid)] = self.streams(laid, actor)
            streams = known[id(laid)]
            compute, comm = own[streams.compute], own[streams.comm]
            beside = runs_beside((start[compute], end[compute]), (start[comm], end[comm]))
            alone = [self.length[node] for node in compute.tolist()]
            found = slowed_lengths(alone, beside, streams.losses, self.table.kernels)
            for place, length in found.items():
                self.length[compute[place]] = self.table.number(length)

    def streams(self, laid: LaidOut, actor: int) -> "_Streams":
        """Which tasks of a laid-out program compute, and which communicate."""
        rank, stage = int(self.actors.ranks[actor]), laid.program.stage
        compute, comm = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        losses: list[tuple[int, int]] = []
        for look, inner, tasks in laid.alike():
            task = None
            if look.task_list >= 0 and inner >= 0:
                task = self.table.graph.task_lists[look.task_list].tasks[inner]
            if look.task_list >= 0 and (task is None or task.kind is TaskKind.COMPUTE):
                compute.append(np.asarray(tasks))
            elif task is None or task.comm >= 0:
                sends, peer = look.kind is SegmentKind.SEND, look.peer_stage
                use = (
                    Use(comm=task.comm, stage=stage)
                    if task
                    else Use(comm=laid.program.message, stage=stage, peer_stage=peer, sends=sends)
                )
                comm.append(np.asarray(tasks))
                number = self.length[self.graph.node_of[actor][tasks[0]]]
                losses += [(number, self.table.loss(number, use, rank))] * len(tasks)
        return _Streams(
            compute=np.concatenate(compute),
            comm=np.concatenate(comm),
            losses=losses,
        )

    def add_entries(self, actor: int) -> None:
        """When an actor is busy with entries of the schedule, and when its last one ends."""
        laid, mine = self.programs[actor], self.graph.node_of[actor].tolist()
        counts = int(self.actors.counts[actor])
        entries = laid.program.shape.entry[laid.segment]
        tasks: dict[int, list[int]] = defaultdict(list)
        for task in np.flatnonzero(entries >= 0).tolist():
            tasks[int(entries[task])].append(task)
        final: list[int] = []
        for several in tasks.values():
            first = several[0]
            if len(several) == 1:
                self.busy_lengths[self.length[mine[first]]] += counts
                final = [mine[first]]
                continue
            waited = {i for task in several for i in laid.after[task]}
            final = [mine[task] for task in several if task not in waited]
            self.busy_nodes[self.joined([mine[i] for i in laid.after[first]])] -= counts
            self.busy_nodes[self.joined(final)] += counts
        self.pipeline += final

    def joined(self, nodes: list[int]) -> int:
        """A node that ends with the last of some."""
        if len(nodes) == 1:
            return nodes[0]
        self.after.append(tuple(nodes))
        self.length.append(self.table.number(FixedLength(0)))
        return len(self.after) - 1

    def finish(self) -> BatchProgram:
        """The nodes in order; what a node waits for anyhow is not waited for twice."""
        direct = [frozenset(each) for each in self.after]
        after = []
        for mine in direct:
            needless = {i for each in mine for i in direct[each]} if len(mine) > 1 else frozenset()
            after.append(tuple(sorted(mine - needless)))
        waited = {i for each in after for i in each}
        return BatchProgram(
            waits=listed_waits(after),
            length=tuple(self.length),
            nodes=self.graph.node_of,
            last=frozenset(set(range(len(after))) - waited),
            pipeline=frozenset(self.pipeline),
            busy_lengths=dict(self.busy_lengths),
            busy_nodes=dict(self.busy_nodes),
        )
