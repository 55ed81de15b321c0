"""How long things take, in every scenario: each distinct duration of a graph is found once.

A `Length` may be a sum or a longest path of earlier ones, so they are evaluated in order.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from stepsim.base.arrays import Floats, Ints
from stepsim.core.actions import HostPart, Task, TaskList
from stepsim.core.ends import ends, listed_waits
from stepsim.core.write import TaskGraph
from stepsim.explain.breakdown import Gaps, breakdown, list_gaps, part_of
from stepsim.explore.batch.communications import CommLength, MeasuredLength
from stepsim.explore.batch.scenarios import PHASES, Scenarios
from stepsim.network.prices import Prices, Use
from stepsim.run.spans import TaskKind
from stepsim.run.waits import NodeWaits
from stepsim.workload.rows import Part, Phase, Stream

_NOTHING: Mapping[int, Ints] = MappingProxyType({})


class Length(Protocol):
    """A duration that depends on the scenario."""

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """Picoseconds, one element per scenario, or one for all."""


class FixedLength(Struct, frozen=True):
    """A duration that is the same in every scenario."""

    duration_ps: int

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """The fixed duration in ps, for all scenarios."""
        return np.array([self.duration_ps], dtype=np.int64)


class ComputeLength(Struct, frozen=True):
    """Compute of a phase, scaled and then slowed: rounded after each, as `simulate` does."""

    duration_ps: int
    phase: Phase
    slow: float

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """Picoseconds of the task, scaled by the factor of its phase in each scenario."""
        factor = scenarios.compute[:, PHASES.index(self.phase)]
        scaled: Floats = np.maximum(np.rint(self.duration_ps * factor), min(self.duration_ps, 1))
        return (scaled if self.slow == 1 else np.rint(scaled * self.slow)).astype(np.int64)


class HostLength(Struct, frozen=True):
    """Host time that an option says; its parts are the columns of `Scenarios.host_ps`."""

    which: HostPart

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """Host time in ps, one per scenario."""
        return scenarios.host_ps[:, self.which]


class BlockLength(Struct, frozen=True, dict=True):
    """Tasks that nothing interrupts: task i has length `numbers[i]` and waits for `after[i]`."""

    numbers: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    parts: tuple[Part, ...]

    @cached_property
    def waits(self) -> NodeWaits:
        """What the tasks wait for."""
        return listed_waits(self.after)

    @cached_property
    def _to_last(self) -> NodeWaits:
        """The same, of which the ends of tasks that nothing waits for are the results."""
        awaited = {before for after in self.after for before in after}
        return listed_waits(self.after, [i for i in range(len(self.after)) if i not in awaited])

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """The longest path through the tasks."""
        last = ends(self._to_last, (earlier[number] for number in self.numbers))
        longest: Ints = np.maximum.reduce(np.broadcast_arrays(*last))
        return longest

    def times(self, earlier: Sequence[Ints]) -> tuple[list[Ints], list[Ints]]:
        """Start and end of each task in ps from the start of the block."""
        durations = [earlier[number] for number in self.numbers]
        end = ends(self.waits, durations)
        return [last - taken for last, taken in zip(end, durations, strict=True)], end

    @property
    def gaps(self) -> Gaps:
        """Which transfers its compute stream waits for."""
        return list_gaps([*zip(self.parts, self.after, strict=True)])

    def parts_ps(self, earlier: Sequence[Ints], gaps: Gaps) -> Ints:
        """What the block's time consists of: (parts, scenarios or 1); `gaps` are its own."""
        times = np.stack(np.broadcast_arrays(*(t for each in self.times(earlier) for t in each)))
        start, end = np.split(times, 2)
        nothing = np.zeros((len(Part), times.shape[1]), dtype=np.int64)
        return breakdown(gaps, start, end, nothing)


class TaskListLength(Struct, frozen=True):
    """A task list that nothing interrupts: blocks, one after the other, and how often each runs."""

    blocks: tuple[tuple[int, int], ...]

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """The sum of the blocks."""
        total = np.zeros(1, dtype=np.int64)
        for number, count in self.blocks:
            total = total + count * earlier[number]
        return total


class PricedComms(Struct, frozen=True):
    """Picoseconds of communications by number of their length: distinct ones, which each has."""

    times: Mapping[int, tuple[Ints, Ints]]

    def of(self, part: slice) -> dict[int, Ints]:
        """Ints of each communication in some of the scenarios."""
        return {
            number: times if len(times) == 1 else times[place[part]]
            for number, (times, place) in self.times.items()
        }


