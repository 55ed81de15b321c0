"""How long things take, in every scenario: each distinct duration of a graph is found once.

A `Length` may be a sum or a longest path of earlier ones, so they are evaluated in order.
How long communications take follows from the links and sizes of a scenario.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from itertools import pairwise
from operator import or_
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints, ints
from stepsim.base.structs import Noun, Same
from stepsim.core.actions import HostPart, Task, TaskList
from stepsim.core.ends import ends, listed_waits
from stepsim.core.write import TaskGraph
from stepsim.explain.breakdown import Gaps, breakdown, list_gaps, part_of
from stepsim.explore.batch.scenarios import AXES, PHASES, Scenarios
from stepsim.network.collectives import CollectiveShape, communication_ps
from stepsim.network.prices import Prices, Use
from stepsim.run.spans import NodeWaits, TaskKind
from stepsim.workload.axes import Part, Phase
from stepsim.workload.rows import CommOp

if TYPE_CHECKING:
    from stepsim.network.contention import Contention, TransferKey


class CommLength(Noun, kw_only=False):
    """A communication in groups of one `look` on the topology.

    Where its time alone was measured, its siblings slow that as they slow the model's.
    """

    op: CommOp
    look: bytes
    shape: CollectiveShape
    alone_ps: int | None = None

    def __eq__(self, other: object) -> bool:
        """Whether it is the same communication: groups of one look have one shape."""
        return isinstance(other, CommLength) and (other.op, other.look) == (self.op, self.look)

    def __hash__(self) -> int:
        return hash((self.op, self.look))

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
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


class Length(Protocol):
    """A duration that depends on the scenario."""

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """Picoseconds, one element per scenario, or one for all."""


class FixedLength(Noun, kw_only=False):
    """A duration that is the same in every scenario."""

    duration_ps: int

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """The fixed duration in ps, for all scenarios."""
        return ints([self.duration_ps])


class ComputeLength(Noun, kw_only=False):
    """Compute of a phase, scaled and then slowed: rounded after each, as `simulate` does."""

    duration_ps: int
    phase: Phase
    slow: float

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """Picoseconds of the task, scaled by the factor of its phase in each scenario."""
        factor = scenarios.compute[:, PHASES.index(self.phase)]
        scaled: Floats = np.maximum(np.rint(self.duration_ps * factor), min(self.duration_ps, 1))
        return (scaled if self.slow == 1 else np.rint(scaled * self.slow)).astype(np.int64)


class HostLength(Noun, kw_only=False):
    """Host time that an option says; its parts are the columns of `Scenarios.host_ps`."""

    which: HostPart

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """Host time in ps, one per scenario."""
        return scenarios.host_ps[:, self.which]


class ListLength(Noun, kw_only=False, dict=True):
    """A task list that nothing interrupts: task i has length `numbers[i]`."""

    task_list: Same[TaskList]
    numbers: tuple[int, ...]

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """The longest path through the tasks."""
        total = ints([0])
        for numbers, waits, times in self._pieces:
            own = ends(waits, [earlier[number] for number in numbers])
            total = total + times * reduce(np.maximum, own)
        return total

    @cached_property
    def _pieces(self) -> list[tuple[tuple[int, ...], NodeWaits, int]]:
        """What runs one after the other: lengths of tasks, what these wait for, and how often.

        A piece begins with a task that waits for all before it, and that all after it wait for. For
        example two tasks, of which each waits for all before it, are two pieces.
        """
        after = self.task_list.it.waits.lists
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
        end = np.stack(np.broadcast_arrays(*ends(self.task_list.it.waits, durations)))
        start = end - np.stack(np.broadcast_arrays(*durations, end[0]))[:-1]
        return breakdown(gaps, start, end, np.zeros((len(Part), end.shape[1]), np.int64))


class TransferLength(Noun, kw_only=False):
    """A transfer on links that are shared in time, which meets no other."""

    key: "TransferKey"

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """Picoseconds with its links to itself and those that do the same."""
        return ints([each.transfers[self.key].duration_ps for each in scenarios.shared])


PricedComms = Mapping[int, tuple[Ints, Ints]]
"""Picoseconds of communications by number of their length: distinct ones, and which each has."""


class LengthTable(Struct, kw_only=True):
    """The distinct lengths of a graph, each after those it is made of.

    With `fixed` host times are those of the graph in every scenario; with `contention` links are
    shared in time.
    """

    graph: TaskGraph
    prices: Prices
    fixed: bool
    contention: "Contention | None" = None
    lengths: list[Length] = []
    _numbers: dict[Length, int] = {}
    _gaps: dict[int, Gaps] = {}

    def number(self, length: Length) -> int:
        """Number of a length; equal ones share it."""
        if length not in self._numbers:
            self._numbers[length] = len(self.lengths)
            self.lengths.append(length)
        return self._numbers[length]

    def comm(self, use: Use, rank: int) -> int:
        """Number of a communication's length in the group of a rank; measured alone it is fixed."""
        patterns = self.prices.patterns(use)
        if self.contention:
            return self.number(TransferLength(self.contention.key(use, patterns.row(rank))))
        pattern = patterns.look(rank)
        op = self.graph.comms[use.comm]
        shape = self.prices.shape(use, pattern)
        alone_ps = None
        if self.prices.table:
            cost = self.prices.cost(use, pattern)
            if cost.measured and not shape.is_shared:
                return self.number(FixedLength(cost.time_ps))
            alone_ps = cost.alone_ps if cost.measured else None
        return self.number(CommLength(op, patterns.key(pattern), shape, alone_ps))

    def task(self, task: Task, stage: int, rank: int, slow: float) -> int:
        """Number of the length of a task list's task on a rank."""
        if task.comm >= 0:
            return self.comm(Use(comm=task.comm, stage=stage), rank)
        if task.host_part is not None and not self.fixed:
            return self.number(HostLength(task.host_part))
        if task.kind is TaskKind.COMPUTE:
            return self.number(ComputeLength(task.duration_ps, task.phase, slow))
        return self.number(FixedLength(task.duration_ps))

    def task_list(self, task_list: TaskList, stage: int, rank: int, slow: float) -> int:
        """Number of the length of a task list that nothing interrupts."""
        numbers = tuple(self.task(task, stage, rank, slow) for task in task_list.tasks)
        return self.number(ListLength(Same(task_list), numbers))

    def priced(self, scenarios: Scenarios) -> PricedComms:
        """Ints of communications that many scenarios look alike to, each priced once."""
        known: dict[tuple[tuple[int, ...], int], tuple[Scenarios, Ints] | None] = {}
        times: dict[int, tuple[Ints, Ints]] = {}
        for number, comm in enumerate(self.lengths):
            if not isinstance(comm, CommLength):
                continue
            classes = comm.classes
            look = tuple(classes.tolist()), comm.axis
            if look not in known:
                known[look] = scenarios.distinct(classes, comm.axis)
            if found := known[look]:
                times[number] = comm.ps(found[0], ()), found[1]
        return times

    def evaluate(
        self,
        scenarios: Scenarios,
        priced: PricedComms = MappingProxyType({}),
        part: slice = slice(None),
    ) -> list[Ints]:
        """Picoseconds of every length; those of some are `priced`, for all scenarios of a part."""
        found: list[Ints] = []
        for number, length in enumerate(self.lengths):
            if number in priced:
                times, place = priced[number]
                found.append(times if len(times) == 1 else times[place[part]])
            else:
                found.append(length.ps(scenarios, found))
        return found

    def list_parts(self, values: Sequence[Ints]) -> dict[int, Ints]:
        """Parts of every task list's length by number: (parts, scenarios or 1), in ps."""
        found: dict[int, Ints] = {}
        for number, length in enumerate(self.lengths):
            if isinstance(length, ListLength):
                if number not in self._gaps:
                    tasks = length.task_list.it.tasks
                    rows = [(part_of(task, self.graph), task.after) for task in tasks]
                    self._gaps[number] = list_gaps(rows)
                found[number] = length.parts_ps(values, self._gaps[number])
        return found
