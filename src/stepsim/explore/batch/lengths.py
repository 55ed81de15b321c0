"""How long things take, in every scenario: each distinct duration of a graph is found once.

A length may be a sum or a longest path of earlier ones, so they are evaluated in order.
How long communications take follows from the links and sizes of a scenario.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints, ints
from stepsim.base.axes import Part
from stepsim.base.structs import Noun, Numbers, Same
from stepsim.core.actions import Task, TaskList
from stepsim.core.ends import ends, listed_waits
from stepsim.core.flat import TaskRow
from stepsim.core.write import Program, TaskGraph
from stepsim.explain.breakdown import Gaps, breakdown, list_gaps
from stepsim.explore.batch.scenarios import AXES, PHASES, Scenarios
from stepsim.network.collectives import CollectiveShape, communication_ps
from stepsim.network.prices import Prices, Use
from stepsim.run.spans import NodeWaits, TaskKind
from stepsim.workload.rows import CommOp

if TYPE_CHECKING:
    from stepsim.network.contention import Contention


Length = Callable[[Scenarios, Sequence[Ints]], Ints]
"""Picoseconds of a duration, one element per scenario or one for all, from earlier lengths."""


class CommLength(Noun):
    """A communication in groups of one look on the topology.

    Where its time alone was measured, its siblings slow that as they slow the model's.
    """

    op: CommOp
    shape: CollectiveShape
    alone_ps: int | None = None

    def ps(self, scenarios: Scenarios) -> Ints:
        """By the scenario's links and sizes."""
        size: Floats = np.rint(self.op.size_bytes * scenarios.size[:, self.axis])
        launch, links = scenarios.launch_ps, scenarios.links
        return communication_ps(self.op, self.shape, size, launch, links, self.alone_ps)

    @property
    def axis(self) -> int:
        """Place of its factor on bytes in `AXES`."""
        return AXES.index(self.op.axis)

    @property
    def classes(self) -> Ints:
        """Link classes on which its time depends."""
        crossed = [step.shared + step.hops.sum(axis=0) for step in self.shape.steps]
        return np.flatnonzero(sum(crossed, start=np.zeros(1)))


def _compute_ps(task: Task, slow: float, scenarios: Scenarios) -> Ints:
    """Compute of a phase, scaled and then slowed: rounded after each, as `simulate` does."""
    factor = scenarios.compute[:, PHASES.index(task.phase)]
    scaled: Floats = np.maximum(np.rint(task.duration_ps * factor), min(task.duration_ps, 1))
    return (scaled if slow == 1 else np.rint(scaled * slow)).astype(np.int64)


class ListLength(Noun, dict=True):
    """A task list that nothing interrupts: task i has length `numbers[i]`."""

    task_list: TaskList
    numbers: Numbers

    def ps(self, earlier: Sequence[Ints]) -> Ints:
        """The longest path through the tasks."""
        total = ints([0])
        for numbers, waits, times in self._pieces:
            own = ends(waits, [earlier[number] for number in numbers])
            total = total + times * reduce(np.maximum, own)
        return total

    @cached_property
    def _pieces(self) -> list[tuple[Numbers, NodeWaits, int]]:
        """What runs one after the other: lengths of tasks, what these wait for, and how often.

        A piece begins with a task that waits for all before it, and that all after it wait for. For
        example two tasks, of which each waits for all before it, are two pieces.
        """
        after = self.task_list.waits.lists
        before, awaited, begins = list[int](), -1, [len(after)]
        for waits in after:
            before.append(reduce(or_, (before[i] | 1 << i for i in waits), 0))
        for i in reversed(range(len(after))):
            if not i or (before[i] == (1 << i) - 1 and awaited >> i & 1):
                begins.append(i)
            awaited &= before[i]
        pieces = Counter(
            (self.numbers[i:j], tuple(tuple(k - i for k in each if k >= i) for each in after[i:j]))
            for j, i in pairwise(begins)
        )
        return [(numbers, listed_waits(each), n) for (numbers, each), n in pieces.items()]

    def parts_ps(self, earlier: Sequence[Ints], gaps: Gaps) -> Ints:
        """What the list's time consists of: (parts, scenarios or 1); `gaps` are its own."""
        durations = [earlier[number] for number in self.numbers]
        end = np.stack(np.broadcast_arrays(*ends(self.task_list.waits, durations)))
        start = end - np.stack(np.broadcast_arrays(*durations, end[0]))[:-1]
        return breakdown(gaps, start, end, np.zeros((len(Part), end.shape[1]), np.int64))


PricedComms = Mapping[int, tuple[Ints, Ints]]
"""Picoseconds of communications by number of their length: distinct ones, and which each has."""


