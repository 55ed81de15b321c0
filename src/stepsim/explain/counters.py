"""What a step holds and moves over time: live activations of a rank, bytes on the links."""

import numpy as np

from stepsim.base.arrays import Floats, Ints, rows_of, totals
from stepsim.base.structs import Names
from stepsim.base.units import PS_PER_S
from stepsim.core.timeline import Timeline
from stepsim.core.write import SegmentKind
from stepsim.documents.trace import Curves
from stepsim.network.collectives.flows import steps_load
from stepsim.network.prices import Prices, Use
from stepsim.parallel.schedules.base import FORWARD

# Why an activation is still held: its input gradient is to come, or only its weight gradient.
_LIVE = ("until input gradient", "until weight gradient")

# What a forward, a backward, an input gradient and a weight gradient add to both.
_HELD = np.array([(1, 0), (-1, 0), (-1, 1), (0, -1)], np.float64)


def live_activations(timeline: Timeline, rank: int) -> Curves:
    """Activations, in (chunk, microbatch) pairs, that a rank holds, by what they are held for.

    One lives from the start of its forward to the end of its backward. Where that is split, it is
    held for its input gradient first, then for its weight gradient alone. The most of the sum is
    `PeakLive.freed_at_w`, the most of the first curve `freed_at_b`, but for actions of no time.
    """
    (start, end), graph = timeline.entry_times(rank), timeline.graph
    order, split = graph.schedule.columns[graph.plan.stage_of(rank)], graph.schedule.splits_backward
    place, part = (order.kind >= 0).nonzero()
    kind = order.kind[place, part]
    return summed_curves(
        _LIVE if split else ("until backward",),
        np.where(kind == FORWARD, start[place], end[place]),
        _HELD[kind] if split else _HELD[kind, :1],
    )


def link_rates(timeline: Timeline, prices: Prices) -> Curves:
    """Bytes per second on all links of every class together, of shape (times, classes).

    The bytes of a transfer are spread evenly over the time it takes; one that takes none is left
    out. So the integral of a curve is `LinkUse.total_bytes` of its class.
    """
    actors = timeline.actors
    times: list[Ints] = []
    changes: list[Floats] = []
    for rank, count in rows_of(actors.ranks, actors.counts):
        ran = timeline.tasks(rank)
        for row, tasks in ran.tasks.alike():
            if row.use is None or row.look.kind is SegmentKind.RECV:
                continue
            start, takes = ran.start[tasks], ran.end[tasks] - ran.start[tasks]
            some = np.flatnonzero(takes)
            carried = _bytes_of_rank(prices, row.use, rank)
            rate = count * carried * (PS_PER_S / takes[some])[:, None]
            times += (start[some], (start + takes)[some])
            changes += (rate, -rate)
    classes = tuple(each.name for each in prices.topology.link_classes)
    nothing = np.zeros(0, np.int64)
    return summed_curves(
        classes,
        np.concatenate([nothing, *times]),
        np.concatenate([np.zeros((0, len(classes))), *changes]),
    )


def _bytes_of_rank(prices: Prices, use: Use, rank: int) -> Floats:
    """Bytes that a transfer of a rank's group puts on links of each class.

    They are shared out among those who run it: members of a collective, senders of a message.
    """
    topology, patterns = prices.topology, prices.patterns(use)
    npus = patterns.npus[patterns.row(rank)]
    links, loads = steps_load(topology, npus, prices.steps(use, patterns.look(rank)))
    sizes = loads * prices.comms[use.comm].size_bytes
    found = totals(topology.link_class(links), sizes, len(topology.link_classes))
    return found if use.sends else found / len(npus)


def summed_curves(names: Names, times: Ints, changes: Floats) -> Curves:
    """Curves that change so at times in ps; where as many changes end as begin, they are 0."""
    distinct, place = np.unique(times, return_inverse=True)
    place = place.reshape(-1)
    values = np.zeros((len(distinct), changes.shape[1]))
    for column, change in zip(values.T, changes.T, strict=True):
        sums, begun = (
            np.cumsum(totals(place, each, len(distinct))) for each in (change, np.sign(change))
        )
        column[begun != 0] = sums[begun != 0]
    return Curves(names=names, time_ps=distinct.astype(np.int64), values=values)