class LengthTable(Struct, kw_only=True):
    """The distinct lengths of a graph, each after those it is made of.

    With `fixed` host times are those of the graph in every scenario.
    """

    graph: TaskGraph
    prices: Prices
    fixed: bool
    lengths: list[Length] = field(default_factory=list)
    _numbers: dict[Length, int] = field(default_factory=dict)
    _gaps: dict[int, Gaps] = field(default_factory=dict)

    def number(self, length: Length) -> int:
        """Number of a length; equal ones share it."""
        if length not in self._numbers:
            self._numbers[length] = len(self.lengths)
            self.lengths.append(length)
        return self._numbers[length]

    def comm(self, use: Use, rank: int) -> int:
        """Number of a communication's length in the group of a rank; measured alone it is fixed."""
        patterns = self.prices.patterns(use)
        pattern = patterns.look(rank)
        op = self.graph.comms[use.comm]
        shape = self.prices.shape(use, pattern)
        comm = CommLength(op, patterns.key(pattern), shape)
        if self.prices.table:
            cost = self.prices.cost(use, pattern)
            if cost.measured and not shape.is_shared:
                return self.number(FixedLength(cost.time_ps))
            if cost.measured:
                return self.number(MeasuredLength(comm, cost.alone_ps))
        return self.number(comm)

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
        numbers = [self.task(task, stage, rank, slow) for task in task_list.tasks]
        counts: dict[int, int] = {}
        begins = block_starts(task_list)
        for begin, end in zip(begins, [*begins[1:], len(numbers)], strict=True):
            block = self.number(self._block(task_list.tasks[begin:end], numbers[begin:end], begin))
            counts[block] = counts.get(block, 0) + 1
        return self.number(TaskListLength(tuple(sorted(counts.items()))))

    def _block(self, tasks: Sequence[Task], numbers: Sequence[int], begin: int) -> BlockLength:
        after = [tuple(i - begin for i in task.after if i >= begin) for task in tasks]
        parts = tuple(part_of(task, self.graph) for task in tasks)
        return BlockLength(tuple(numbers), tuple(after), parts)

    def priced(self, scenarios: Scenarios) -> "PricedComms":
        """Ints of communications that many scenarios look alike to, each priced once."""
        known: dict[tuple[tuple[int, ...], int], tuple[Scenarios, Ints] | None] = {}
        times: dict[int, tuple[Ints, Ints]] = {}
        for number, length in enumerate(self.lengths):
            comm = length.comm if isinstance(length, MeasuredLength) else length
            if not isinstance(comm, CommLength):
                continue
            classes = comm.classes
            look = tuple(classes.tolist()), comm.axis
            if look not in known:
                known[look] = scenarios.distinct(classes, comm.axis)
            if found := known[look]:
                times[number] = length.ps(found[0], ()), found[1]
        return PricedComms(times)

    def evaluate(self, scenarios: Scenarios, known: Mapping[int, Ints] = _NOTHING) -> list[Ints]:
        """Picoseconds of every length; of some they are `known`, by number."""
        found: list[Ints] = []
        for number, length in enumerate(self.lengths):
            if number not in known:
                found.append(length.ps(scenarios, found))
            else:
                found.append(known[number])
        return found

    def list_parts(self, values: Sequence[Ints]) -> dict[int, Ints]:
        """Parts of every task list's length by number: (parts, scenarios or 1), in ps."""
        blocks: dict[int, Ints] = {}
        for number, length in enumerate(self.lengths):
            if isinstance(length, BlockLength):
                if number not in self._gaps:
                    self._gaps[number] = length.gaps
                blocks[number] = length.parts_ps(values, self._gaps[number])
        found: dict[int, NDArray[np.int64]] = {}
        for number, length in enumerate(self.lengths):
            if isinstance(length, TaskListLength):
                total = np.zeros((len(Part), 1), dtype=np.int64)
                for block, count in length.blocks:
                    total = total + count * blocks[block]
                found[number] = total
        return found


def block_starts(task_list: TaskList) -> list[int]:
    """Tasks of the compute stream that all earlier tasks precede and all later ones follow.

    What lies between two of them takes its own time, whatever comes before: times add up.
    """
    tasks = task_list.tasks
    before = [0] * len(tasks)
    for i, task in enumerate(tasks):
        for each in task.after:
            before[i] |= before[each] | 1 << each
    behind = [-1] * len(tasks)
    common = -1
    for i in reversed(range(len(tasks))):
        behind[i] = common
        common &= before[i] | -1 << i
    return [
        i
        for i, task in enumerate(tasks)
        if i == 0
        or (task.stream is Stream.COMPUTE and before[i] == (1 << i) - 1 and behind[i] >> i & 1)
    ]
