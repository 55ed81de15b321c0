"""One pass over a program: vectors of scenarios in place of numbers."""

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
from msgspec import Struct

from stepsim.engine.layouts import Times
from stepsim.explore.batch.program import BatchProgram
from stepsim.results.critical_path import walk_back


class Totals(Struct, frozen=True, kw_only=True):
    """Of each scenario, in ps: step, pipeline, and the sum of `busy_nodes`."""

    step_time_ps: Times
    pipeline_time_ps: Times
    busy_ps: Times


class Passes(Struct, frozen=True, kw_only=True, dict=True):
    """Ways to evaluate a program; `slots` are buffers, used again after a node's last use."""

    program: BatchProgram

    @cached_property
    def slots(self) -> tuple[tuple[int, ...], int]:
        """Buffer of each node, and how many buffers there are."""
        program = self.program
        last_use = list(range(len(program)))
        for node, after in enumerate(program.after):
            for each in after:
                last_use[each] = node
        ends: list[list[int]] = [[] for _ in program.after]
        for node, use in enumerate(last_use):
            ends[use].append(node)
        slot, free, count = [0] * len(program), list[int](), 0
        for node in range(len(program)):
            if free:
                slot[node] = free.pop()
            else:
                slot[node], count = count, count + 1
            free += [slot[each] for each in ends[node]]
        return tuple(slot), count

    @cached_property
    def steps(self) -> list[tuple[int, tuple[int, ...], bool, bool, int]]:
        """Per node: its buffer, what it waits for, and which totals it is part of."""
        program, (slot, _) = self.program, self.slots
        return [
            (
                slot[node],
                tuple(slot[each] for each in after),
                node in program.last,
                node in program.pipeline,
                program.busy_nodes.get(node, 0),
            )
            for node, after in enumerate(program.after)
        ]

    def totals(self, lengths: Iterable[Times], count: int) -> Totals:
        """Totals of `count` scenarios; `lengths` are the times of the nodes, in order."""
        buffers = list(np.empty((self.slots[1], count), dtype=np.int64))
        step, pipeline, busy = np.zeros((3, count), dtype=np.int64)
        for (slot, after, last, ends, times), length in zip(self.steps, lengths, strict=True):
            out = buffers[slot]
            if len(after) == 1:
                np.add(buffers[after[0]], length, out=out)
            elif after:
                np.maximum(buffers[after[0]], buffers[after[1]], out=out)
                for each in after[2:]:
                    np.maximum(out, buffers[each], out=out)
                np.add(out, length, out=out)
            else:
                out[:] = length
            if last:
                np.maximum(step, out, out=step)
            if ends:
                np.maximum(pipeline, out, out=pipeline)
            if times:
                busy += times * out
        return Totals(step_time_ps=step, pipeline_time_ps=pipeline, busy_ps=busy)

    def totals_of(self, end: Times) -> Totals:
        """Totals of scenarios from the ends of all nodes, as `times` has them."""
        busy = np.zeros(end.shape[1], dtype=np.int64)
        for node, times in self.program.busy_nodes.items():
            busy += times * end[node]
        return Totals(
            step_time_ps=end[sorted(self.program.last)].max(axis=0),
            pipeline_time_ps=end[sorted(self.program.pipeline)].max(axis=0, initial=0),
            busy_ps=busy,
        )

    def times(self, lengths: Iterable[Times], count: int) -> tuple[Times, Times]:
        """Start and end of every node in ps, both of shape (nodes, scenarios)."""
        start, end = np.empty((2, len(self.program), count), dtype=np.int64)
        for node, (after, length) in enumerate(zip(self.program.after, lengths, strict=True)):
            begin = start[node]
            begin[:] = end[after[0]] if after else 0
            for each in after[1:]:
                np.maximum(begin, end[each], out=begin)
            np.add(begin, length, out=end[node])
        return start, end

    def path(self, start: Times, end: Times, column: int) -> Iterator[int]:
        """Nodes of the longest path of one scenario, last first."""
        final = sorted(self.program.last)
        return walk_back(
            final[int(np.argmax(end[final, column]))],
            lambda node: self.program.after[node],
            lambda node: int(start[node, column]),
            lambda node: int(end[node, column]),
        )
