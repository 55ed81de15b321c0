"""What a collective costs on a topology with each algorithm that may carry it out.

The cost of a step is the longest path latency of its flows plus the largest bytes over capacity of
any link they cross: latency and inverse bandwidth, as in Hockney, "The communication challenge for
MPP", Parallel Computing 20, 1994. A collective takes the least of its candidates' sums, so links
faster never make it slower.

Protocols on the links of a topology change capacities, latencies and the launch. What protocols
are, and which one NCCL takes, is in its `tuning.cc`: the one that ends first.

Groups may run the same collective at the same time. The flows of a step share a link evenly,
whichever group they are of, so a group waits for all bytes on the busiest link it crosses. That is
the max-min fair time of the slowest group (Bertsekas and Gallager, Data Networks, 1992, section
6.5.2): progressive filling stops first at the link with the most bytes over capacity, and there all
flows have one rate. A group that is not slowed by that link may share one with a group that is;
then it is priced as if the other took its whole share, so its time is at most too long.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from stepsim.base.arrays import Floats, Ints, Summand, add_up, distinct, ints, mark_of
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import SimulationError
from stepsim.base.structs import Noun, Numbers, replace
from stepsim.base.units import MAX_INT64, PS_PER_S
from stepsim.network.collectives.algorithms import (
    FASTEST,
    FLAT,
    Algorithm,
    AlgorithmChoice,
    candidates,
    flow_steps,
)
from stepsim.network.collectives.flows import (
    Carrier,
    FlowStep,
    Links,
    StepShape,
    link_parameters,
    step_load,
    step_times_ps,
    trace,
)
from stepsim.network.topology import Layout, Topology
from stepsim.network.topology.dimension import Library
from stepsim.workload.rows import CommOp

MEASURED = "measured"
"""What stands for the algorithm of a time that was measured."""

# What a step between nodes costs more for each doubling of the nodes beyond two.
#
# Protocols are measured on one node and two, and more nodes are later than that. With 0.1 to 0.2
# they meet all-reduce on 4, 8 and 16 nodes of 8 A100 (Azure, NetX-lab/Echo) best, below 100 MB.
_GROWTH = 0.15
_LONGEST_PS = MAX_INT64 * (1 - 1e-9)  # a sum of floats below it is below 2**63 in integers too


def carriers(
    topology: Topology,
    members: Ints,
    kind: CollectiveKind,
    algorithm: Algorithm,
    beside: Sequence[Ints],
) -> tuple[Carrier, ...]:
    """The protocols of its library that carry a kind with an algorithm among these NPUs.

    Those that name the kind stand for those that name none. `beside` are the NPUs of the group and
    its siblings.
    """
    library, names = topology.library, [link.name for link in topology.link_classes]
    filled = _in_nodes(topology, members)
    nodes = int(np.count_nonzero(filled))
    serving = [each for each in library.protocols if each.serves(kind, algorithm, nodes)]
    named = [each for each in serving if each.kinds] or serving
    flat = FLAT.get(algorithm) if kind is not CollectiveKind.SEND_RECV else None
    copied = 1 / members.shape[-1] if flat and flat.copies_own else 0.0
    reach = reach_all = np.ones(len(names))
    if named and library.reach:
        reach = _reach(library, names, int(filled.max()))
        everyone = [members, *(each.reshape(-1) for each in beside)]
        reach_all = _reach(library, names, int(_in_nodes(topology, np.concatenate(everyone)).max()))
    grown = np.ones(len(names))
    grown[1:] += _GROWTH * max(np.log2(nodes / 2), 0.0)
    return tuple(
        Carrier(
            name=each.name,
            launch_ps=each.launch_ps,
            copy_ps_per_byte=copied / each.copy_bandwidth * PS_PER_S,
            rates=np.array([each.rates.get(name, 1.0) for name in names]) * reach / reach_all,
            shared_rates=reach_all,
            steps_ps=np.rint(grown * [float(each.steps_ps.get(name, 0)) for name in names]),
        )
        for each in named
    )


def _in_nodes(topology: Topology, npus: Ints) -> Ints:
    """How many of some NPUs are in each node."""
    return np.bincount(distinct(npus) // topology.node_size).astype(np.int64)


def _reach(library: Library, names: list[str], together: int) -> Floats:
    """Share of each class's links that so many ranks of a node use together."""
    reach = np.ones(len(names))
    for link, links in library.reach:
        reach[names.index(link)] = min(1.0, links / together)
    return reach


