"""Chains: pieces go from the first member along each ring, which stays open.

This is NCCL's ring broadcast and, backwards, its reduction. All hops are busy at once, so they are
one step; a stage through which the chain fills costs a path latency before. Pieces are taken to be
small.
"""

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.network.collectives.flows import FlowStep, flows
from stepsim.network.topology import Layout


def chain_broadcast(layout: Layout) -> list[FlowStep]:
    """Broadcast of an equal share along each ring.

    A stage of the fill costs the slowest path among the hops that leave the same axes; the chain
    that leaves the outermost ones most often is the last to fill.
    """
    chains = [np.roll(order, -int(np.argmin(order))) for order in layout.orders]
    hops = np.stack([np.stack((chain[:-1], chain[1:])) for chain in chains], axis=1)
    reach = _outermost_axis(layout, hops)
    stages = max(np.bincount(each, minlength=reach.max() + 1).tolist()[::-1] for each in reach)
    stages[0] -= 1  # the step that carries everything pays for one hop of the farthest kind
    fill = [
        flows(hops[:, reach == axis], 0.0, count)
        for axis, count in enumerate(reversed(stages))
        if count
    ]
    return [*fill, flows(hops.reshape(2, -1), 1 / len(chains))]


def _outermost_axis(layout: Layout, hops: Ints) -> Ints:
    """Of each hop the outermost axis along which its ends differ."""
    differ = layout.coordinates[hops[0]] != layout.coordinates[hops[1]]
    axes: Ints = differ.shape[-1] - 1 - np.argmax(differ[..., ::-1], axis=-1)
    return axes