class LengthTable(Struct, kw_only=True):
    """The distinct lengths of a graph, each after those it is made of.

    `slow` are factors on the ranks' compute times. With `fixed` host times are those of the graph
    in every scenario; with `contention` links are shared in time.
    """

    graph: TaskGraph
    prices: Prices
    slow: Floats | None
    fixed: bool
    contention: "Contention | None" = None
    lengths: list[Length] = []
    comms: dict[int, CommLength] = {}
    lists: dict[int, ListLength] = {}
    _numbers: dict[object, int] = {}
    _gaps: dict[int, Gaps] = {}

    def number(self, key: object, length: Length) -> int:
        """Number of a length; those of equal keys share it."""
        if key not in self._numbers:
            self._numbers[key] = len(self.lengths)
            self.lengths.append(length)
        return self._numbers[key]

    def fixed_ps(self, duration_ps: int) -> int:
        """Number of a duration that is the same in every scenario."""
        return self.number(("fixed", duration_ps), lambda scenarios, _: ints([duration_ps]))

    def comm(self, use: Use, rank: int) -> int:
        """Number of a communication's length in the group of a rank; measured alone it is fixed.

        On links that are shared in time it is a transfer that meets no other.
        """
        patterns = self.prices.patterns(use)
        if self.contention:
            key = self.contention.key(use, patterns.row(rank))
            return self.number(
                ("transfer", key),
                lambda scenarios, _: ints(
                    [each.transfers[key].duration_ps for each in scenarios.shared]
                ),
            )
        pattern = patterns.look(rank)
        op, alone_ps = self.graph.comms[use.comm], None
        shape = self.prices.shape(use, pattern)
        if self.prices.table:
            cost = self.prices.cost(use, pattern)
            if cost.measured and not shape.is_shared:
                return self.fixed_ps(cost.time_ps)
            alone_ps = cost.alone_ps if cost.measured else None
        own = CommLength(op=op, shape=shape, alone_ps=alone_ps)
        number = self.number((op, patterns.key(pattern)), lambda scenarios, _: own.ps(scenarios))
        self.comms.setdefault(number, own)
        return number

    def row(self, row: TaskRow, program: Program, rank: int) -> int:
        """Number of the length of tasks of a rank that do the same."""
        if row.use:
            return self.comm(row.use, rank)
        task, task_list = row.task(program), row.look.task_list
        if task:
            return self.task(task, program.stage, rank)
        return self.task_list(program.lists[task_list], program.stage, rank)

    def task(self, task: Task, stage: int, rank: int) -> int:
        """Number of the length of a task list's task on a rank."""
        part = task.host_part
        if task.comm >= 0:
            return self.comm(Use(comm=task.comm, stage=stage), rank)
        if part is not None and not self.fixed:
            return self.number(("host", part), lambda scenarios, _: scenarios.host_ps[:, part])
        if task.kind is TaskKind.COMPUTE:
            slow = 1.0 if self.slow is None else float(self.slow[rank])
            key = "compute", task.duration_ps, task.phase, slow
            return self.number(key, lambda scenarios, _: _compute_ps(task, slow, scenarios))
        return self.fixed_ps(task.duration_ps)

    def task_list(self, task_list: TaskList, stage: int, rank: int) -> int:
        """Number of the length of a task list that nothing interrupts."""
        numbers = tuple(self.task(task, stage, rank) for task in task_list.tasks)
        own = ListLength(task_list=task_list, numbers=numbers)
        number = self.number((Same(task_list), numbers), lambda _, earlier: own.ps(earlier))
        self.lists.setdefault(number, own)
        return number

    def priced(self, scenarios: Scenarios) -> PricedComms:
        """Ints of communications that many scenarios look alike to, each priced once."""
        known: dict[tuple[Numbers, int], tuple[Scenarios, Ints] | None] = {}
        times: dict[int, tuple[Ints, Ints]] = {}
        for number, comm in self.comms.items():
            classes = comm.classes
            look = tuple(classes.tolist()), comm.axis
            if look not in known:
                known[look] = scenarios.distinct(classes, comm.axis)
            if found := known[look]:
                times[number] = comm.ps(found[0]), found[1]
        return times

    def evaluate(
        self,
        scenarios: Scenarios,
        priced: PricedComms,
        part: slice,
    ) -> list[Ints]:
        """Picoseconds of every length; those of some are `priced`, for all scenarios of a part."""
        found: list[Ints] = []
        for number, length in enumerate(self.lengths):
            if number in priced:
                times, place = priced[number]
                found.append(times if len(times) == 1 else times[place[part]])
            else:
                found.append(length(scenarios, found))
        return found

    def list_parts(self, values: Sequence[Ints]) -> dict[int, Ints]:
        """Parts of every task list's length by number: (parts, scenarios or 1), in ps."""
        found: dict[int, Ints] = {}
        for number, length in self.lists.items():
            if number not in self._gaps:
                self._gaps[number] = list_gaps(length.task_list)
            found[number] = length.parts_ps(values, self._gaps[number])
        return found
