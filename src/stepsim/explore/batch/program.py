"""The graph of a job as one list of nodes: which length each has, and what totals are made of."""

from collections import Counter
from collections.abc import Mapping
from functools import cached_property, reduce

import numpy as np

from stepsim.base.arrays import Ints, ints, places_by, rows_of
from stepsim.base.structs import Noun, Numbers, replace
from stepsim.core.ends import ends
from stepsim.core.flat import Flat
from stepsim.explore.batch.lengths import LengthTable
from stepsim.run.spans import NodeWaits

Totals = tuple[Ints, Ints, Ints]
"""Of each scenario, in ps: step, pipeline, and the sum of `busy_nodes`."""


class BatchProgram(Noun, dict=True):
    """Node i of a flat table takes the length with number `length[i]` after what `waits` has.

    `rows[a]` are the numbers of the lengths of the rows of actor a's tasks. The pipeline
    ends with the last of `pipeline`. Ranks are together inside actions for the sum of
    `busy_lengths` (a number of times each) and of the latest ends of several nodes, `busy_nodes`
    (likewise, -1 times where an action begins).
    """

    waits: NodeWaits
    rows: tuple[Ints, ...]
    length: Numbers
    pipeline: frozenset[int]
    busy_lengths: Mapping[int, int]
    busy_nodes: Mapping[Numbers, int]

    @cached_property
    def _counted(self) -> NodeWaits:
        """The waits, of which the ends that totals are made of are the results."""
        wanted = {*self.waits.last, *self.pipeline}.union(*self.busy_nodes)
        return replace(self.waits, results=tuple(sorted(wanted)))

    def counted_ends(self, values: list[Ints]) -> dict[int, Ints]:
        """Ends of the nodes that totals are made of, by all lengths."""
        waits = self._counted
        found = ends(waits, (values[i] for i in self.length))
        return dict(zip(waits.results or (), found, strict=True))

    def totals(self, end: Mapping[int, Ints] | Ints, count: int) -> Totals:
        """Totals of `count` scenarios from the ends of nodes by their number."""
        step, pipeline, busy = np.zeros((3, count), np.int64)
        for node in self.waits.last:
            np.maximum(step, end[node], out=step)
        for node in self.pipeline:
            np.maximum(pipeline, end[node], out=pipeline)
        for nodes, times in self.busy_nodes.items():
            busy += times * reduce(np.maximum, [end[node] for node in nodes])
        return step, pipeline, busy

    def times(self, values: list[Ints], count: int) -> tuple[Ints, Ints]:
        """Start and end of every node in ps, both of shape (nodes, scenarios), by all lengths."""
        end = np.empty((len(self.length), count), np.int64)
        for node, node_end in enumerate(ends(self.waits, (values[i] for i in self.length))):
            end[node] = node_end
        start = np.stack(np.broadcast_arrays(*values, end[0]))[list(self.length)]
        return np.subtract(end, start, out=start), end


def compile_program(flat: Flat, table: LengthTable) -> BatchProgram:
    """The nodes of a flat table; their lengths are added to `table`."""
    known = dict[int, Ints]()
    for tasks, rank in rows_of(flat.programs, flat.actors.ranks):
        if id(tasks) not in known:
            known[id(tasks)] = ints([table.row(row, tasks.program, rank) for row in tasks.rows])
    rows = tuple(known[id(tasks)] for tasks in flat.programs)
    length: list[int] = flat.by_node(rows).tolist()
    pipeline, busy_lengths = set[int](), Counter[int]()
    busy_nodes = Counter[Numbers]()
    actors = zip(flat.programs, flat.node_of, flat.actors.counts.tolist(), strict=True)
    for tasks, nodes, count in actors:
        entry, after = tasks.program.entry.take(tasks.segment), tasks.after
        is_final = np.ones(len(tasks), bool)
        is_final[after.values[entry.take(after.owners) == entry.take(after.values)]] = False
        final = list[int]()
        for several in places_by(entry, len(tasks.program.entries)):
            final = nodes[several.compress(is_final[several])].tolist()
            if len(several) == 1:
                busy_lengths[length[final[0]]] += count
            else:
                busy_nodes[tuple(nodes[after[several[0]]].tolist())] -= count
                busy_nodes[tuple(final)] += count
        pipeline.update(final)
    del busy_nodes[()]  # what waits for nothing begins at 0
    return BatchProgram(
        waits=flat.waits,
        rows=rows,
        length=tuple(length),
        pipeline=frozenset(pipeline),
        busy_lengths=busy_lengths,
        busy_nodes=busy_nodes,
    )
