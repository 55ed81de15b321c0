"""What a collective costs on a topology with each algorithm that may carry it out.

The cost of a step is the longest path latency of its flows plus the largest bytes over capacity of
any link they cross: latency and inverse bandwidth, as in Hockney, "The communication challenge for
MPP", Parallel Computing 20, 1994. A collective takes the least of its candidates' sums, so links
faster never make it slower.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import SimulationError
from stepsim.base.units import MAX_INT64
from stepsim.network.collectives.algorithms import UNEVEN, Algorithm, AlgorithmChoice
from stepsim.network.collectives.choices import candidates, flow_steps
from stepsim.network.collectives.flows import (
    FlowStep,
    StepShape,
    link_parameters,
    step_latencies_ps,
    step_times_ps,
    trace,
)
from stepsim.network.collectives.siblings import Siblings, shared_shape
from stepsim.network.topology import Topology
from stepsim.network.topology.layout import Layout
from stepsim.workload.rows import CollectiveKind

MEASURED = "measured"
"""What stands for the algorithm of a time that was measured."""

_LONGEST_PS = MAX_INT64 * (1 - 1e-9)  # a sum of floats below it is below 2**63 in integers too


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedAlgorithm:
    """A way to carry out a collective: `order[i]` is the number of its i-th traced step."""

    algorithm: AlgorithmChoice
    order: tuple[int, ...]
    repeats: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveShape:
    """What a collective's cost depends on, for one group on one topology.

    `steps` are the distinct steps of all candidates; there is at least one candidate.
    """

    steps: tuple[StepShape, ...]
    candidates: tuple[TracedAlgorithm, ...]
    launches: bool

    @property
    def is_shared(self) -> bool:
        """Whether siblings put more on a link that it crosses."""
        return any(step.shared is not step.loads for step in self.steps)

    def alone(self, algorithm: AlgorithmChoice) -> "CollectiveShape":
        """The shape with this candidate only, and without siblings."""
        kept = tuple(each for each in self.candidates if each.algorithm == algorithm)
        return replace(self, steps=tuple(step.alone for step in self.steps), candidates=kept)

    def uses(self) -> Ints:
        """How often each candidate (row) takes each step (column)."""
        uses = np.zeros((len(self.candidates), len(self.steps)), dtype=np.int64)
        for row, candidate in enumerate(self.candidates):
            np.add.at(uses[row], list(candidate.order), candidate.repeats)
        return uses


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Picoseconds of one of `repeat` equal steps, and how many of them are path latency."""

    time_ps: int
    latency_ps: int
    repeat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a collective takes with its fastest algorithm.

    `steps[i]` is the cost of `flow_steps(kind, layout, algorithm)[i]`; `launch_ps` and they add up
    to `time_ps`, unless that was `measured`. Nothing to send takes no time: then there are no
    steps. Without its siblings it would take `alone_ps`.
    """

    time_ps: int
    alone_ps: int
    launch_ps: int
    algorithm: AlgorithmChoice
    steps: tuple[StepCost, ...] = ()
    measured: bool = False

    @property
    def way(self) -> str:
        """The algorithm in words, or that the time was measured."""
        return MEASURED if self.measured else str(self.algorithm)

    def measured_as(self, alone_ps: int) -> "Cost":
        """The cost with the time that was measured of a lone group in place of the model's."""
        times = np.array([self.time_ps]), np.array([self.alone_ps])
        time_ps = int(with_siblings_ps(alone_ps, *times)[0])
        return replace(self, time_ps=time_ps, alone_ps=alone_ps, measured=True)

    @property
    def latency_ps(self) -> int:
        """Launch latency and path latencies: what is left with infinitely fast links."""
        return self.launch_ps + sum(step.latency_ps * step.repeat for step in self.steps)


def collective_shape(
    topology: Topology,
    kind: CollectiveKind,
    members: Ints,
    algorithm: AlgorithmChoice | Algorithm = Algorithm.AUTO,
    loads: tuple[float, ...] = (),
    siblings: Siblings | None = None,
) -> CollectiveShape:
    """Trace the flows of all candidates over a topology, equal steps once.

    `siblings` are the group and those that act with it. An all-to-all with uneven `loads` is sent
    directly. Raises PlanError when the algorithm cannot carry out the kind over these members.
    """
    layout = topology.layout(members)
    others = [topology.layout(look) for look in siblings.looks[1:]] if siblings else []
    numbers: dict[bytes, int] = {}
    shapes: list[StepShape] = []

    def number(steps: tuple[FlowStep, ...]) -> int:
        key = b"".join(step.key() for step in steps)
        if key not in numbers:
            numbers[key] = len(shapes)
            alone = trace(topology, members, steps[0])
            shapes.append(shared_shape(topology, alone, siblings, steps) if siblings else alone)
        return numbers[key]

    def steps_beside(other: Layout, choice: AlgorithmChoice) -> list[FlowStep]:
        able = candidates(kind, other, wanted, topology.algorithms)
        return flow_steps(kind, other, choice if choice in able else able[0], loads)

    found = []
    wanted = UNEVEN if loads else algorithm
    for choice in candidates(kind, layout, wanted, topology.algorithms):
        steps = flow_steps(kind, layout, choice, loads)
        beside = [steps_beside(other, choice) for other in others]
        order = tuple(
            number((step, *(each[min(i, len(each) - 1)] for each in beside)))
            for i, step in enumerate(steps)
        )
        repeats = tuple(step.repeat for step in steps)
        found.append(TracedAlgorithm(algorithm=choice, order=order, repeats=repeats))
    return CollectiveShape(
        steps=tuple(shapes),
        candidates=tuple(found),
        launches=bool(shapes) and kind is not CollectiveKind.SEND_RECV,
    )


