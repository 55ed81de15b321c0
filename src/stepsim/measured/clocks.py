"""Clocks of a run's ranks put on one axis, and the messages between them.

Ranks of a node share a clock; those of different nodes are unrelated. A message ends on both sides
at the same moment, so the median difference of the ends of matched messages is the offset of two
clocks.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise

import numpy as np

from stepsim.base.arrays import Bools, Ints, ints
from stepsim.base.errors import TraceError
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Noun, Timed
from stepsim.measured.profile.events import Following
from stepsim.measured.run import PS_PER_MS, MeasuredRun, OpKind, RankTrace

DEFAULT_NODE_SIZE = 8
_FAR_APART_PS = PS_PER_MS // 2
"""Two ranks whose messages end that far apart, in the median, have clocks that differ."""

_RECEIVED_AS = {
    OpKind.SEND_FORWARD: (OpKind.RECV_FORWARD, 1),
    OpKind.SEND_BACKWARD: (OpKind.RECV_BACKWARD, -1),
}
"""How the other side writes a message, and where it is: stages ahead of the sender."""


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


class Transfers(Noun, eq=False):
    """Messages whose both ends were traced, one entry each.

    `duration_ps` is from when the later side posted to the end; `both_ways` tells the messages of
    which both sides post a send and a receive together.
    """

    size_bytes: Ints
    duration_ps: Ints
    both_ways: Bools
    intra_node: Bools


class _Matched(Noun, eq=False):
    """Messages of a pair of traces: places of both ends."""

    sender: int
    receiver: int
    sent: Ints
    received: Ints


def align(run: MeasuredRun, node_size: int | None = None) -> tuple[Clocks, Ints, Following]:
    """Clocks of a run and its matched messages; without `node_size` clocks tell it, else it is 8.

    What is added to the times of each trace puts them on the run's axis, in ps, which begins at 0.
    Messages are pairs of places, of the send and of the receive, among the operations of all ranks
    one after the other. Raises TraceError where traces of a node cannot be put in order.
    """
    group, begin_ms = _clock_groups(run.ranks)
    matched = list(_match(run))
    within = [(t.clock_ms - begin_ms[g]) * PS_PER_MS for t, g in zip(run.ranks, group, strict=True)]
    offset = ints(within)
    size = node_size or _node_size(run, group)
    pairs = [abs(float(np.median(_ends_apart(run.ranks, each, offset)))) for each in matched]
    if len(begin_ms) == 1 and max(pairs, default=0) > _FAR_APART_PS:
        group = [trace.rank // size for trace in run.ranks]
    _join_groups(run.ranks, group, matched, offset)
    first = min(int(t.start_ps[0]) + int(o) for t, o in zip(run.ranks, offset, strict=True))
    offset -= first
    apart = [np.abs(_ends_apart(run.ranks, each, offset)) for each in matched]
    residual = int(np.median(np.concatenate(apart))) if apart else 0
    begins = np.cumsum([0, *(len(trace.kind) for trace in run.ranks)])
    sent = [begins[each.sender] + each.sent for each in matched]
    received = [begins[each.receiver] + each.received for each in matched]
    messages = np.concatenate([ints([]), *sent]), np.concatenate([ints([]), *received])
    return Clocks(node_size=size, residual_ps=residual), offset, messages


def _clock_groups(ranks: Sequence[RankTrace]) -> tuple[list[int], list[int]]:
    """Clock of each trace, and where each clock's axis begins, in ms.

    Two traces share a clock when they begin within one step of each other.
    """
    longest = max(int(trace.end_ps.max() - trace.start_ps[0]) for trace in ranks) // PS_PER_MS + 1
    order = sorted(range(len(ranks)), key=lambda i: ranks[i].clock_ms)
    group = [0] * len(ranks)
    begins = [ranks[order[0]].clock_ms]
    for before, here in pairwise(order):
        if ranks[here].clock_ms - ranks[before].clock_ms > longest:
            begins.append(ranks[here].clock_ms)
        group[here] = len(begins) - 1
    return group, begins


def _match(run: MeasuredRun) -> Iterable[_Matched]:
    """Both ends of every message between traced neighbours of the pipeline."""
    ranks, width = run.ranks, run.degrees.stage_ranks
    place = {trace.rank: i for i, trace in enumerate(ranks)}
    for i, trace in enumerate(ranks):
        for kind, (other, ahead) in _RECEIVED_AS.items():
            j = place.get(trace.rank + ahead * width) if width else None
            if j is None:
                continue
            sent, received = trace.of(kind), ranks[j].of(other)
            both, left, right = np.intersect1d(
                trace.microbatch[sent], ranks[j].microbatch[received], return_indices=True
            )
            if len(both):
                yield _Matched(sender=i, receiver=j, sent=sent[left], received=received[right])


def _join_groups(
    ranks: Sequence[RankTrace], group: list[int], matched: list[_Matched], offset: Ints
) -> None:
    """Shift every clock onto that of the first trace; `offset` is changed in place."""
    group_of = ints(group)
    joined = {group[0]}
    while len(joined) < len(set(group)):
        apart: dict[int, list[Ints]] = {}
        for each in matched:
            pair = group[each.sender], group[each.receiver]
            if (pair[0] in joined) != (pair[1] in joined):
                ahead = _ends_apart(ranks, each, offset)
                new, shift = (pair[1], -ahead) if pair[0] in joined else (pair[0], ahead)
                apart.setdefault(new, []).append(shift)
        if not apart:
            names = ", ".join(str(ranks[i].rank) for i, g in enumerate(group) if g not in joined)
            raise TraceError(
                f"{ranks[0].file}: rank {names} has a clock of its own and no message to any other "
                "traced rank: its times cannot be compared"
            )
        for new, shifts in apart.items():
            offset[group_of == new] += int(np.median(np.concatenate(shifts)))
            joined.add(new)


def _ends_apart(ranks: Sequence[RankTrace], each: _Matched, offset: Ints) -> Ints:
    """How much later the receiver's end of each message is than the sender's, in ps."""
    shift = int(offset[each.receiver] - offset[each.sender])
    return ranks[each.receiver].end_ps[each.received] - ranks[each.sender].end_ps[each.sent] + shift


def _node_size(run: MeasuredRun, group: list[int]) -> int:
    """Ranks per node where clocks tell it, else 8, as in DGX and HGX machines."""
    clocks = len(set(group))
    npus = run.degrees.npus
    if clocks == 1 or npus is None or npus % clocks:
        return DEFAULT_NODE_SIZE
    size = npus // clocks
    ordered = all(
        (a.rank // size == b.rank // size) == (group[i] == group[i + 1])
        for i, (a, b) in enumerate(pairwise(run.ranks))
    )
    return size if ordered else DEFAULT_NODE_SIZE