class TracedAlgorithm(Noun):
    """A way to carry out a collective: `order[i]` is the number of its i-th traced step.

    Without a `carrier` links alone set its time.
    """

    algorithm: AlgorithmChoice
    order: Numbers
    repeats: Numbers
    carrier: Carrier | None = None

    @property
    def protocol(self) -> str:
        """Name of the protocol, empty where links alone set the time."""
        return self.carrier.name if self.carrier else ""


class CollectiveShape(Noun):
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

    def alone(self, number: int) -> "CollectiveShape":
        """The shape with one of its candidates only, and without siblings."""
        steps = tuple(step.alone for step in self.steps)
        return replace(self, steps=steps, candidates=(self.candidates[number],))

    def pipelines(self) -> list[list[int]]:
        """Numbers of the candidates that are one pipeline of chunks: its slowest level decides."""
        views: dict[tuple[AlgorithmChoice, str], list[int]] = {}
        for row, candidate in enumerate(self.candidates):
            if candidate.algorithm.chunks > 1:
                choice = replace(candidate.algorithm, view=0)
                views.setdefault((choice, candidate.protocol), []).append(row)
        return [rows for rows in views.values() if len(rows) > 1]


class StepCost(Noun):
    """Picoseconds of one of `repeat` equal steps, and how many of them are path latency."""

    time_ps: int
    latency_ps: int
    repeat: int


class Cost(Noun):
    """What a collective takes with its fastest algorithm.

    `steps[i]` is the cost of `flow_steps(kind, layout, algorithm)[i]`; `launch_ps` and they add up
    to `time_ps`, unless that was `measured`. Nothing to send takes no time: then there are no
    steps. Without its siblings it would take `alone_ps`. With a `protocol` the launch includes what
    it copies locally.
    """

    time_ps: int
    alone_ps: int
    launch_ps: int
    algorithm: AlgorithmChoice
    steps: tuple[StepCost, ...] = ()
    protocol: str = ""
    measured: bool = False

    @property
    def way(self) -> str:
        """The algorithm in words, or that the time was measured."""
        if self.measured:
            return MEASURED
        return f"{self.algorithm} {self.protocol}" if self.protocol else str(self.algorithm)

    def measured_as(self, alone_ps: int) -> "Cost":
        """The cost with the time that was measured of a lone group in place of the model's."""
        times = np.array([self.time_ps]), np.array([self.alone_ps])
        time_ps = int(with_siblings_ps(alone_ps, *times)[0])
        return replace(self, time_ps=time_ps, alone_ps=alone_ps, measured=True)

    def with_process(self, least_ps: int, process_ps: int) -> "Cost":
        """The cost where what is sent takes so long at least, and something else passes besides.

        What is above the network's time passes before its steps, like a launch.
        """
        if not self.time_ps:
            return self
        least = least_ps if least_ps > self.time_ps else 0
        more = max(least - self.time_ps, 0) + process_ps
        return replace(
            self,
            time_ps=self.time_ps + more,
            alone_ps=max(self.alone_ps, least) + process_ps,
            launch_ps=self.launch_ps + more,
        )

    @property
    def latency_ps(self) -> int:
        """Launch latency and path latencies: what is left with infinitely fast links."""
        return self.launch_ps + sum(step.latency_ps * step.repeat for step in self.steps)


_SAME = 1 + 1e-9  # sums of loads in another order differ by less


class Siblings(Noun, eq=False, dict=True):
    """Groups of NPUs that act together: `groups[i]` (a row per group) look like `looks[i]`.

    What they put on links is traced when first asked for.
    """

    topology: Topology
    looks: tuple[Ints, ...]
    groups: tuple[Ints, ...]
    _parts: dict[tuple[int, bytes], Summand] = {}

    @cached_property
    def count(self) -> int:
        """Number of groups."""
        return sum(len(each) for each in self.groups)

    @cached_property
    def key(self) -> bytes:
        """What equal siblings share."""
        return mark_of((*self.looks, *self.groups))

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """How groups of each look lie."""
        return tuple(self.topology.layout(look) for look in self.looks)

    def loads(self, look: int, steps: Sequence[FlowStep]) -> Summand:
        """What all groups put on the links that groups of a look cross; `steps[i]` is of look i."""
        parts = []
        for each, step in enumerate(steps):
            key = each, step.key()
            if key not in self._parts:
                load = step_load(self.topology, self.groups[each], step)
                self._parts[key] = load.links, load.loads
            parts.append(self._parts[key])
        links, loads = add_up(parts)
        crossed = np.isin(links, parts[look][0], assume_unique=True)
        return links[crossed], loads[crossed]


