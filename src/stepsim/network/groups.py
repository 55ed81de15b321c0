"""Which groups and ranks of a job lie alike on the topology, and so cost the same.

Siblings are the groups of one kind in a stage: ranks of a stage run one program, so these groups
run the same collectives at the same time. So are the pairs that carry a message between two stages.
"""

import numpy as np

from stepsim.base.arrays import Ints, distinct, row_numbers
from stepsim.base.structs import Noun
from stepsim.network.collectives import Beside, Siblings
from stepsim.network.topology import Topology
from stepsim.network.topology.placed import Turn
from stepsim.workload.plan import Ranks


class GroupPatterns(Noun):
    """The groups of one kind: their ranks `members[g]`, and which of the `distinct` looks each has.

    `npus[g]` are the NPUs they sit on, ascending but for messages, from sender to receiver.
    `group_of[r]` is the group of rank r. `beside[p]` is the place of a group of look p among its
    siblings, None where nobody asked; looks differ where these do. `rows_of` keeps what `rows`
    found.
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

    def rows(self, stage: int, stage_ranks: int) -> list[Ints]:
        """The groups of a stage, those of each look together."""
        here = np.flatnonzero(self.members[:, 0] // stage_ranks == stage)
        mine = self.pattern[here]
        return [here[mine == look] for look in distinct(mine)]

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


def lowered(numbers: Ints, turn: Turn) -> Ints:
    """The numbers with this digit 0."""
    low, high = turn
    return numbers - numbers % high // low * low
