"""The graph of a job as one list of nodes: what each waits for, and how long it takes."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Floats, Ints
from stepsim.base.structs import Noun, replace
from stepsim.core.ends import ends, listed_waits
from stepsim.core.flat import Flat, TaskRow, Tasks
from stepsim.explore.batch.lengths import LengthTable
from stepsim.run.spans import NodeWaits

Totals = tuple[Ints, Ints, Ints]
"""Of each scenario, in ps: step, pipeline, and the sum of `busy_nodes`."""


class BatchProgram(Noun, dict=True):
    """Node i takes the length with number `length[i]` after what `waits` has for it.

    The first nodes are those of the flat table. The step ends with the last of `last`, the
    pipeline with the last of `pipeline`. Ranks are together inside actions for the sum of
    `busy_lengths` (a number of times each) and of the ends of `busy_nodes` (likewise, -1 times
    where an action begins).
    """

    waits: NodeWaits
    length: tuple[int, ...]
    last: frozenset[int]
    pipeline: frozenset[int]
    busy_lengths: dict[int, int]
    busy_nodes: dict[int, int]

    def __len__(self) -> int:
        return len(self.length)

    @cached_property
    def _counted(self) -> NodeWaits:
        """The waits, of which the ends that totals are made of are the results."""
        wanted = {*self.last, *self.pipeline, *self.busy_nodes}
        return replace(self.waits, results=tuple(sorted(wanted)))

    def counted_ends(self, values: list[Ints]) -> dict[int, Ints]:
        """Ends of the nodes that totals are made of, by all lengths."""
        waits = self._counted
        found = ends(waits, (values[i] for i in self.length))
        return dict(zip(waits.results or (), found, strict=True))

    def totals(self, end: Mapping[int, Ints] | Ints, count: int) -> Totals:
        """Totals of `count` scenarios from the ends of nodes by their number."""
        step, pipeline, busy = np.zeros((3, count), np.int64)
        for node in self.last:
            np.maximum(step, end[node], out=step)
        for node in self.pipeline:
            np.maximum(pipeline, end[node], out=pipeline)
        for node, times in self.busy_nodes.items():
            busy += times * end[node]
        return step, pipeline, busy

    def times(self, values: list[Ints], count: int) -> tuple[Ints, Ints]:
        """Start and end of every node in ps, both of shape (nodes, scenarios), by all lengths."""
        end = np.empty((len(self), count), np.int64)
        for node, node_end in enumerate(ends(self.waits, (values[i] for i in self.length))):
            end[node] = node_end
        start = np.stack(np.broadcast_arrays(*values, end[0]))[list(self.length)]
        return np.subtract(end, start, out=start), end


def compile_program(flat: Flat, slow: Floats | None, table: LengthTable) -> BatchProgram:
    """The nodes of a flat table; their lengths are added to `table`.

    `slow[a]` is the factor on the compute of actor a.
    """
    writer = _NodeWriter(flat=flat, slow=slow, table=table)
    for actor in range(len(flat.actors)):
        writer.add_lengths(actor)
    for actor in range(len(flat.actors)):
        writer.add_entries(actor)
    return writer.finish()


class _NodeWriter(Struct, kw_only=True):
    flat: Flat
    slow: Floats | None
    table: LengthTable
    after: list[tuple[int, ...]] = []
    length: list[int] = []
    pipeline: list[int] = []
    busy_lengths: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    busy_nodes: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    known: dict[int, list[int]] = {}

    def __post_init__(self) -> None:
        self.after = self.flat.waits.after.tolist()
        self.length = [-1] * len(self.flat)

    def add_lengths(self, actor: int) -> None:
        """The lengths of an actor's tasks."""
        tasks = self.flat.programs[actor]
        if id(tasks) not in self.known:
            numbers = np.array([self.row_length(tasks, row, actor) for row in tasks.rows])
            self.known[id(tasks)] = numbers.take(tasks.row).tolist()
        nodes = self.flat.node_of[actor].tolist()
        for node, number in zip(nodes, self.known[id(tasks)], strict=True):
            if self.length[node] < 0:
                self.length[node] = number

    def row_length(self, tasks: Tasks, row: TaskRow, actor: int) -> int:
        """Number of the length of an actor's tasks that do the same."""
        rank, stage = int(self.flat.actors.ranks[actor]), tasks.program.stage
        slow = 1.0 if self.slow is None else float(self.slow[actor])
        if row.use:
            return self.table.comm(row.use, rank)
        if task := row.task(tasks.program):
            return self.table.task(task, stage, rank, slow)
        return self.table.task_list(tasks.program.lists[row.look.task_list], stage, rank, slow)

    def add_entries(self, actor: int) -> None:
        """When an actor is busy with entries of the schedule, and when its last one ends."""
        own, mine = self.flat.programs[actor], self.flat.node_of[actor].tolist()
        counts = int(self.flat.actors.counts[actor])
        entries = own.program.entry[own.segment]
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
            waited = {i for task in several for i in own.after[task]}
            final = [mine[task] for task in several if task not in waited]
            self.busy_nodes[self.joined([mine[i] for i in own.after[first]])] -= counts
            self.busy_nodes[self.joined(final)] += counts
        self.pipeline += final

    def joined(self, nodes: list[int]) -> int:
        """A node that ends with the last of some."""
        if len(nodes) == 1:
            return nodes[0]
        self.after.append(tuple(nodes))
        self.length.append(self.table.fixed_ps(0))
        return len(self.after) - 1

    def finish(self) -> BatchProgram:
        """The nodes in order."""
        waited = {i for each in self.after for i in each}
        return BatchProgram(
            waits=listed_waits(self.after),
            length=tuple(self.length),
            last=frozenset(set(range(len(self.after))) - waited),
            pipeline=frozenset(self.pipeline),
            busy_lengths=dict(self.busy_lengths),
            busy_nodes=dict(self.busy_nodes),
        )