def collective_times_ps(
    shape: CollectiveShape,
    size_bytes: Floats,
    launch_ps: Ints,
    links: tuple[Floats, Floats, Floats],
) -> tuple[Ints, Ints]:
    """Time and candidate taken for many scenarios at once; the first of equally fast candidates.

    `size_bytes` and `launch_ps` have shape (scenarios,), `links` the shapes of `link_parameters`.
    0 bytes take no time. A time of 2**63 - 1 means that or more.
    """
    scenarios = len(size_bytes)
    times = np.zeros((len(shape.steps), scenarios))
    for number, step in enumerate(shape.steps):
        with np.errstate(over="ignore"):
            times[number] = np.minimum(step_times_ps(step, size_bytes, *links), _LONGEST_PS)
    uses = shape.uses()
    overflow = uses @ times >= _LONGEST_PS
    totals = uses @ np.where(times < _LONGEST_PS, times, 0.0).astype(np.int64)
    totals[overflow] = MAX_INT64
    chosen = totals.argmin(axis=0).astype(np.int64)
    fastest = totals[chosen, np.arange(scenarios)]
    launched = np.where(fastest < MAX_INT64, fastest + launch_ps * shape.launches, fastest)
    return np.where(size_bytes > 0, launched, 0), chosen


def lone_times_ps(
    shape: CollectiveShape,
    chosen: Ints,
    size_bytes: Floats,
    launch_ps: Ints,
    links: tuple[Floats, Floats, Floats],
) -> Ints:
    """As `collective_times_ps`, without siblings, with the candidate `chosen` in each scenario."""
    times = np.zeros_like(chosen)
    for candidate in np.unique(chosen).tolist():
        alone = shape.alone(shape.candidates[candidate].algorithm)
        found = collective_times_ps(alone, size_bytes, launch_ps, links)[0]
        times = np.where(chosen == candidate, found, times)
    return times


def with_siblings_ps(measured_ps: int, shared_ps: Ints, alone_ps: Ints) -> Ints:
    """A time measured of a lone group, longer by as much as the model's is with its siblings."""
    stretch = np.divide(shared_ps, alone_ps, out=np.ones(len(alone_ps)), where=alone_ps > 0)
    stretched: Ints = np.rint(measured_ps * stretch).astype(np.int64)
    return stretched


def steps_of(shape: CollectiveShape, candidate: int) -> Iterator[tuple[StepShape, int]]:
    """The steps of a candidate in order, and how often each is repeated."""
    chosen = shape.candidates[candidate]
    for number, repeat in zip(chosen.order, chosen.repeats, strict=True):
        yield shape.steps[number], repeat


def collective_cost(topology: Topology, shape: CollectiveShape, size_bytes: int) -> Cost:
    """Cost of a traced collective of this size; raises SimulationError beyond 106 days."""
    size = np.array([float(size_bytes)])
    links = link_parameters(topology.link_classes)
    launch = np.array([topology.launch_latency_ps])
    times, chosen = collective_times_ps(shape, size, launch, links)
    candidate = shape.candidates[int(chosen[0])]
    if times[0] == MAX_INT64:
        raise SimulationError(
            f"a collective of {size_bytes} bytes takes too long on {topology.name}: "
            "at most 2**63 - 1 ps (106 days) can be simulated"
        )
    if size_bytes == 0 or not shape.steps:
        return Cost(time_ps=0, alone_ps=0, launch_ps=0, algorithm=candidate.algorithm)
    steps = tuple(
        StepCost(
            time_ps=int(step_times_ps(shape.steps[number], size, *links)[0]),
            latency_ps=int(step_latencies_ps(shape.steps[number], *links[1:])[0]),
            repeat=repeat,
        )
        for number, repeat in zip(candidate.order, candidate.repeats, strict=True)
    )
    alone_ps = lone_times_ps(shape, chosen, size, launch, links) if shape.is_shared else times
    return Cost(
        time_ps=int(times[0]),
        alone_ps=int(alone_ps[0]),
        launch_ps=topology.launch_latency_ps if shape.launches else 0,
        algorithm=candidate.algorithm,
        steps=steps,
    )


def collective_time_ps(topology: Topology, shape: CollectiveShape, size_bytes: int) -> int:
    """Picoseconds of a traced collective: launch latency and steps; 0 bytes take no time."""
    return collective_cost(topology, shape, size_bytes).time_ps
