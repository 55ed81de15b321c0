"""Clocks of a run's ranks put on one axis, and the messages between them.

Ranks of a node share a clock; those of different nodes are unrelated. A message ends on both sides
at the same moment, so the median difference of the ends of matched messages is the offset of two
clocks.
"""

from enum import StrEnum
from itertools import pairwise

import numpy as np

from stepsim.base.arrays import Bools, Ints, bins, distinct, ints, medians
from stepsim.base.errors import TraceError
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Timed, replace
from stepsim.measured.profile.events import Following, Profile, same
from stepsim.measured.run import PS_PER_MS
from stepsim.measured.run_profile import sent_and_received
from stepsim.run.spans import UNKNOWN, ColumnTable, earliest

DEFAULT_NODE_SIZE = 8
# Two ranks whose messages end that far apart, in the median, have clocks that differ.
_FAR_APART_PS = PS_PER_MS // 2


class NodePlacement(StrEnum):
    """Where two ranks, or a group's, stand."""

    INTRA_NODE = "intra_node"
    INTER_NODE = "inter_node"


# `node_size` ranks share a node and a clock. `residual_ps` is the median distance of the two ends
# of a message after the alignment.
class Clocks(Timed):
    """How clocks were aligned: ranks of a node, and what is left between ends of a message."""

    node_size: int
    residual_ps: InSeconds


class Transfers(ColumnTable, eq=False):
    """Messages whose both ends were traced, one entry each.

    `duration_ps` is from when the later side posted to the end; `both_ways` tells the messages of
    which both sides post a send and a receive together.
    """

    size_bytes: Ints
    duration_ps: Ints
    both_ways: Bools
    intra_node: Bools


def align(run: Profile, node_size: int | None = None) -> tuple[Profile, Clocks, Following]:
    """A run on one axis, which begins at 0, its clocks, and messages by the places of both ends.

    Without `node_size` clocks and the size of the job tell it, else it is 8. Raises TraceError
    where ranks cannot be put in order.
    """
    ranks, events = run.ranks, run.events
    sent, received = sent_and_received(events)
    ends = events.rank[sent], events.rank[received]
    ahead = events.end_ps[received] - events.end_ps[sent]
    clock_ms = ints([rank.clock for rank in ranks])
    group = _clock_groups(run, clock_ms)
    offset = (clock_ms - earliest(group, clock_ms, bins(group))[group]) * PS_PER_MS
    size = node_size or _node_size(run, group)
    apart, pair = _shifted(ahead, ends, offset), same(*ends, events.name[sent])
    if not group.any() and len(pair):
        far = np.abs(medians(pair, apart, bins(pair))) > _FAR_APART_PS
        group = ints([rank.rank // size for rank in ranks]) if far.any() else group
    _join_groups(run, group, ends, ahead, offset)
    offset -= (events.start_ps + offset[events.rank]).min()
    shift, apart = offset[events.rank], _shifted(ahead, ends, offset)
    residual = int(np.median(np.abs(apart))) if len(apart) else 0
    placed = (replace(rank, clock=rank.node) for rank in run.on_nodes(size).ranks)
    clocks = Clocks(node_size=size, residual_ps=residual)
    moved = replace(run, events=events.later(shift), ranks=tuple(placed))
    return moved, clocks, (sent, received)


def _clock_groups(run: Profile, clock_ms: Ints) -> Ints:
    """The clock of each rank: two share one when they begin within one step of each other."""
    parts = [run.of_rank(index) for index in range(len(clock_ms))]
    longest = max(int(part.end_ps.max() - part.start_ps[0]) for part in parts) // PS_PER_MS + 1
    order = np.argsort(clock_ms)
    group = np.empty_like(order)
    group[order] = np.cumsum(np.diff(clock_ms[order], prepend=clock_ms.min()) > longest)
    return group


def _shifted(ahead: Ints, ends: Following, offset: Ints) -> Ints:
    """How much later the receiver's end of each message is than the sender's, in ps."""
    return np.asarray(ahead + offset[ends[1]] - offset[ends[0]])


def _join_groups(run: Profile, group: Ints, ends: Following, ahead: Ints, offset: Ints) -> None:
    """Shift every clock onto that of the first rank; `offset` is changed in place."""
    joined = group == group[0]
    sender, receiver = ends
    while not joined.all():
        apart = _shifted(ahead, ends, offset)
        new = np.where(joined[sender], group[receiver], group[sender])
        shift = np.where(joined[sender], -apart, apart)
        new[joined[sender] == joined[receiver]] = UNKNOWN
        found = [each for each in distinct(new).tolist() if each != UNKNOWN]
        if not found:
            names = ", ".join(str(run.ranks[at].rank) for at in np.flatnonzero(~joined).tolist())
            raise TraceError(
                f"{run.ranks[0].file}: rank {names} has a clock of its own and no message to any "
                "other traced rank: its times cannot be compared"
            )
        for each in found:
            offset[group == each] += int(np.median(shift[new == each]))
            joined |= group == each


def _node_size(run: Profile, group: Ints) -> int:
    """Ranks per node where clocks tell it, else 8, as in DGX and HGX machines."""
    clocks, npus = bins(group), run.degrees.npus
    if clocks == 1 or npus is None or npus % clocks:
        return DEFAULT_NODE_SIZE
    size = npus // clocks
    ordered = all(
        (a.rank // size == b.rank // size) == (group[i] == group[i + 1])
        for i, (a, b) in enumerate(pairwise(run.ranks))
    )
    return size if ordered else DEFAULT_NODE_SIZE