class Beside(Noun, eq=False):
    """The place of a group among its siblings: its look."""

    siblings: Siblings
    look: int

    def key(self) -> bytes:
        """What tells it from other places."""
        return self.siblings.key + str(self.look).encode()

    def shared(self, shape: StepShape, steps: Sequence[FlowStep]) -> StepShape:
        """A step's shape with the flows of all siblings on its links; `steps[i]` is of look i."""
        if self.siblings.count == 1 or not np.any(shape.loads):
            return shape
        links, loads = self.siblings.loads(self.look, steps)
        most = np.zeros_like(shape.loads)
        np.maximum.at(most, self.siblings.topology.link_class(links), loads)
        more = most > shape.loads * _SAME
        return replace(shape, shared=np.where(more, most, shape.loads)) if more.any() else shape


def collective_shape(
    topology: Topology,
    kind: CollectiveKind,
    members: Ints,
    algorithm: AlgorithmChoice = FASTEST,
    beside: Beside | None = None,
) -> CollectiveShape:
    """Trace the flows of all candidates over a topology, equal steps once.

    `beside` is the group's place among those that act with it. Raises PlanError when the algorithm
    cannot carry out the kind over these members.
    """
    layout = topology.layout(members)
    beside_npus = beside.siblings.groups if beside else ()
    numbers: dict[bytes, int] = {}
    shapes: list[StepShape] = []
    found: list[TracedAlgorithm] = []
    bare: list[TracedAlgorithm] = []
    layouts = beside.siblings.layouts if beside and beside.siblings.count > 1 else ()
    able = [candidates(kind, each, algorithm, topology.algorithms) for each in layouts]
    for choice in candidates(kind, layout, algorithm, topology.algorithms):
        steps = flow_steps(kind, layout, choice)
        every = [
            flow_steps(kind, other, choice if choice in choices else choices[0])
            for other, choices in zip(layouts, able, strict=True)
        ]
        order = []
        for i, step in enumerate(steps):
            together = [several[min(i, len(several) - 1)] for several in every]
            key = b"".join(each.key() for each in (step, *together))
            if key not in numbers:
                numbers[key] = len(shapes)
                alone = trace(topology, members, step)
                shapes.append(beside.shared(alone, together) if beside else alone)
            order.append(numbers[key])
        repeats = tuple(step.timed for step in steps)
        bare.append(TracedAlgorithm(algorithm=choice, order=tuple(order), repeats=repeats))
        found += [
            replace(bare[-1], carrier=carrier)
            for carrier in carriers(topology, members, kind, choice.algorithm, beside_npus)
        ]
    return CollectiveShape(
        steps=tuple(shapes),
        candidates=tuple(found or bare),
        launches=bool(shapes)
        and (kind is not CollectiveKind.SEND_RECV or bool(topology.library.protocols)),
    )


def collective_times_ps(
    shape: CollectiveShape,
    size_bytes: Floats,
    launch_ps: Ints,
    links: Links,
) -> tuple[Ints, Ints]:
    """Time and candidate taken for many scenarios at once; the first of equally fast candidates.

    `size_bytes` and `launch_ps` have shape (scenarios,), `links` the shapes of `link_parameters`.
    0 bytes take no time. A time of 2**63 - 1 means that or more.
    """
    scenarios = len(size_bytes)
    totals = np.stack([_total_ps(shape, each, size_bytes, links) for each in shape.candidates])
    for rows in shape.pipelines():
        most = totals[rows].argmax(axis=0)
        totals[rows] = np.where(np.arange(len(rows))[:, None] == most, totals[rows], MAX_INT64)
    chosen = totals.argmin(axis=0).astype(np.int64)
    fastest = totals[chosen, np.arange(scenarios)]
    launched = np.where(fastest < MAX_INT64, fastest + launch_ps * shape.launches, fastest)
    return np.where(size_bytes > 0, launched, 0), chosen


