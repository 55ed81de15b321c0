"""In-switch reduction: the switch adds what the ranks hold and copies what it sends (NVLink SHARP).

A rank reads its n-th share reduced (every rank sends all its data up, and gets S/n down) and writes
the result to all (S/n up, S down): NCCL's NVLS, nvls.cc and all_reduce.h. Over several nodes each
rank's share goes up and down a double binary tree over the nodes on the rank's own rail, between
the two halves: NCCL's NVLSTree.

Flows name ports here: they join neighbours, so that each loads one port up and one down. In a
reduce-scatter or an all-gather one direction carries S/n only; it is counted as the other. A switch
that reduces at less than the links' capacity counts as so many more bytes.
"""

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.axes import CollectiveKind
from stepsim.network.collectives.double_binary_tree import (
    both_ways,
    double_tree,
    tree_depth,
    tree_edges,
)
from stepsim.network.collectives.flows import (
    REDUCING,
    FlatAlgorithm,
    FlowStep,
    levels_of,
    pipelined,
)
from stepsim.network.topology import Layout


def _nvls(kind: CollectiveKind, layout: Layout) -> list[FlowStep]:
    """All-reduce moves S(1 + 1/n) over each port of a switch that holds all members, others S."""
    if not layout.reduces:
        return _tree(layout)
    ports = _ports(np.arange(layout.ranks, dtype=np.int64)[None])
    if kind is not CollectiveKind.ALL_REDUCE:
        return [FlowStep(ports, 1 / layout.reduces)]
    return [
        FlowStep(ports, 0.0),
        FlowStep(ports, (1 + 1 / layout.ranks) / layout.reduces),
    ]


def _tree(layout: Layout) -> list[FlowStep]:
    """All-reduce over several nodes of k ranks, as one pipeline."""
    levels = levels_of(layout)
    assert levels is not None  # see _refuses
    nodes = levels.groups(0)
    inside = _ports(nodes)
    parents = double_tree(len(nodes))
    rails = [tree_edges(rail, tree) for rail in nodes.T for tree in parents]
    across = both_ways(np.concatenate(rails, axis=1))
    depth = max(tree_depth(tree) for tree in parents)
    port = (1 + 1 / nodes.shape[1]) / layout.reduces_inside
    return pipelined((inside, port, 2), (across, 1 / len(rails), 2 * depth - 1))


def _ports(groups: Ints) -> Ints:
    """Each member and the next of its group: every port once up and once down."""
    return np.stack((groups.reshape(-1), np.roll(groups, -1, axis=1).reshape(-1)))


def _refuses(kind: CollectiveKind, layout: Layout) -> str:
    """Why the switches cannot carry out a kind over a group; nothing if they can."""
    if layout.reduces:
        return ""
    if not layout.reduces_inside:
        return "its ranks meet in no switch that reduces"
    if kind is not CollectiveKind.ALL_REDUCE:
        return "over several nodes the switches only all-reduce"
    levels = levels_of(layout)
    if levels is None or len(levels.sizes) < 2 or not levels.reduces_inside:
        return "every node needs the same number of ranks, at least two"
    return ""


NVLS = FlatAlgorithm(kinds=REDUCING, steps=_nvls, refuses=_refuses, in_switch=True)
