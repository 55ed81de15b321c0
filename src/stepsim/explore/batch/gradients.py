"""What the critical path of a scenario runs, how often, and the slopes of that.

A duration is a maximum of smooth functions of the links, so it is smooth where one of them is the
largest on both sides; `_Bounds` tell which one it is.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.units import PS_PER_S
from stepsim.engine.lay_out import Times
from stepsim.explain.critical_path import walk_back
from stepsim.explore.batch.communications import CommLength, communication_ps
from stepsim.explore.batch.evaluation import Batch
from stepsim.explore.batch.lengths import (
    BlockLength,
    ComputeLength,
    HostLength,
    Length,
    TaskListLength,
)
from stepsim.explore.batch.scenarios import HOST, Scenarios
from stepsim.network.collectives.cost import TracedAlgorithm, steps_of
from stepsim.network.collectives.flows import StepShape
from stepsim.network.topology.nested import leaders
from stepsim.tables.ends import ends

_Bounds = tuple[tuple[tuple[int, int], ...], int]
"""Of a step: the path that takes longest, or all where they are passed in turn, each with the class
that sets its endpoint latency (-1: none), and the class whose link is slowest (-1: nothing is
sent)."""


class CriticalPath(Struct, frozen=True, kw_only=True):
    """The longest path of a scenario: how often it runs each elementary length, and their bounds.

    Two scenarios with equal paths differ by the slopes of these lengths alone.
    """

    counts: tuple[tuple[int, int], ...]
    bounds: tuple[tuple[int | _Bounds, ...], ...]


def critical_paths(batch: Batch, scenarios: Scenarios) -> tuple[Times, list[CriticalPath]]:
    """Step time of every scenario, and its longest path; ties go to the first in order."""
    values = batch.lengths(scenarios)
    program, passes = batch.passes.program, batch.passes
    start, end = passes.times([values[i] for i in program.length], len(scenarios))
    paths = []
    for column in range(len(scenarios)):
        here = [int(each[column if len(each) > 1 else 0]) for each in values]
        nodes = Counter(program.length[node] for node in passes.path(start, end, column))
        counts = tuple(sorted(_elementary(nodes, batch.table.lengths, here).items()))
        here_alone = scenarios.row(column)
        bounds = tuple(
            _bounds(length, here_alone)
            for length in (batch.table.lengths[number] for number, _ in counts)
            if isinstance(length, CommLength)
        )
        paths.append(CriticalPath(counts=counts, bounds=bounds))
    return end[sorted(program.last)].max(axis=0), paths


def _elementary(
    counts: Counter[int], lengths: Sequence[Length], values: Sequence[int]
) -> Counter[int]:
    """Task lists taken apart into the tasks on the longest paths through their blocks."""
    found: Counter[int] = Counter()
    for number, times in counts.items():
        length = lengths[number]
        if not isinstance(length, TaskListLength):
            found[number] += times
            continue
        for block, repeat in length.blocks:
            inside = lengths[block]
            assert isinstance(inside, BlockLength)
            for each in _through(inside, values):
                found[each] += times * repeat
    return Counter({number: times for number, times in found.items() if values[number]})


def _through(block: BlockLength, values: Sequence[int]) -> Iterable[int]:
    """Lengths of the tasks on the longest path through a block, last first."""
    duration_ps = np.array([values[number] for number in block.numbers], dtype=np.int64)
    end = ends(block.waits, duration_ps)
    begins, finishes = (end - duration_ps).tolist(), end.tolist()
    last = finishes.index(max(finishes))
    path = walk_back(last, block.after.__getitem__, begins.__getitem__, finishes.__getitem__)
    return (block.numbers[task] for task in path)


def _taken(length: CommLength, scenario: Scenarios) -> int:
    """The candidate that a communication takes in one scenario."""
    size_bytes = length.size_bytes(scenario)
    return int(communication_ps(length.shape, size_bytes, scenario)[1][0])


def _bounds(length: CommLength, scenario: Scenarios) -> tuple[int | _Bounds, ...]:
    """The candidate taken, and what its steps' times are the sums of."""
    taken = _taken(length, scenario)
    candidate = length.shape.candidates[taken]
    steps = steps_of(length.shape, taken)
    return taken, *(_step_bounds(step, candidate, scenario) for step, _ in steps)


def _step_bounds(step: StepShape, candidate: TracedAlgorithm, scenario: Scenarios) -> _Bounds:
    """What a step's time in ps is the sum of, see `collectives.flows.step_times_ps`."""
    _, latency, endpoint = (table[0] for table in candidate.links(scenario.links))
    slowest = int(np.argmax(candidate.sent(step, scenario.links)[0])) if np.any(step.loads) else -1
    if not len(step.hops):
        return (), slowest
    ends = np.where(step.hops > 0, endpoint, -1.0)
    longest = int(np.argmax(step.hops @ latency + np.maximum(ends.max(axis=1), 0.0)))
    paths = range(len(step.hops)) if candidate.passes(step) else (longest,)
    classes = (int(np.argmax(ends[path])) if ends[path].max() >= 0 else -1 for path in paths)
    return tuple(zip(paths, classes, strict=True)), slowest


def slopes(batch: Batch, path: CriticalPath, scenarios: Scenarios) -> dict[str, float]:
    """Derivative of the job's own step time along its path, by column name.

    `scenarios` are the job's. In ps per byte/s of a bandwidth, per ps of a latency or host time,
    and per unit of a factor.
    """
    total = dict.fromkeys(batch.setting.base(), 0.0)
    for number, times in path.counts:
        length = batch.table.lengths[number]
        if isinstance(length, ComputeLength):
            name = f"compute_scale.{length.phase}"
            total[name] += times * length.duration_ps * length.slow
        elif isinstance(length, HostLength):
            total[HOST[length.which]] += times
        elif isinstance(length, CommLength):
            _add_communication(total, batch, length, scenarios, times)
    return total


def _add_communication(
    total: dict[str, float], batch: Batch, length: CommLength, scenarios: Scenarios, times: int
) -> None:
    names = leaders(batch.setting.topology)
    taken = _taken(length, scenarios)
    candidate = length.shape.candidates[taken]
    size = float(length.size_bytes(scenarios)[0])
    total["launch_latency"] += times * length.shape.launches
    if candidate.carrier:
        copied = size * candidate.carrier.copy_ps_per_byte
        total[f"size.{length.op.axis}"] += times * copied
    for step, repeat in steps_of(length.shape, taken):
        paths, slowest = _step_bounds(step, candidate, scenarios)
        each = times * repeat
        for path, endpoint in paths:
            share = float(step.shares[path]) if candidate.passes(step) else 1.0
            for name, hops in zip(names, step.hops[path].tolist(), strict=True):
                total[f"{name}.latency"] += each * share * hops
            if endpoint >= 0:
                total[f"{names[endpoint]}.endpoint_latency"] += each * share
        if slowest >= 0:
            busy = candidate.sent(step, scenarios.links)[0, slowest]
            sending = size * busy * PS_PER_S * each
            total[f"{names[slowest]}.bandwidth"] -= sending / scenarios.bandwidth[0, slowest]
            total[f"{names[slowest]}.efficiency"] -= sending / scenarios.efficiency[0, slowest]
            total[f"size.{length.op.axis}"] += sending