def communication_ps(
    op: CommOp,
    shape: CollectiveShape,
    size_bytes: Floats,
    launch_ps: Ints,
    links: Links,
    measured_ps: int | None,
) -> Ints:
    """Time of a traced communication in many scenarios, as `Prices.cost` has it of one.

    Columns may have one row for all. With the time that was `measured_ps` of a lone group, siblings
    slow that as they slow the model's. Raises SimulationError where one takes 2**63 - 1 ps or more.
    """
    rows = max(len(column) for column in (size_bytes, launch_ps, *links))
    size = np.broadcast_to(size_bytes, (rows,))
    times, chosen = collective_times_ps(shape, size, launch_ps, links)
    if (times == MAX_INT64).any():
        raise SimulationError(
            "a collective takes more than 2**63 - 1 ps (106 days) in a scenario: "
            "it cannot be simulated"
        )
    runs = times > 0
    if measured_ps is not None:
        alone = lone_times_ps(shape, chosen, size, launch_ps, links)
        times, runs = with_siblings_ps(measured_ps, times, alone), np.ones_like(runs)
    return np.where(runs, np.maximum(times, op.least_ps) + op.process_ps, 0)


def _total_ps(
    shape: CollectiveShape, candidate: TracedAlgorithm, size_bytes: Floats, links: Links
) -> Ints:
    """Times of a candidate in all scenarios, 2**63 - 1 where that or more."""
    carrier = candidate.carrier
    once = carrier.once_ps(size_bytes) if carrier else np.zeros(len(size_bytes))
    steps = np.zeros((len(candidate.order), len(size_bytes)))
    for place, number in enumerate(candidate.order):
        times = step_times_ps(shape.steps[number], size_bytes, links, carrier)[0]
        steps[place] = np.minimum(times, _LONGEST_PS)
    often = ints(candidate.repeats)
    overflow = often @ steps + once >= _LONGEST_PS
    whole = np.where(steps < _LONGEST_PS, steps, 0.0).astype(np.int64)
    total: Ints = often @ whole + np.minimum(once, _LONGEST_PS).astype(np.int64)
    total[overflow] = MAX_INT64
    return total


def lone_times_ps(
    shape: CollectiveShape,
    chosen: Ints,
    size_bytes: Floats,
    launch_ps: Ints,
    links: Links,
) -> Ints:
    """As `collective_times_ps`, without siblings, with the candidate `chosen` in each scenario."""
    times = np.zeros_like(chosen)
    for number in distinct(chosen).tolist():
        alone = collective_times_ps(shape.alone(number), size_bytes, launch_ps, links)[0]
        times = np.where(chosen == number, alone, times)
    return times


def with_siblings_ps(measured_ps: int, shared_ps: Ints, alone_ps: Ints) -> Ints:
    """A time measured of a lone group, longer by as much as the model's is with its siblings."""
    stretch = np.divide(shared_ps, alone_ps, out=np.ones(len(alone_ps)), where=alone_ps > 0)
    stretched: Ints = np.rint(measured_ps * stretch).astype(np.int64)
    return stretched


def collective_cost(
    topology: Topology, shape: CollectiveShape, size_bytes: int, *, alone: bool = False
) -> Cost:
    """Cost of a traced collective of this size; raises SimulationError beyond 106 days.

    It is `alone` with the algorithm that is the fastest beside its siblings, but without them.
    """
    size = np.array([float(size_bytes)])
    links = link_parameters(topology.link_classes)
    launch = np.array([topology.launch_latency_ps])
    times, chosen = collective_times_ps(shape, size, launch, links)
    number = int(chosen[0])
    candidate = shape.candidates[number]
    if times[0] == MAX_INT64:
        raise SimulationError(
            f"a collective of {size_bytes} bytes takes too long on {topology.name}: "
            "at most 2**63 - 1 ps (106 days) can be simulated"
        )
    if alone and shape.is_shared:
        return collective_cost(topology, shape.alone(number), size_bytes)
    if size_bytes == 0 or not shape.steps:
        return Cost(time_ps=0, alone_ps=0, launch_ps=0, algorithm=candidate.algorithm)
    once_ps = int(candidate.carrier.once_ps(size)[0]) if candidate.carrier else 0
    steps = []
    for place, repeat in zip(candidate.order, candidate.repeats, strict=True):
        time, latency = step_times_ps(shape.steps[place], size, links, candidate.carrier)
        steps.append(StepCost(time_ps=int(time[0]), latency_ps=int(latency[0]), repeat=repeat))
    alone_ps = lone_times_ps(shape, chosen, size, launch, links) if shape.is_shared else times
    return Cost(
        time_ps=int(times[0]),
        alone_ps=int(alone_ps[0]),
        launch_ps=once_ps + topology.launch_latency_ps * shape.launches,
        algorithm=candidate.algorithm,
        steps=tuple(steps),
        protocol=candidate.protocol,
    )
