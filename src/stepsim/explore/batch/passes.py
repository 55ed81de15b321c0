"""When the nodes of a program end, in many scenarios at once, and what that makes of the step."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec import Struct

from stepsim.base.structs import replace
from stepsim.engine.lay_out import Times
from stepsim.explain.critical_path import walk_back
from stepsim.explore.batch.program import BatchProgram
from stepsim.tables.ends import NodeWaits, ends


class Totals(Struct, frozen=True, kw_only=True):
    """Of each scenario, in ps: step, pipeline, and the sum of `busy_nodes`."""

    step_time_ps: Times
    pipeline_time_ps: Times
    busy_ps: Times


class Passes(Struct, frozen=True, kw_only=True, dict=True):
    """A program in scenarios: the times of its nodes, and totals."""

    program: BatchProgram

    @cached_property
    def _counted(self) -> NodeWaits:
        """The waits of the program, of which the ends that totals are made of are the results."""
        program = self.program
        wanted = {*program.last, *program.pipeline, *program.busy_nodes}
        return replace(program.waits, results=tuple(sorted(wanted)))

    def totals(self, lengths: list[Times] | Iterator[Times], count: int) -> Totals:
        """Totals of `count` scenarios; `lengths` are the times of the nodes, in order."""
        waits = self._counted
        known = zip(waits.results or (), ends(waits, lengths), strict=True)
        return self._totals(dict(known), count)

    def totals_of(self, end: Times) -> Totals:
        """Totals of scenarios from the ends of all nodes, as `times` has them."""
        return self._totals(dict(enumerate(end)), end.shape[1])

    def _totals(self, end: dict[int, Times], count: int) -> Totals:
        """Totals from the ends of nodes by their number."""
        step, pipeline, busy = np.zeros((3, count), dtype=np.int64)
        for node in self.program.last:
            np.maximum(step, end[node], out=step)
        for node in self.program.pipeline:
            np.maximum(pipeline, end[node], out=pipeline)
        for node, times in self.program.busy_nodes.items():
            busy += times * end[node]
        return Totals(step_time_ps=step, pipeline_time_ps=pipeline, busy_ps=busy)

    def times(self, lengths: list[Times], count: int) -> tuple[Times, Times]:
        """Start and end of every node in ps, both of shape (nodes, scenarios)."""
        start, end = np.empty((2, len(self.program), count), dtype=np.int64)
        for node, node_end in enumerate(ends(self.program.waits, lengths)):
            end[node] = node_end
            np.subtract(end[node], lengths[node], out=start[node])
        return start, end

    def path(self, start: Times, end: Times, column: int) -> Iterator[int]:
        """Nodes of the longest path of one scenario, last first."""
        final = sorted(self.program.last)
        return walk_back(
            final[int(np.argmax(end[final, column]))],
            self.program.waits.lists.__getitem__,
            lambda node: int(start[node, column]),
            lambda node: int(end[node, column]),
        )
