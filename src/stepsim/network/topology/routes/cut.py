"""Bisection of listed links: the least bandwidth found between two halves of the NPUs."""

from collections.abc import Iterator

import numpy as np

from stepsim.base.arrays import Floats, Ints, totals
from stepsim.network.topology.routes.cabling import Cabling

_ROUNDS = 20


def even_cut(cabling: Cabling, bandwidth: Floats) -> float:
    """Bytes/s, one way, across the least of several even cuts: no cut found is below the true one.

    Halves tried: the lower and the upper numbers, blocks that take turns (1, 2, 4, ... NPUs), and
    the NPUs nearest to one. Switches go to the side to which they have more bandwidth.
    """
    if cabling.npus < 2:
        return float("inf")
    finite = np.minimum(bandwidth, 1e30)
    least = min(_cut(cabling, side, finite) for side in _halves(cabling))
    return float("inf") if least >= 1e30 else least


def _halves(cabling: Cabling) -> Iterator[Floats]:
    """Sides of all nodes, -1 or 1, and 0 for switches that are still free."""
    npus, numbers = cabling.npus, np.arange(cabling.npus)
    orders = [numbers, np.argsort(_nearness(cabling)[:npus], kind="stable")]
    block = 1
    while block < npus:
        orders.append(np.argsort(numbers // block % 2, kind="stable"))
        block *= 2
    for order in orders:
        side = np.zeros(len(cabling.nodes))
        side[order[: npus // 2]] = -1.0
        side[order[npus // 2 :]] = 1.0
        yield side


def _nearness(cabling: Cabling) -> Ints:
    """Hops of each node from node 0."""
    nodes = len(cabling.nodes)
    hops = np.full(nodes, nodes, dtype=np.int64)
    hops[0] = 0
    while True:
        nearer = hops.copy()
        np.minimum.at(nearer, cabling.head, hops[cabling.tail] + 1)
        if np.array_equal(nearer, hops):
            return hops
        hops = nearer


def _cut(cabling: Cabling, side: Floats, bandwidth: Floats) -> float:
    npus, tails, heads = cabling.npus, cabling.tail, cabling.head
    for _ in range(_ROUNDS):
        pull = totals(heads, side[tails] * bandwidth, len(side))
        moved = np.concatenate((side[:npus], np.sign(pull[npus:])))
        if np.array_equal(moved, side):
            break
        side = moved
    # A switch drawn to both sides alike goes to one of them; the others follow it.
    placed = np.where(side == 0, -1.0, side)
    cuts = [
        float(bandwidth[(placed[tails] == way) & (placed[heads] == -way)].sum())
        for way in (-1.0, 1.0)
    ]
    return min(cuts)
