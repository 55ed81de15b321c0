"""Ring algorithms: every rank passes blocks to the next one.

All-gather and reduce-scatter take n-1 steps of S/n, all-reduce 2(n-1): Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69 (2009).
Over several nodes with k ranks each, k rings of S/k run side by side, each entering and leaving
the nodes through other NPUs, as NCCL's channels do.
"""

import numpy as np

from stepsim.collectives.flows import FlowStep
from stepsim.topology.links import Ints
from stepsim.workload import CollectiveKind

_ROUNDS = {
    CollectiveKind.ALL_REDUCE: 2,
    CollectiveKind.ALL_GATHER: 1,
    CollectiveKind.REDUCE_SCATTER: 1,
}


def ring(kind: CollectiveKind, members: Ints, node_size: int) -> list[FlowStep]:
    """Steps of a ring collective over `members`, NPU numbers listed node by node."""
    orders = ring_orders(members, node_size)
    return [
        FlowStep(
            sources=np.concatenate(orders),
            destinations=np.concatenate([np.roll(order, -1) for order in orders]),
            fraction=1 / len(members) / len(orders),
            repeat=_ROUNDS[kind] * (len(members) - 1),
        )
    ]


def ring_orders(members: Ints, node_size: int) -> list[Ints]:
    """Member positions in ring order, one order per channel.

    Channel c enters each node at its c-th member there and leaves it at the one before.
    """
    places = np.arange(len(members), dtype=np.int64)
    nodes = np.split(places, np.flatnonzero(np.diff(members // node_size)) + 1)
    if len(nodes) == 1:
        return [places]
    channels = min(len(node) for node in nodes)
    return [np.concatenate([np.roll(node, -c) for node in nodes]) for c in range(channels)]
