"""Binomial trees: every rank that has data sends it on, so that each step reaches twice as many.

Broadcasts go to the near ranks first, so that many links carry the last steps; scatters to the far
ones, so that each step hands on half of what is left.
MPICH: Thakur et al., "Optimization of collective communication operations in MPICH", IJHPCA 2005.
"""

import numpy as np

from stepsim.base.axes import CollectiveKind
from stepsim.network.collectives.flows import (
    ROOTED,
    FlatAlgorithm,
    FlowStep,
    backwards,
    inwards,
)
from stepsim.network.topology import Layout


def _binomial_tree(kind: CollectiveKind, layout: Layout) -> list[FlowStep]:
    """Steps of a broadcast or a scatter from the first member, or backwards to it."""
    whole = kind in (CollectiveKind.BROADCAST, CollectiveKind.REDUCE)
    steps = _broadcast(layout) if whole else _scatter(layout)
    return backwards(steps) if inwards(kind) else steps


def _broadcast(layout: Layout) -> list[FlowStep]:
    """Broadcast from the first member in ceil(log2 n) steps of the whole size."""
    steps = []
    informed = 1
    while informed < layout.ranks:
        senders = np.arange(min(informed, layout.ranks - informed), dtype=np.int64)
        steps.append(FlowStep((senders, senders + informed), 1.0))
        informed += len(senders)
    return steps


def _scatter(layout: Layout) -> list[FlowStep]:
    """Scatter from the first member: each step hands on the blocks of half the ranks one serves."""
    steps = []
    distance = 1 << ((layout.ranks - 1).bit_length() - 1)
    while distance:
        senders = np.arange(0, layout.ranks - distance, 2 * distance, dtype=np.int64)
        served = np.minimum(layout.ranks - senders - distance, distance)
        steps.append(FlowStep((senders, senders + distance), served / layout.ranks))
        distance //= 2
    return steps


TREE = FlatAlgorithm(kinds=ROOTED, steps=_binomial_tree, basic=ROOTED)
