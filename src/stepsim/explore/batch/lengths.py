"""How long things take, in every scenario: each distinct duration of a graph is found once.

A `Length` may be a sum or a longest path of earlier ones, so they are evaluated in order.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from stepsim.base.arrays import Floats, Ints
from stepsim.base.units import PS_PER_S
from stepsim.core.actions import HostPart, Task, TaskList
from stepsim.core.beside import OverlapCost, runs_beside
from stepsim.core.ends import ends, listed_waits
from stepsim.core.write import TaskGraph
from stepsim.explain.breakdown import Gaps, breakdown, find_gaps, part_of, task_rows
from stepsim.explore.batch.communications import CommLength, MeasuredLength
from stepsim.explore.batch.scenarios import PHASES, Scenarios
from stepsim.explore.batch.slowed import (
    LossLength,
    SlowedLength,
    slowed_lengths,
)
from stepsim.network.prices import Prices, Use
from stepsim.run.spans import TaskKind
from stepsim.run.waits import NodeWaits
from stepsim.workload.model.slowing import Slowing
from stepsim.workload.overlap import Demands
from stepsim.workload.rows import Part, Phase, Stream

_UNKNOWN = Demands()
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
    """Compute of a phase, scaled and then slowed: rounded after each, as `simulate` does.

    `kernels` are told where communication slows them.
    """

    duration_ps: int
    phase: Phase
    slow: float
    kernels: Demands | None = None

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
        return find_gaps(task_rows(list(zip(self.parts, self.after, strict=True))))

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

    With `fixed` host times are those of the graph in every scenario. With `cost` communication
    slows compute beside it, by an estimate; `base` is the job as it is.
    """

    graph: TaskGraph
    prices: Prices
    fixed: bool
    cost: OverlapCost | None = None
    base: Scenarios | None = None
    lengths: list[Length] = field(default_factory=list)
    _numbers: dict[Length, int] = field(default_factory=dict)
    _gaps: dict[int, Gaps] = field(default_factory=dict)
    _kernels: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    _losses: dict[int, int] = field(default_factory=dict)
    _blocks: dict[BlockLength, BlockLength] = field(default_factory=dict)
    _now: list[Ints] = field(default_factory=list)

    def number(self, length: Length) -> int:
        """Number of a length; equal ones share it."""
        if length not in self._numbers:
            self._numbers[length] = len(self.lengths)
            self.lengths.append(length)
            if self.base is not None:
                self._now.append(length.ps(self.base, self._now))
        return self._numbers[length]

    def now_ps(self, numbers: Iterable[int]) -> list[Ints]:
        """Picoseconds of lengths in the job as it is."""
        return [self._now[number] for number in numbers]

    def comm(self, use: Use, rank: int) -> int:
        """Number of a communication's length in the group of a rank; measured alone it is fixed."""
        patterns = self.prices.patterns(use)
        pattern = patterns.look(rank)
        op = self.graph.comms[use.comm]
        shape = self.prices.shape(op, patterns, pattern)
        comm = CommLength(op, patterns.key(pattern), shape)
        if self.prices.table:
            cost = self.prices.cost(op, patterns, pattern)
            if cost.measured and not shape.is_shared:
                return self.number(FixedLength(cost.time_ps))
            if cost.measured:
                return self.number(MeasuredLength(comm, cost.alone_ps))
        return self.number(comm)

    def loss(self, number: int, use: Use, rank: int) -> int:
        """Number of what is lost beside a communication whose length has a number."""
        if number not in self._losses:
            assert self.cost is not None
            patterns = self.prices.patterns(use)
            npus = patterns.npus[patterns.row(rank)]
            length = LossLength(
                comm=number,
                op=self.graph.comms[use.comm],
                members=len(npus),
                is_far=len(np.unique(npus // self.prices.topology.node_size)) > 1,
                carrier=self.cost.carrier(use, rank, self.prices),
                slowing=Slowing(gpu=self.cost.gpu, sms=self.cost.sms),
            )
            self._losses[number] = self.number(length)
        return self._losses[number]

    def task(self, task: Task, stage: int, rank: int, slow: float) -> int:
        """Number of the length of a task list's task on a rank."""
        if task.comm >= 0:
            return self.comm(Use(comm=task.comm, stage=stage), rank)
        if task.host_part is not None and not self.fixed:
            return self.number(HostLength(task.host_part))
        if task.kind is TaskKind.COMPUTE:
            kernels = (task.kernels.demands or _UNKNOWN) if self.cost else None
            return self.number(ComputeLength(task.duration_ps, task.phase, slow, kernels))
        return self.number(FixedLength(task.duration_ps))

    def task_list(self, task_list: TaskList, stage: int, rank: int, slow: float) -> int:
        """Number of the length of a task list that nothing interrupts."""
        numbers = [self.task(task, stage, rank, slow) for task in task_list.tasks]
        counts: dict[int, int] = {}
        begins = block_starts(task_list)
        for begin, end in zip(begins, [*begins[1:], len(numbers)], strict=True):
            tasks = task_list.tasks[begin:end]
            length = self._block(tasks, numbers[begin:end], begin)
            if self.cost:
                for number, task in zip(length.numbers, tasks, strict=True):
                    if task.comm >= 0:
                        self.loss(number, Use(comm=task.comm, stage=stage), rank)
                length = self._slowed(length)
            block = self.number(length)
            counts[block] = counts.get(block, 0) + 1
        return self.number(TaskListLength(tuple(sorted(counts.items()))))

    def kernels(self, number: int, loss: int) -> tuple[float, float]:
        """For which share of its time a length computes, and how much of a loss it takes.

        A loss is what products would lose; both are those of the job as it is.
        """
        key = number, loss
        if key not in self._kernels:
            busy = [(self._now[each][0], count, each) for each, count in self._computed(number)]
            whole, computed = float(self._now[number][0]), sum(t * count for t, count, _ in busy)
            lost = sum(t * count * self._weight(each, loss) for t, count, each in busy)
            self._kernels[key] = (
                min(computed / whole, 1.0) if whole else 0.0,
                lost / computed if computed else 0.0,
            )
        return self._kernels[key]

    def _computed(self, number: int) -> list[tuple[int, int]]:
        """Numbers of the compute that a length is made of, and how often it runs."""
        length = self.lengths[number]
        if isinstance(length, TaskListLength):
            return [
                (own, count * times)
                for block, count in length.blocks
                for own, times in self._computed(block)
            ]
        if isinstance(length, BlockLength):
            return [each for own in length.numbers for each in self._computed(own)]
        if isinstance(length, SlowedLength):
            return self._computed(length.alone)
        return [(number, 1)] if isinstance(length, ComputeLength) else []

    def _weight(self, compute: int, loss: int) -> float:
        """How much of what products lose beside a communication the kernels of compute lose."""
        length, beside = self.lengths[compute], self.lengths[loss]
        assert isinstance(length, ComputeLength)
        assert isinstance(beside, LossLength)
        assert self.base is not None
        lost, taken_ps = float(self._now[loss][0]), float(self._now[compute][0])
        if not (lost and taken_ps and length.kernels):
            return 1.0
        kernels = length.kernels, taken_ps / PS_PER_S
        return float(beside.beside(self.base, self._now[beside.comm], kernels)[0]) / lost

    def _slowed(self, block: BlockLength) -> BlockLength:
        """A block whose compute is slowed by its own communications."""
        if block in self._blocks:
            return self._blocks[block]
        places = range(len(block.numbers))
        computes = [i for i in places if isinstance(self.lengths[block.numbers[i]], ComputeLength)]
        comms = [i for i in places if block.numbers[i] in self._losses]
        numbers = list(block.numbers)
        if computes and comms:
            start, end = (np.concatenate(columns) for columns in block.times(self._now))
            beside = runs_beside((start[computes], end[computes]), (start[comms], end[comms]))
            alone = [numbers[i] for i in computes]
            losses = [(numbers[i], self._losses[numbers[i]]) for i in comms]
            found = slowed_lengths(alone, beside, losses, self.kernels)
            for place, length in found.items():
                numbers[computes[place]] = self.number(length)
        self._blocks[block] = BlockLength(tuple(numbers), block.after, block.parts)
        return self._blocks[block]

    def _block(self, tasks: Sequence[Task], numbers: Sequence[int], begin: int) -> BlockLength:
        after = [tuple(i - begin for i in task.after if i >= begin) for task in tasks]
        parts = tuple(part_of(task, self.graph) for task in tasks)
        return BlockLength(tuple(numbers), tuple(after), parts)

    def priced(self, scenarios: Scenarios) -> "PricedComms":
        """Ints of communications that many scenarios look alike to, each priced once."""
        known: dict[tuple[tuple[int, ...], int], tuple[Scenarios, Ints] | None] = {}
        times: dict[int, tuple[Ints, Ints]] = {}
        alike: dict[int, tuple[Scenarios, Ints]] = {}
        for number, length in enumerate(self.lengths):
            if isinstance(length, LossLength) and length.comm in alike:
                some, which = alike[length.comm]
                times[number] = length.beside(some, times[length.comm][0]), which
            comm = length.comm if isinstance(length, MeasuredLength) else length
            if not isinstance(comm, CommLength):
                continue
            classes = comm.classes
            look = tuple(classes.tolist()), comm.axis
            if look not in known:
                known[look] = scenarios.distinct(classes, comm.axis)
            if found := known[look]:
                times[number] = length.ps(found[0], ()), found[1]
                alike[number] = found
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
            elif isinstance(length, SlowedLength) and length.alone in found:
                longer = values[number] - values[length.alone]
                total = np.repeat(found[length.alone], len(longer), axis=1)
                found[number] = total[:, -len(longer) :]
                found[number][Part.COMPUTE] += longer
        return found

    def slowed_ps(self, values: Sequence[Ints]) -> dict[int, Ints]:
        """By how much lengths are longer beside communications, by number, in ps."""
        longer: dict[int, Ints] = {}
        for number, length in enumerate(self.lengths):
            own: list[tuple[int, int]] = []
            if isinstance(length, SlowedLength):
                longer[number] = values[number] - values[length.alone]
                own = [(length.alone, 1)]
            elif isinstance(length, TaskListLength):
                own = [*length.blocks]
            elif isinstance(length, BlockLength):
                own = [(each, 1) for each in length.numbers]
            for each, count in own:
                if each in longer:
                    longer[number] = longer.get(number, 0) + count * longer[each]
        return longer


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
