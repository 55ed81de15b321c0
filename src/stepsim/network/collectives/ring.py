"""Ring algorithms: every rank passes blocks to the next one.

All-gather and reduce-scatter take n-1 steps of S/n, all-reduce 2(n-1): Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69 (2009). In both
directions at once half the steps do: Jain and Sabharwal, "Optimal bucket algorithms for large MPI
collectives on torus interconnects", ICS 2010.
Over several nodes with k ranks each, k rings of S/k run side by side, each entering and leaving
the nodes through other NPUs, as NCCL's channels do. Broadcasts and reductions leave the rings open.
"""

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.axes import CollectiveKind
from stepsim.network.collectives.flows import (
    REDUCING,
    FlatAlgorithm,
    FlowStep,
    inwards,
    pipelined,
    swapped,
)
from stepsim.network.topology import Layout

# How often blocks go round, if not once.
_ROUNDS = {CollectiveKind.ALL_REDUCE: 2}


def _ring(kind: CollectiveKind, layout: Layout) -> list[FlowStep]:
    """Steps of a ring collective along the rings of the layout, an equal share on each.

    Of an all-to-all everything goes round and shrinks: in step k of n-1 a rank passes on n-k blocks
    of S/n. It loads a ring's links as ASTRA-sim's ring all-to-all does, with fewer messages. No
    network exists on which sending directly is slower.
    """
    if kind in (CollectiveKind.BROADCAST, CollectiveKind.REDUCE):
        steps = _chains(layout)
        return swapped(steps) if inwards(kind) else steps
    edges, ranks, rings = _edges(layout), layout.ranks, len(layout.orders)
    if kind is CollectiveKind.ALL_TO_ALL:
        return [FlowStep(edges, left / ranks / rings) for left in range(ranks - 1, 0, -1)]
    return [FlowStep(edges, 1 / ranks / rings, _ROUNDS.get(kind, 1) * (ranks - 1), chained=True)]


def _bidirectional(kind: CollectiveKind, layout: Layout) -> list[FlowStep]:
    """Blocks travel both ways round and meet opposite: (n-1)/2 steps of S/n on every link.

    Of an even number of ranks the opposite block comes half from either side, in a last step.
    """
    ahead = _edges(layout)
    edges = np.concatenate(ahead), np.concatenate(ahead[::-1])
    block = 1 / layout.ranks / len(layout.orders)
    whole, half = (layout.ranks - 1) // 2, layout.ranks % 2 == 0
    return [
        FlowStep(edges, fraction, _ROUNDS.get(kind, 1) * steps)
        for fraction, steps in ((block, whole), (block / 2, int(half)))
        if steps
    ]


def _edges(layout: Layout) -> tuple[Ints, Ints]:
    """Each member and the one after it, on every ring."""
    return (
        np.concatenate(layout.orders),
        np.concatenate([np.roll(order, -1) for order in layout.orders]),
    )


def _chains(layout: Layout) -> list[FlowStep]:
    """Broadcast of an equal share along each ring, which stays open.

    This is NCCL's ring broadcast and, backwards, its reduction. All hops are busy at once, so they
    are one step; a stage through which the chain fills costs a path latency before. Pieces are
    taken to be small.
    A stage of the fill costs the slowest path among the hops that leave the same axes; the chain
    that leaves the outermost ones most often is the last to fill.
    """
    chains = [np.roll(order, -int(np.argmin(order))) for order in layout.orders]
    hops = np.stack([np.stack((chain[:-1], chain[1:])) for chain in chains], axis=1)
    reach = _outermost_axis(layout, hops)
    stages = max(np.bincount(each, minlength=reach.max() + 1).tolist()[::-1] for each in reach)
    stages[0] -= 1  # the step that carries everything pays for one hop of the farthest kind
    share = 1 / len(chains)
    parts = ((hops[:, reach == axis], share, n) for axis, n in enumerate(reversed(stages)))
    return pipelined(*parts)


def _outermost_axis(layout: Layout, hops: Ints) -> Ints:
    """Of each hop the outermost axis along which its ends differ."""
    differ = layout.coordinates[hops[0]] != layout.coordinates[hops[1]]
    axes: Ints = differ.shape[-1] - 1 - np.argmax(differ[..., ::-1], axis=-1)
    return axes


RING = FlatAlgorithm(
    kinds=(*REDUCING, CollectiveKind.ALL_TO_ALL, CollectiveKind.BROADCAST, CollectiveKind.REDUCE),
    steps=_ring,
    basic=REDUCING,
    copies_own=True,
    worth_pricing=lambda kind, crossed, ranks: kind is not CollectiveKind.ALL_TO_ALL,
)
"""An all-to-all round a ring is never faster than one sent directly."""
BIDIRECTIONAL_RING = FlatAlgorithm(kinds=REDUCING, steps=_bidirectional, copies_own=True)
