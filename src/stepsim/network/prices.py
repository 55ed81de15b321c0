"""What every communication of a step costs, in every group that carries it out.

Groups that lie alike on the topology cost the same, so each distinct pattern is traced once.
Siblings are the groups of one kind in a stage: ranks of a stage run one program, so these groups
run the same collectives at the same time. So are the pairs that carry a message between two stages.
"""

from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints, bins, distinct, ints, row_numbers
from stepsim.base.axes import CollectiveKind, Group
from stepsim.base.structs import Noun, Same, replace
from stepsim.base.units import PS_PER_S
from stepsim.network.collectives import (
    AlgorithmChoice,
    Beside,
    CollectiveShape,
    Cost,
    FlowStep,
    Siblings,
    collective_cost,
    collective_shape,
    flow_steps,
)
from stepsim.network.collectives.algorithms import FASTEST
from stepsim.network.topology import Topology
from stepsim.network.topology.nested import flows_of
from stepsim.parallel.modes import Sharing
from stepsim.workload.plan import Plan, Ranks
from stepsim.workload.rows import CommOp, CommOps

if TYPE_CHECKING:
    from stepsim.network.measured_times import CommTable


class GroupPatterns(Noun):
    """The groups of one kind: their ranks `members[g]`, and which of the `distinct` looks each has.

    `npus[g]` are the NPUs they sit on, ascending but for messages, from sender to receiver.
    `group_of[r]` is the group of rank r. `beside[p]` is the place of a group of look p among its
    siblings, None where nobody asked; looks differ where these do.
    """

    members: Ranks
    npus: Ranks
    pattern: Ranks
    distinct: Ranks
    group_of: Ranks
    beside: tuple[Beside | None, ...]

    def row(self, rank: int) -> int:
        """The group of a rank."""
        return int(self.group_of[rank % len(self.group_of)])

    def look(self, rank: int) -> int:
        """The look of a rank's group."""
        return int(self.pattern[self.row(rank)])

    def looks(self, ranks: Ranks) -> Ranks:
        """The look of the group of each rank."""
        return self.pattern[self.group_of[ranks % len(self.group_of)]]

    def rows(self, stage: int, stage_ranks: int) -> list[tuple[int, Ints]]:
        """The looks of the groups of a stage, and the groups of each."""
        here = np.flatnonzero(self.members[:, 0] // stage_ranks == stage)
        mine = self.pattern[here]
        return [(look, here[mine == look]) for look in distinct(mine).tolist()]

    def key(self, pattern: int) -> bytes:
        """What tells a look from those of all kinds of groups."""
        beside = self.beside[pattern]
        alone: bytes = self.distinct[pattern].tobytes()
        return alone + beside.key() if beside else alone


def find_patterns(
    members: Ranks, npus: Ranks, ranks: int, topology: Topology, stage_ranks: int
) -> GroupPatterns:
    """Looks of groups of so many `ranks`, with their siblings where stages have `stage_ranks`.

    With `stage_ranks` of 0 groups have no siblings.
    """
    group_of = np.full(ranks, -1, np.int64)
    group_of[members % ranks] = np.arange(len(members), dtype=np.int64)[:, None]
    looks = topology.canonical(npus)
    first, pattern = row_numbers(looks)
    distinct = looks[first]
    beside: tuple[Beside | None, ...] = (None,) * len(distinct)
    if stage_ranks:
        bundle = _bundles(members[:, 0] // stage_ranks, npus, topology)
        kind = _kinds_of_bundles(bundle, npus, topology)[bundle]
        first, found = row_numbers((kind * len(distinct) + pattern)[:, None])
        beside = _beside(topology, npus, pattern, (bundle, kind), first)
        distinct, pattern = distinct[pattern[first]], found
    return GroupPatterns(
        members=members,
        npus=npus,
        pattern=pattern,
        distinct=distinct,
        group_of=group_of,
        beside=beside,
    )


def _bundles(stage: Ints, npus: Ranks, topology: Topology) -> Ints:
    """A number per group, equal for siblings that may meet: those of one stage in one block."""
    lowest, highest = npus.min(axis=1), npus.max(axis=1)
    block = next(
        (lowest // size for size in topology.blocks if (lowest // size == highest // size).all()),
        np.zeros_like(lowest),
    )
    return row_numbers((stage * bins(block) + block)[:, None])[1]


def _kinds_of_bundles(bundle: Ints, npus: Ranks, topology: Topology) -> Ints:
    """A number per bundle, equal for those that lie alike group by group."""
    order = np.argsort(bundle, kind="stable")
    counts = np.bincount(bundle)
    starts = np.cumsum(counts) - counts
    kinds, known = np.zeros(len(counts), np.int64), dict[bytes, int]()
    for count in distinct(counts).tolist():
        these = np.flatnonzero(counts == count)
        groups = order[starts[these][:, None] + np.arange(count)]
        rows = topology.canonical(npus[groups].reshape(len(these), -1))
        kinds[these] = [known.setdefault(row.tobytes(), len(known)) for row in rows]
    return kinds


def _beside(
    topology: Topology, npus: Ranks, pattern: Ranks, bundles: tuple[Ints, Ints], first: Ints
) -> tuple[Beside, ...]:
    """The places of some groups among their siblings; `pattern` is how each looks alone.

    `bundles` are number and kind of every group's bundle. Bundles of a kind have the same siblings,
    moved to a common origin, so that those of other stages that lie alike are known by them.
    """
    bundle, kind = bundles
    known: dict[int, tuple[Ints, Siblings]] = {}
    for group in first.tolist():
        if kind[group] not in known:
            here = np.flatnonzero(bundle == bundle[group])
            looks, example = np.unique(pattern[here], return_index=True)
            moved = topology.canonical(npus[here].reshape(1, -1)).reshape(len(here), -1)
            siblings = Siblings(
                topology=topology,
                looks=tuple(topology.canonical(npus[here[example]])),
                groups=tuple(moved[pattern[here] == look] for look in looks),
            )
            known[kind[group]] = looks, siblings
    return tuple(
        Beside(siblings=siblings, look=int(np.searchsorted(looks, pattern[group])))
        for group, (looks, siblings) in ((each, known[kind[each]]) for each in first.tolist())
    )


class Use(NamedTuple):
    """A communication as a stage uses it.

    For messages `peer_stage` is the stage at the other end (-1 for collectives) and `sends` says
    whether this one sends.
    """

    comm: int
    stage: int
    peer_stage: int = -1
    sends: bool = False


GroupKind = Group | tuple[int, int]
"""A kind of process groups; of pairs that send messages, the stages of sender and receiver."""


class PhasePrice(Noun, eq=False):
    """A part of a communication: latency without traffic, then the flows of `step`.

    The flows take `alone_ps` when nothing else uses their links; the largest goes at `rate` bytes/s
    where a protocol may leave links idle, else as fast as they let it (infinite).
    """

    latency_ps: int
    alone_ps: int
    step: FlowStep
    rate: float = inf


Known = dict[tuple[object, ...], Any]
"""What was found of groups, flows and costs on networks, for jobs that come after."""
# NPUs above which it is kept of the last plan alone how its groups lie: it takes much memory.
#
# Below it `stepsim plan llama-3-70b --gpus 512 --runs 60` takes 1.67 s of processor time, 1.75 with
# the last plan's alone.
_MANY = 4096
# So many findings are kept; then all is found anew.
_MOST = 4096


class Prices(Struct, kw_only=True):
    """What communications of a job cost, by the look of the group that carries them out.

    `algorithms` are those asked for; other kinds take the fastest beside their siblings, also where
    links are shared fairly, for then sharing slows them when they run. Times in `table` replace the
    model's for groups that hold equally many ranks of each of their nodes. What is `known` of the
    same network, or of one whose links have other numbers, is not found again; `flows` names what
    was found of both.
    """

    plan: Plan
    topology: Topology
    comms: CommOps
    algorithms: Mapping[CollectiveKind, AlgorithmChoice] = {}
    table: "CommTable | None" = None
    sharing: Sharing = Sharing.NONE
    known: Known = {}
    _patterns: dict[GroupKind, GroupPatterns] = {}
    flows: object = None
    _network: object = None

    def __post_init__(self) -> None:
        if len(self.known) > _MOST:
            self.known.clear()
        asked = tuple(self.algorithms.items()), Same(self.table), self.sharing is Sharing.FAIR
        # a short name of each key, and of no other while somebody holds it
        flows, network = (flows_of(self.topology, numbers=every) for every in (False, True))
        self.flows = self.known.setdefault(("flows", flows), object())
        self._network = self.known.setdefault(("network", *asked, network), object())
        plan = self.plan  # what decides where groups of ranks lie
        lying = *plan.degrees().values(), plan.expert_degree, plan.rank_order
        ranks = self.flows, lying, self.sharing is Sharing.NONE
        lie = "lie", *ranks
        if lie not in self.known and self.plan.npus > _MANY:
            for key in [key for key in self.known if key[0] == "lie"]:
                del self.known[key]
        self._patterns = self.known.setdefault(lie, {})

    def kind(self, use: Use) -> GroupKind:
        """The kind of the groups or pairs that carry out a communication."""
        if use.peer_stage < 0:
            return self.comms[use.comm].group
        return (use.stage, use.peer_stage) if use.sends else (use.peer_stage, use.stage)

    def groups(self, kind: GroupKind) -> GroupPatterns:
        """Patterns of the groups or pairs of a kind."""
        if kind not in self._patterns:
            width, ranks = self.plan.stage_ranks, self.plan.npus
            if isinstance(kind, tuple):
                ranks = width
                members = np.arange(width)[:, None] + ints(kind) * width
                npus = self.plan.npus_of(members)
            else:
                members = self.plan.groups(kind)
                npus = np.sort(self.plan.npus_of(members), axis=1)
            apart = 0 if self.sharing is Sharing.NONE else width
            self._patterns[kind] = find_patterns(members, npus, ranks, self.topology, apart)
        return self._patterns[kind]

    def patterns(self, use: Use) -> GroupPatterns:
        """Patterns of the groups or pairs that carry out a communication."""
        return self.groups(self.kind(use))

    def duration_ps(self, use: Use, rank: int) -> int:
        """Picoseconds of a communication in the group of a rank."""
        return self.cost(use, self.patterns(use).look(rank)).time_ps

    def cost(self, use: Use, look: int) -> Cost:
        """What a communication costs in groups of one look, and its algorithm."""
        op, patterns = self.comms[use.comm], self.patterns(use)
        key = "cost", self._network, op, patterns.key(look)
        found: Cost | None = self.known.get(key)
        if found is None:
            shape, is_alone = self.shape(use, look), self.sharing is Sharing.FAIR
            cost = collective_cost(self.topology, shape, op.size_bytes, alone=is_alone)
            if self.table and op.size_bytes:
                nodes = patterns.distinct[look] // self.topology.node_size
                held = np.unique(nodes, return_counts=True)[1]
                if not np.ptp(held):
                    known = self.table.time_ps(op.kind, len(nodes), len(held), op.size_bytes)
                    cost = cost if known is None else cost.measured_as(known)
            found = self.known[key] = cost.with_process(op.least_ps, op.process_ps)
        return found

    def phases(self, use: Use, look: int) -> tuple[PhasePrice, ...]:
        """What a communication does in groups of one look; times add up to its duration."""
        op = self.comms[use.comm]
        key = "phases", self._network, op, self.patterns(use).key(look)
        found: tuple[PhasePrice, ...] | None = self.known.get(key)
        if found is None:
            found = _phases(op, self.cost(use, look), self.steps(use, look))
            self.known[key] = found
        return found

    def steps(self, use: Use, look: int) -> list[FlowStep]:
        """The flows of a communication in groups of one look; none if it sends nothing."""
        cost, kind, patterns = self.cost(use, look), self.comms[use.comm].kind, self.patterns(use)
        if not cost.steps:
            return []
        key = "steps", self.flows, kind, patterns.key(look), cost.algorithm
        found: list[FlowStep] | None = self.known.get(key)
        if found is None:
            layout = self.topology.layout(patterns.distinct[look])
            found = self.known[key] = flow_steps(kind, layout, cost.algorithm)
        return found

    def shape(self, use: Use, look: int) -> CollectiveShape:
        """Traced flows of a collective in groups of one look."""
        kind, patterns = self.comms[use.comm].kind, self.patterns(use)
        wanted = self.algorithms.get(kind, FASTEST)
        key = "shape", self.flows, kind, patterns.key(look), wanted
        found: CollectiveShape | None = self.known.get(key)
        if found is None:
            members, beside = patterns.distinct[look], patterns.beside[look]
            found = collective_shape(self.topology, kind, members, wanted, beside)
            self.known[key] = found
        return found


def _phases(op: CommOp, cost: Cost, steps: list[FlowStep]) -> tuple[PhasePrice, ...]:
    """The phases of steps at their cost; latencies pass to the next step that carries bytes."""
    phases, latency_ps = [], cost.launch_ps
    for step, own in zip(steps, cost.steps, strict=True):
        latency_ps += own.latency_ps * step.timed
        if np.any(step.fraction) and step.timed:
            alone_ps = (own.time_ps - own.latency_ps) * step.timed
            most = op.size_bytes * float(np.max(step.fraction)) * step.timed
            rate = most / alone_ps * PS_PER_S if cost.protocol and alone_ps else inf
            phases.append(
                PhasePrice(latency_ps=latency_ps, alone_ps=alone_ps, step=step, rate=rate)
            )
            latency_ps = 0
    return tuple(_stretched(phases, cost.time_ps) if cost.measured else phases)


def _stretched(phases: list[PhasePrice], time_ps: int) -> Iterator[PhasePrice]:
    """The phases with all their times scaled so that they add up to a measured time."""
    whole = sum(phase.latency_ps + phase.alone_ps for phase in phases)
    passed = 0
    for phase in phases:
        marks = [passed, passed + phase.latency_ps, passed + phase.latency_ps + phase.alone_ps]
        start, sent, end = (mark * time_ps // whole for mark in marks)
        yield replace(phase, latency_ps=sent - start, alone_ps=end - sent)
        passed = marks[-1]
