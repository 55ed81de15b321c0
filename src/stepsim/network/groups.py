"""Which groups and ranks of a job lie alike on the topology, and so cost the same.

Siblings are the groups of one kind in a stage: ranks of a stage run one program, so these groups
run the same collectives at the same time. So are the pairs that carry a message between two stages.

Job and network cannot tell ranks apart that differ in a digit of their number that may be shifted.
A shift of a digit `rank % high // low` takes groups of ranks to groups where all spans of groups
are whole digits, and the network to itself where the same digit of NPU numbers turns.
"""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Ints, distinct, row_numbers
from stepsim.network.collectives import Beside, Siblings
from stepsim.network.topology import Topology
from stepsim.network.topology.placed import Turn
from stepsim.parallel.ranks import ParallelPlan, Ranks
from stepsim.workload.rows import Group


class GroupPatterns(Struct, frozen=True, kw_only=True):
    """The groups of one kind: their ranks `members[g]`, and which of the `distinct` looks each has.

    Where all stages lie alike they are those of the first one. `npus[g]` are the NPUs they sit on,
    ascending but for messages, from sender to receiver. `group_of[r]` is the group of rank r, of
    the job or of any stage. `beside[p]` is the place of a group of look p among its siblings, None
    where nobody asked; looks differ where these do. `rows_of` keeps what `rows` found.
    """

    members: Ranks
    npus: Ranks
    pattern: Ranks
    distinct: Ranks
    group_of: Ranks
    beside: tuple[Beside | None, ...]
    rows_of: dict[int, list[Ints]] = field(default_factory=dict)
    _keys: dict[int, bytes] = field(default_factory=dict)

    def row(self, rank: int) -> int:
        """The group of a rank, or the like one."""
        return int(self.group_of[rank % len(self.group_of)])

    def look(self, rank: int) -> int:
        """The look of a rank's group."""
        return int(self.pattern[self.row(rank)])

    def looks(self, ranks: Ranks) -> Ranks:
        """The look of the group of each rank."""
        return self.pattern[self.group_of[ranks % len(self.group_of)]]

    def rows(self, stage: int, stage_ranks: int) -> list[Ints]:
        """The groups of a stage, or the like ones of the first, those of each look together."""
        of_first = len(self.group_of) == stage_ranks
        key = 0 if of_first else stage
        if key not in self.rows_of:
            here = np.arange(len(self.pattern))
            if not of_first:
                here = np.flatnonzero(self.members[:, 0] // stage_ranks == stage)
            mine = self.pattern[here]
            self.rows_of[key] = [here[mine == look] for look in distinct(mine)]
        return self.rows_of[key]

    def key(self, pattern: int) -> bytes:
        """What tells a look from those of all kinds of groups."""
        if pattern not in self._keys:
            beside = self.beside[pattern]
            alone = self.distinct[pattern].tobytes()
            self._keys[pattern] = alone + beside.key() if beside else alone
        return self._keys[pattern]


def find_patterns(
    members: Ranks, npus: Ranks, ranks: int, topology: Topology, stage_ranks: int
) -> GroupPatterns:
    """Looks of groups of so many `ranks`, with their siblings where stages have `stage_ranks`.

    With `stage_ranks` of 0 groups have no siblings.
    """
    group_of = np.full(ranks, -1, dtype=np.int64)
    group_of[members % ranks] = np.arange(len(members), dtype=np.int64)[:, None]
    looks = topology.canonical(npus)
    first, pattern = row_numbers(looks)
    distinct = looks[first]
    beside: tuple[Beside | None, ...] = (None,) * len(distinct)
    if stage_ranks:
        bundle = _bundles(members[:, 0] // stage_ranks, npus, topology)
        kind = _kinds_of_bundles(bundle, npus, topology)[bundle]
        _, first, found = np.unique(kind * len(distinct) + pattern, True, True)
        beside = _beside(topology, npus, pattern, (bundle, kind), first)
        distinct, pattern = distinct[pattern[first]], found.reshape(-1)
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
    _, bundle = np.unique(stage * (int(block.max(initial=0)) + 1) + block, return_inverse=True)
    return bundle.reshape(-1).astype(np.int64)


def _kinds_of_bundles(bundle: Ints, npus: Ranks, topology: Topology) -> Ints:
    """A number per bundle, equal for those that lie alike group by group."""
    order = np.argsort(bundle, kind="stable")
    counts = np.bincount(bundle)
    starts = np.cumsum(counts) - counts
    kinds, known = np.zeros(len(counts), dtype=np.int64), dict[bytes, int]()
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


def lowered(numbers: Ints, turns: Iterable[Turn]) -> Ints:
    """The numbers with these digits 0."""
    for low, high in turns:
        numbers = numbers - numbers % high // low * low
    return numbers


def turns_of_ranks(
    plan: ParallelPlan, kinds: Iterable[Group], topology: Topology
) -> tuple[Turn, ...]:
    """Digits of the ranks of a stage that may be shifted, for groups of these kinds; ascending.

    None where the spans of groups are not nested: then no rank is like another by its number.
    """
    stage = plan.stage_ranks
    own = {1, plan.tp, stage, *(end for kind in kinds for end in plan.span(kind))}
    cuts = sorted(each for each in own if each <= stage)
    if any(high % low for low, high in pairwise(cuts)):
        return ()
    for bound in map(plan.rank_bound, topology.bounds):
        inside = 0 < bound < stage
        if inside and all(cut % bound == 0 or bound % cut == 0 for cut in cuts):
            cuts = sorted({*cuts, bound})
    return tuple(
        (low, high) for low, high in pairwise(cuts) if topology.turns(plan.npu_digit(low, high))
    )


def stages_turn(plan: ParallelPlan, topology: Topology) -> bool:
    """Whether all stages lie alike on the network."""
    return topology.turns(plan.npu_digit(plan.stage_ranks, plan.npus))


def lies_in(turn: Turn, span: Turn) -> bool:
    """Whether a digit is part of another."""
    return span[0] <= turn[0] and turn[1] <= span[1]
