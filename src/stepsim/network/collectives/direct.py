"""Direct algorithms: every rank sends to every other rank at once.

So are all-to-alls in NCCL, of grouped sends and receives; ASTRA-sim calls it `direct`.
"""

import numpy as np

from stepsim.base.axes import CollectiveKind
from stepsim.network.collectives.flows import (
    REDUCING,
    FlatAlgorithm,
    FlowStep,
    inwards,
    swapped,
)
from stepsim.network.topology import DimensionKind, Layout

_MOST_PAIRS = 1 << 17


def _direct(kind: CollectiveKind, layout: Layout) -> list[FlowStep]:
    """Steps of a collective whose blocks all travel at once.

    A scatter sends everyone its block of S/n, as NCCL's grouped sends do. Others are one step of
    n(n-1) flows of S/n, two of an all-reduce: reduce-scatter, then all-gather. In an all-to-all S
    is what each rank sends, its own share included.
    """
    if kind is CollectiveKind.SEND_RECV:
        return _send_recv(layout)
    if kind in (CollectiveKind.SCATTER, CollectiveKind.GATHER):
        others = np.arange(1, layout.ranks, dtype=np.int64)
        steps = [FlowStep((np.zeros_like(others), others), 1 / layout.ranks)]
        return swapped(steps) if inwards(kind) else steps
    repeat = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    return [FlowStep((), 1 / layout.ranks, repeat, everyone=layout.ranks)]


def _send_recv(layout: Layout) -> list[FlowStep]:
    """One message of the whole size from the first of two members to the second.

    Of more members each sends to the next one round one ring, as nccl-tests' sendrecv does: a hop
    of ring attention, which leaves a node through one NPU alone.
    """
    if layout.ranks > 2:
        order = layout.orders[0]
        return [FlowStep((order, np.roll(order, -1)), 1.0)]
    first = np.zeros(min(1, layout.ranks - 1), np.int64)
    return [FlowStep((first, first + 1), 1.0)]


def _worth_pricing(kind: CollectiveKind, crossed: int, ranks: int) -> bool:
    """Not for exchanges of all pairs that cross many dimensions (362 ranks on a switch)."""
    return kind not in REDUCING or crossed * (ranks - 1) <= _MOST_PAIRS


DIRECT = FlatAlgorithm(
    kinds=(
        *REDUCING,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.GATHER,
        CollectiveKind.SCATTER,
        CollectiveKind.SEND_RECV,
    ),
    steps=_direct,
    basic=(CollectiveKind.ALL_TO_ALL, CollectiveKind.SEND_RECV),
    worth_pricing=_worth_pricing,
    copies_own=True,
    best_on=(DimensionKind.FULLY_CONNECTED,),
)
