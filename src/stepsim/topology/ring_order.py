"""Rings through a group of NPUs that follow the network: which member comes after which."""

import numpy as np

from stepsim.topology.links import Ints


def node_rings(members: Ints, node_size: int) -> tuple[Ints, ...]:
    """Member positions in ring order, one order per channel, going node by node.

    Channel c enters each node at its c-th member there and leaves it at the one before, as NCCL's
    channels do, so that every NPU's network link is used.
    """
    places = np.arange(len(members), dtype=np.int64)
    nodes = np.split(places, np.flatnonzero(np.diff(members // node_size)) + 1)
    if len(nodes) == 1:
        return (places,)
    channels = min(len(node) for node in nodes)
    return tuple(np.concatenate([np.roll(node, -c) for node in nodes]) for c in range(channels))
