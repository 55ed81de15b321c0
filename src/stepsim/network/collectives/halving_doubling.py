"""Halving and doubling: ranks exchange with partners 1, 2, 4, ... places away.

Reduce-scatter halves what is sent while the distance doubles, all-gather runs backwards, all-reduce
is one after the other: 2 log2(n) steps for 2(n-1)/n S bytes (Rabenseifner, "Optimization of
collective reduction operations", ICCS 2004; Thakur, Rabenseifner and Gropp, "Optimization of
collective communication operations in MPICH", IJHPCA 19, 2005). ASTRA-sim takes the same distances.

Where n is no power of two, the first ranks form pairs: one of each pair hands its data to the other
before and gets the result after, as in MPICH.
"""

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.axes import CollectiveKind
from stepsim.network.collectives.flows import (
    REDUCING,
    FlatAlgorithm,
    FlowStep,
    backwards,
    soon_traced,
)
from stepsim.network.topology import Layout


def _halving_doubling(kind: CollectiveKind, layout: Layout) -> list[FlowStep]:
    """Steps of a reduce-scatter, an all-gather or an all-reduce."""
    ranks = layout.ranks
    members, outside = _core(ranks)
    if kind is CollectiveKind.ALL_REDUCE:
        shares = np.full(len(members), 1 / len(members))
        scatter = [*_hand_over(outside, 1.0), *_exchanges(members, shares)]
        return scatter + backwards(scatter)
    shares = np.full(len(members), 1 / ranks)
    shares[: len(outside)] *= 2
    whole, own = _hand_over(outside, (ranks - 1) / ranks), _hand_over(outside, 1 / ranks)
    scatter = [*whole, *_exchanges(members, shares), *backwards(own)]
    return scatter if kind is CollectiveKind.REDUCE_SCATTER else backwards(scatter)


def _core(ranks: int) -> tuple[Ints, Ints]:
    """Positions of the largest power of two of ranks, and those that the first of them serve."""
    core = 1 << (ranks.bit_length() - 1)
    pairs = 2 * (ranks - core)
    positions = np.arange(ranks, dtype=np.int64)
    return np.concatenate((positions[:pairs:2], positions[pairs:])), positions[1:pairs:2]


def _hand_over(outside: Ints, fraction: float) -> list[FlowStep]:
    """Those outside the power of two send to their neighbours inside."""
    return [FlowStep((outside, outside - 1), fraction)] if len(outside) else []


def _exchanges(members: Ints, shares: Floats) -> list[FlowStep]:
    """Partners exchange what the other and its later partners end with; `shares` add up to 1."""
    steps = []
    numbers = np.arange(len(members), dtype=np.int64)
    for bit in range(len(members).bit_length() - 1):
        partners, groups = numbers ^ (1 << bit), 2 << bit
        sent = np.bincount(numbers % groups, shares)[partners % groups]
        fraction = sent if np.ptp(sent) else float(sent[0])
        steps.append(FlowStep((members, members[partners]), fraction))
    return steps


HALVING_DOUBLING = FlatAlgorithm(kinds=REDUCING, steps=_halving_doubling, worth_pricing=soon_traced)
