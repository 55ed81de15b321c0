"""Ring algorithms: every rank passes blocks to the next one.

All-gather and reduce-scatter take n-1 steps of S/n, all-reduce 2(n-1): Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69 (2009).
Over several nodes with k ranks each, k rings of S/k run side by side, each entering and leaving
the nodes through other NPUs, as NCCL's channels do.
"""

import numpy as np

from stepsim.collectives.flows import FlowStep
from stepsim.topology import Layout
from stepsim.workload import CollectiveKind

_ROUNDS = {
    CollectiveKind.ALL_REDUCE: 2,
    CollectiveKind.ALL_GATHER: 1,
    CollectiveKind.REDUCE_SCATTER: 1,
}


def ring(kind: CollectiveKind, layout: Layout) -> list[FlowStep]:
    """Steps of a ring collective along the rings of the layout, an equal share on each."""
    orders = layout.orders
    return [
        FlowStep(
            sources=np.concatenate(orders),
            destinations=np.concatenate([np.roll(order, -1) for order in orders]),
            fraction=1 / layout.ranks / len(orders),
            repeat=_ROUNDS[kind] * (layout.ranks - 1),
        )
    ]
