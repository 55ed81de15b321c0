"""The graph of a job as one list of nodes: what each waits for, and how long it takes.

A node is a task, or a transfer of all its members. Nodes are in an order in which each follows
those it waits for.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import SimulationError
from stepsim.base.records import dataclass
from stepsim.engine.fold import Actors
from stepsim.engine.lay_out import LaidOut, Meeting, meeting
from stepsim.explore.batch.lengths import FixedLength, LengthTable
from stepsim.graph.build import Use
from stepsim.graph.programs import SegmentKind
from stepsim.parallel.ranks import Ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgram:
    """Node i takes the length with number `length[i]` after all of `after[i]`.

    `nodes[a][t]` is the node of task t of actor a. The step ends with the last of `last`, the
    pipeline with the last of `pipeline`. Ranks are together inside actions for the sum of
    `busy_lengths` (a number of times each) and of the ends of `busy_nodes` (likewise, -1 times
    where an action begins).
    """

    after: tuple[tuple[int, ...], ...]
    length: tuple[int, ...]
    nodes: tuple[Ranks, ...]
    last: frozenset[int]
    pipeline: frozenset[int]
    busy_lengths: dict[int, int]
    busy_nodes: dict[int, int]

    def __len__(self) -> int:
        return len(self.after)


def compile_program(
    programs: Sequence[LaidOut], actors: Actors, slow: Floats | None, table: LengthTable
) -> BatchProgram:
    """Nodes of the laid-out programs of all actors; their lengths are added to `table`.

    `slow[a]` is the factor on the compute of actor a. Raises SimulationError if the programs wait
    for each other in a circle: running them tells where.
    """
    writer = _NodeWriter(programs=programs, actors=actors, slow=slow, table=table)
    for actor in range(len(actors)):
        writer.add_actor(actor)
    for actor in range(len(actors)):
        writer.add_entries(actor)
    return writer.finish()


@dataclass(slots=True, kw_only=True)
class _NodeWriter:
    programs: Sequence[LaidOut]
    actors: Actors
    slow: Floats | None
    table: LengthTable
    after: list[list[int]] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    nodes: list[list[int]] = field(default_factory=list)
    pipeline: list[int] = field(default_factory=list)
    busy_lengths: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    busy_nodes: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    meetings: dict[Meeting, int] = field(default_factory=dict)
    known: dict[int, list[int]] = field(default_factory=dict)

    def add_actor(self, actor: int) -> None:
        """A node for every task of an actor, unless it is a transfer that has one."""
        laid = self.programs[actor]
        if id(laid) not in self.known:
            self.known[id(laid)] = self.lengths(laid, actor)
        mine: list[int] = []
        for task, number in enumerate(self.known[id(laid)]):
            group = laid.group[task]
            if group is None:
                node = self.new(number)
            else:
                key, _ = meeting(laid, task, group, actor, self.actors, self.table.graph.plan)
                node = self.meetings[key] if key in self.meetings else self.new(number)
                self.meetings[key] = node
            self.after[node] += [mine[i] for i in laid.after[task]]
            mine.append(node)
        self.nodes.append(mine)

    def new(self, length: int) -> int:
        """A new node."""
        self.after.append([])
        self.length.append(length)
        return len(self.after) - 1

    def lengths(self, laid: LaidOut, actor: int) -> list[int]:
        """Numbers of the lengths of a laid-out program's tasks."""
        rank, stage = int(self.actors.ranks[actor]), laid.program.stage
        slow = 1.0 if self.slow is None else float(self.slow[actor])
        found: dict[tuple[int, int, int, bool], int] = {}
        numbers = []
        for number, inner in zip(laid.segment, laid.inner, strict=True):
            segment = laid.program.segments[number]
            sends = segment.kind is SegmentKind.SEND
            key = segment.task_list, inner, segment.peer_stage, sends
            if key not in found:
                if segment.task_list < 0:
                    peer = segment.peer_stage
                    use = Use(comm=segment.comm, stage=stage, peer_stage=peer, sends=sends)
                    found[key] = self.table.comm(use, rank)
                else:
                    task_list = self.table.graph.task_lists[segment.task_list]
                    found[key] = (
                        self.table.task_list(task_list, stage, rank, slow)
                        if inner < 0
                        else self.table.task(task_list.tasks[inner], stage, rank, slow)
                    )
            numbers.append(found[key])
        return numbers

    def add_entries(self, actor: int) -> None:
        """When an actor is busy with entries of the schedule, and when its last one ends."""
        laid, mine = self.programs[actor], self.nodes[actor]
        counts = int(self.actors.counts[actor])
        tasks: dict[int, list[int]] = defaultdict(list)
        for task, number in enumerate(laid.segment):
            entry = laid.program.segments[number].entry
            if entry >= 0:
                tasks[entry].append(task)
        ends = []
        for several in tasks.values():
            first = several[0]
            if len(several) == 1:
                self.busy_lengths[self.length[mine[first]]] += counts
                ends = [mine[first]]
                continue
            waited = {i for task in several for i in laid.after[task]}
            ends = [mine[task] for task in several if task not in waited]
            self.busy_nodes[self.joined([mine[i] for i in laid.after[first]])] -= counts
            self.busy_nodes[self.joined(ends)] += counts
        self.pipeline += ends

    def joined(self, nodes: list[int]) -> int:
        """A node that ends with the last of some."""
        if len(nodes) == 1:
            return nodes[0]
        node = self.new(self.table.number(FixedLength(0)))
        self.after[node] += nodes
        return node

    def finish(self) -> BatchProgram:
        """The nodes in order; what a node waits for anyhow is not waited for twice."""
        order = self.ordered()
        place = [0] * len(order)
        for position, node in enumerate(order):
            place[node] = position
        direct = [frozenset(each) for each in self.after]
        after = []
        for node in order:
            mine = direct[node]
            needless = {i for each in mine for i in direct[each]} if len(mine) > 1 else frozenset()
            after.append(tuple(sorted(place[i] for i in mine - needless)))
        waited = {i for each in after for i in each}
        return BatchProgram(
            after=tuple(after),
            length=tuple(self.length[node] for node in order),
            nodes=tuple(np.array([place[i] for i in mine], dtype=np.int64) for mine in self.nodes),
            last=frozenset(set(range(len(order))) - waited),
            pipeline=frozenset(place[i] for i in self.pipeline),
            busy_lengths=dict(self.busy_lengths),
            busy_nodes={place[i]: times for i, times in self.busy_nodes.items()},
        )

    def ordered(self) -> list[int]:
        """Nodes, each after those it waits for."""
        missing = [len(before) for before in self.after]
        followers: list[list[int]] = [[] for _ in self.after]
        for node, before in enumerate(self.after):
            for each in before:
                followers[each].append(node)
        order = [node for node, count in enumerate(missing) if not count]
        for node in order:
            for each in followers[node]:
                missing[each] -= 1
                if not missing[each]:
                    order.append(each)
        if len(order) < len(self.after):
            raise SimulationError(
                f"{len(self.after) - len(order)} tasks wait for each other in a circle: "
                "simulate the job to see which"
            )
        return order
