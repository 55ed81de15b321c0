"""Which groups of a job lie alike on the topology, and so cost the same.

Siblings are the groups of one kind in a stage: ranks of a stage run one program, so these groups
run the same collectives at the same time. So are the pairs that carry a message between two stages.
"""

from dataclasses import dataclass

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.network.collectives import Siblings
from stepsim.network.topology import Topology
from stepsim.parallel.ranks import Ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPatterns:
    """The groups of one kind: their ranks `members[g]`, and which of the `distinct` looks each has.

    `npus[g]` are the NPUs they sit on, ascending but for messages, from sender to receiver.
    `group_of[r]` is the group of rank r, -1 where it is in none. `siblings[p]` are those of a group
    of look p, None where nobody asked; looks differ where their siblings do.
    """

    members: Ranks
    npus: Ranks
    pattern: Ranks
    distinct: Ranks
    group_of: Ranks
    siblings: tuple[Siblings | None, ...]

    def key(self, pattern: int) -> bytes:
        """What tells a look from those of all kinds of groups."""
        alone: bytes = self.distinct[pattern].tobytes()
        siblings = self.siblings[pattern]
        return alone + siblings.key() if siblings else alone


def find_patterns(
    members: Ranks, npus: Ranks, ranks: int, topology: Topology, stage_ranks: int
) -> GroupPatterns:
    """Looks of groups of a job of `ranks`, with their siblings where stages have `stage_ranks`.

    With `stage_ranks` of 0 groups have no siblings.
    """
    group_of = np.full(ranks, -1, dtype=np.int64)
    group_of[members] = np.arange(len(members), dtype=np.int64)[:, None]
    distinct, pattern = np.unique(topology.canonical(npus), axis=0, return_inverse=True)
    pattern = pattern.reshape(-1)
    siblings: tuple[Siblings | None, ...] = (None,) * len(distinct)
    if stage_ranks:
        bundle = _bundles(members[:, 0] // stage_ranks, npus, topology)
        kind = _kinds_of_bundles(bundle, npus, topology)[bundle]
        _, first, found = np.unique(kind * len(distinct) + pattern, True, True)
        siblings = tuple(_siblings(npus, pattern, distinct, bundle, each) for each in first)
        distinct, pattern = distinct[pattern[first]], found.reshape(-1)
    return GroupPatterns(
        members=members,
        npus=npus,
        pattern=pattern,
        distinct=distinct,
        group_of=group_of,
        siblings=siblings,
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
    kinds, known = np.zeros(len(counts), dtype=np.int64), 0
    for count in np.unique(counts).tolist():
        these = np.flatnonzero(counts == count)
        groups = order[starts[these][:, None] + np.arange(count)]
        rows = topology.canonical(npus[groups].reshape(len(these), -1))
        distinct, kind = np.unique(rows, axis=0, return_inverse=True)
        kinds[these] = kind.reshape(-1) + known
        known += len(distinct)
    return kinds


def _siblings(
    npus: Ranks, pattern: Ranks, distinct: Ranks, bundle: Ints, group: np.int64
) -> Siblings:
    """The bundle of a group, its own look first."""
    here = bundle == bundle[group]
    mine = int(pattern[group])
    looks = [mine, *(look for look in np.unique(pattern[here]).tolist() if look != mine)]
    return Siblings(
        looks=tuple(distinct[look] for look in looks),
        groups=tuple(npus[here & (pattern == look)] for look in looks),
    )
