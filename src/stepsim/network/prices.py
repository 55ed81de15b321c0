"""What every communication of a step costs, in every group that carries it out.

Groups that look alike on the topology cost the same, so each distinct pattern is traced once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Ints
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.network.collectives import (
    Algorithm,
    AlgorithmChoice,
    CollectiveShape,
    Cost,
    FlowStep,
    collective_cost,
    collective_shape,
    flow_steps,
    parse_algorithms,
)
from stepsim.network.groups import GroupPatterns, find_patterns, stages_turn
from stepsim.network.topology import Topology
from stepsim.network.topology.nested import same_but_numbers
from stepsim.parallel.modes import Sharing
from stepsim.parallel.ranks import ParallelPlan, Ranks
from stepsim.workload.rows import CollectiveKind, CommOp, Group

if TYPE_CHECKING:
    from stepsim.network.fold import Actors
    from stepsim.network.measured_times import CommTable


class Use(NamedTuple):
    """A communication as a stage uses it.

    For messages `peer_stage` is the stage at the other end (-1 for collectives) and `sends` says
    whether this one sends.
    """

    comm: int
    stage: int
    peer_stage: int = -1
    sends: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        """Stages of sender and receiver of a message; of a collective, its stage twice."""
        if self.peer_stage < 0:
            return self.stage, self.stage
        return (self.stage, self.peer_stage) if self.sends else (self.peer_stage, self.stage)


class PhasePrice(Struct, frozen=True, kw_only=True, eq=False):
    """A part of a communication: latency without traffic, then the flows of `step`.

    The flows take `alone_ps` when nothing else uses their links; the largest goes at `rate` bytes/s
    where a protocol may leave links idle, else as fast as they let it (infinite).
    """

    latency_ps: int
    alone_ps: int
    step: FlowStep
    rate: float = inf


_Ps = TypeVar("_Ps", int, Ints)
_MOST = 4096
"""Prices of a network up to which the next job on it takes what is known."""
_ShapeKey = tuple[CollectiveKind, bytes]
"""Kind of a communication, and the look of its group."""


class Prices(Struct, kw_only=True):
    """Duration of communications by rank, in ps; shapes are traced when first asked for.

    `algorithms` are those asked for; other kinds take the fastest beside their siblings, also where
    links are shared fairly, for then sharing slows them when they run. Times in `table` replace the
    model's for groups that hold equally many ranks of each of their nodes. `folds` are classes of
    ranks at these prices, kept by who talks to whom.
    Where all stages lie alike, and links are not shared in time, groups are those of the first
    stage.
    """

    plan: ParallelPlan
    topology: Topology
    comms: tuple[CommOp, ...]
    algorithms: Mapping[CollectiveKind, AlgorithmChoice] = field(default_factory=dict)
    table: "CommTable | None" = None
    sharing: Sharing = Sharing.NONE
    folds: "dict[tuple[object, ...], Actors]" = field(default_factory=dict)
    _stages_alike: bool = False
    _groups: dict[Group, GroupPatterns] = field(default_factory=dict)
    _pairs: dict[tuple[int, int], GroupPatterns] = field(default_factory=dict)
    _shapes: dict[_ShapeKey, CollectiveShape] = field(default_factory=dict)
    _steps: dict[tuple[object, ...], list[FlowStep]] = field(default_factory=dict)
    _costs: dict[tuple[CommOp, bytes], Cost] = field(default_factory=dict)
    _phases: dict[tuple[CommOp, bytes], tuple[PhasePrice, ...]] = field(default_factory=dict)
    _durations: dict[tuple[int, bytes], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_shared = self.sharing is Sharing.FAIR
        self._stages_alike = not is_shared and stages_turn(self.plan, self.topology)
        self._durations = {}  # a copy has durations of its own: they go by numbers of `comms`

    def serve(self, plan: ParallelPlan) -> bool:
        """Whether prices of another job hold on their network: they know no microbatches."""
        if (self.plan.pp, self.plan.npus) != (plan.pp, plan.npus):
            return False
        return replace(self.plan, microbatches=plan.microbatches) == plan

    def of(self, other: "Prices") -> "Prices":
        """The prices of a step that these serve; what is found for one is known to both."""
        return replace(self, plan=other.plan, comms=other.comms)

    def on(self, topology: Topology) -> "Prices":
        """The prices on a network with other numbers: how groups lie and flow is found already."""
        return replace(self, topology=topology, _costs={}, _phases={})

    def beside(self, other: "Prices") -> "Prices | None":
        """The prices of another job on this network: how its groups lie is to be found.

        None where so much is known that all is better found anew.
        """
        if len(self._costs) > _MOST:
            return None
        return replace(self.of(other), folds={}, _groups={}, _pairs={})

    def are(self, other: "Prices") -> bool:
        """Whether all that is found for one is known to the other."""
        return self._costs is other._costs and self.folds is other.folds

    def groups(self, group: Group) -> GroupPatterns:
        """Patterns of the process groups of a kind."""
        if group not in self._groups:
            ranks = self.plan.npus
            if self._stages_alike and group is not Group.PP:
                ranks = self.plan.stage_ranks
            members = self.plan.groups(group, ranks)
            npus = np.sort(self.plan.npus_of(members), axis=1)
            self._groups[group] = self._patterns(members, npus, ranks)
        return self._groups[group]

    def pairs(self, stage: int, peer_stage: int) -> GroupPatterns:
        """Patterns of the (sender, receiver) pairs of two stages, or of two that lie as they do."""
        if self._stages_alike:
            stage, peer_stage = 0, (peer_stage - stage) % self.plan.pp
        key = stage, peer_stage
        if key not in self._pairs:
            width = self.plan.stage_ranks
            senders = np.arange(width, dtype=np.int64) + stage * width
            members = np.stack((senders, senders + (peer_stage - stage) * width), axis=1)
            npus = self.plan.npus_of(members)
            self._pairs[key] = self._patterns(members, npus, width)
        return self._pairs[key]

    def _patterns(self, members: Ranks, npus: Ranks, ranks: int) -> GroupPatterns:
        width = 0 if self.sharing is Sharing.NONE else self.plan.stage_ranks
        return find_patterns(members, npus, ranks, self.topology, width)

    def duration_ps(self, comm: int, patterns: GroupPatterns, group: int) -> int:
        """Picoseconds of communication number `comm` in one group."""
        pattern = int(patterns.pattern[group])
        key = comm, patterns.key(pattern)
        if key not in self._durations:
            self._durations[key] = self.cost(self.comms[comm], patterns, pattern).time_ps
        return self._durations[key]

    def cost(self, op: CommOp, patterns: GroupPatterns, pattern: int) -> Cost:
        """What a communication costs in groups of one look, and its algorithm."""
        key = op, patterns.key(pattern)
        if key not in self._costs:
            shape = self.shape(op, patterns, pattern)
            cost = collective_cost(self.topology, shape, op.size_bytes)
            if self.sharing is Sharing.FAIR and cost.time_ps != cost.alone_ps:
                lone = shape.alone(cost.algorithm, cost.protocol)
                cost = collective_cost(self.topology, lone, op.size_bytes)
            measured = self._measured_ps(op, patterns.distinct[pattern])
            if measured is not None:
                cost = cost.measured_as(measured)
            self._costs[key] = cost.at_least(op.least_ps).and_then(op.process_ps)
        return self._costs[key]

    def _measured_ps(self, op: CommOp, members: Ranks) -> int | None:
        """What the table says, None where it says nothing."""
        if self.table is None or not op.size_bytes:
            return None
        _, counts = np.unique(members // self.topology.node_size, return_counts=True)
        if len(set(counts.tolist())) > 1:
            return None
        return self.table.time_ps(op.kind, len(members), len(counts), op.size_bytes)

    def patterns(self, use: Use) -> GroupPatterns:
        """Patterns of the groups or pairs that carry out a communication."""
        if use.peer_stage < 0:
            return self.groups(self.comms[use.comm].group)
        return self.pairs(*use.ends)

    def phases(self, comm: int, patterns: GroupPatterns, group: int) -> tuple[PhasePrice, ...]:
        """What communication number `comm` does in one group; the times add up to its duration."""
        op, pattern = self.comms[comm], int(patterns.pattern[group])
        key = op, patterns.key(pattern)
        if key not in self._phases:
            steps = self.steps(comm, patterns, group)
            self._phases[key] = _phases(op, self.cost(op, patterns, pattern), steps)
        return self._phases[key]

    def steps(self, comm: int, patterns: GroupPatterns, group: int) -> list[FlowStep]:
        """The flows of communication number `comm` in one group; none if it sends nothing."""
        op, pattern = self.comms[comm], patterns.pattern[group]
        cost = self.cost(op, patterns, pattern)
        if not cost.steps:
            return []
        key = op.kind, patterns.key(pattern), cost.algorithm
        if key not in self._steps:
            layout = self.topology.layout(patterns.distinct[pattern])
            self._steps[key] = flow_steps(op.kind, layout, cost.algorithm)
        return self._steps[key]

    def shape(self, op: CommOp, patterns: GroupPatterns, pattern: int) -> CollectiveShape:
        """Traced flows of a collective in groups of one look."""
        key = op.kind, patterns.key(pattern)
        if key not in self._shapes:
            wanted = self.algorithms.get(op.kind, Algorithm.AUTO)
            members, beside = patterns.distinct[pattern], patterns.beside[pattern]
            self._shapes[key] = collective_shape(self.topology, op.kind, members, wanted, beside)
        return self._shapes[key]


def _phases(op: CommOp, cost: Cost, steps: list[FlowStep]) -> tuple[PhasePrice, ...]:
    """The phases of steps at their cost."""
    priced = [(step.time_ps, step.latency_ps) for step in cost.steps]
    phases = []
    for step, latency, alone in phases_of_steps(steps, cost.launch_ps, priced):
        most = op.size_bytes * float(np.max(step.fraction)) * step.timed
        rate = most / alone * PS_PER_S if cost.protocol and alone else inf
        phases.append(PhasePrice(latency_ps=latency, alone_ps=alone, step=step, rate=rate))
    return tuple(_stretched(phases, cost.time_ps) if cost.measured else phases)


def phases_of_steps(
    steps: Iterable[FlowStep], launch_ps: _Ps, priced: Iterable[tuple[_Ps, _Ps]]
) -> Iterator[tuple[FlowStep, _Ps, _Ps]]:
    """The phases of steps: whose bytes each carries, its latency, and its bytes' time alone, in ps.

    `priced` are the time of one of each of the equal steps, and its path latency: numbers, or
    columns of scenarios. Latencies pass to the next step that carries bytes.
    """
    latency = [launch_ps]
    for step, (time, path) in zip(steps, priced, strict=True):
        latency.append(path * step.timed)
        if np.any(step.fraction) and step.timed:
            yield step, sum(latency[1:], start=latency[0]), (time - path) * step.timed
            latency = []


def _stretched(phases: list[PhasePrice], time_ps: int) -> Iterator[PhasePrice]:
    """The phases with all their times scaled so that they add up to a measured time."""
    whole = sum(phase.latency_ps + phase.alone_ps for phase in phases)
    passed = 0
    for phase in phases:
        marks = [passed, passed + phase.latency_ps, passed + phase.latency_ps + phase.alone_ps]
        start, sent, end = (mark * time_ps // whole for mark in marks)
        yield replace(phase, latency_ps=sent - start, alone_ps=end - sent)
        passed = marks[-1]


def make_prices(
    plan: ParallelPlan,
    comms: tuple[CommOp, ...],
    topology: Topology,
    *,
    algorithm: Sequence[str],
    table: "CommTable | None",
    sharing: Sharing,
    known: Sequence[Prices] = (),
) -> Prices:
    """What the communications of a job cost with the algorithms and measured times asked for.

    `known` are prices of other steps: those that hold for this one are taken, or what they know of
    the same job on a network that differs in numbers alone, or of another job on the same network.
    """
    algorithms = parse_algorithms(algorithm)
    new = Prices(
        plan=plan,
        topology=topology,
        comms=comms,
        algorithms=algorithms,
        table=table,
        sharing=sharing,
    )
    asked = algorithms, table, sharing
    able = [each for each in known if (each.algorithms, each.table, each.sharing) == asked]
    here = [each for each in able if each.topology == topology]
    for each in here:
        if each.serve(plan):
            return each.of(new)
    for each in reversed(able):
        if each.serve(plan) and same_but_numbers(each.topology, topology):
            return each.on(topology).of(new)
    return (here[-1].beside(new) if here else None) or new
