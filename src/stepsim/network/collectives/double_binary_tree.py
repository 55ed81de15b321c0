"""Double binary trees: half of the data on each of two trees, in small pieces.

A rank that passes on in one tree is a leaf of the other, so that all links are used: Sanders, Speck
and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
Computing 35 (2009). The shape of the trees is NCCL's (trees.cc), and as in NCCL an all-reduce over
several nodes has trees over nodes, one pair per channel, and chains of the ranks inside a node
(connect.cc). All flows of a pipeline run at once, so they are one step; a stage through which it
fills costs a path latency before.
"""

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.axes import CollectiveKind
from stepsim.network.collectives.flows import (
    FlatAlgorithm,
    FlowStep,
    inwards,
    pipelined,
    soon_traced,
    swapped,
)
from stepsim.network.topology import Layout


def _double_binary_tree(kind: CollectiveKind, layout: Layout) -> list[FlowStep]:
    """Steps of an all-reduce, a broadcast or a reduction."""
    if kind is CollectiveKind.ALL_REDUCE:
        return _all_reduce(layout)
    steps = _broadcast(layout)
    return swapped(steps) if inwards(kind) else steps


def _broadcast(layout: Layout) -> list[FlowStep]:
    """The first member feeds two trees over the others, half of the data each, on every ring."""
    trees = []
    for order in layout.orders:
        chain = np.roll(order, -int(np.argmin(order)))
        for parents in double_tree(layout.ranks - 1):
            trees.append((np.where(parents < 0, chain[0], chain[1:][parents]), chain[1:]))
    depth = max(tree_depth(parents) for parents in double_tree(layout.ranks - 1))
    return pipelined((np.concatenate(trees, axis=1), 1 / len(trees), depth))


def _all_reduce(layout: Layout) -> list[FlowStep]:
    """All-reduce: up and down two trees over nodes on every ring, and chains inside the nodes.

    Where all members share a node, or each has its own, the trees join ranks.
    """
    trees, chains, depth, length = [], [], 0, 0
    for order in layout.orders:
        heads, chain, longest = _nodes(layout, order)
        for parents in double_tree(len(heads)):
            trees.append(tree_edges(heads, parents))
            depth = max(depth, tree_depth(parents))
        chains.append(chain)
        length = max(length, longest)
    tree, chain = (both_ways(np.concatenate(each, axis=1)) for each in (trees, chains))
    share = 1 / len(trees)
    return pipelined((tree, share, 2 * depth - 1), (chain, 2 * share, 2 * length))


def double_tree(nodes: int) -> tuple[Ints, Ints]:
    """Parent of each node in two trees, -1 at the root: NCCL's, the second mirrored or shifted.

    A node that passes on in one tree is a leaf of the other, but for the root's only child.
    """
    numbers = np.arange(nodes, dtype=np.int64)
    bit = numbers & -numbers
    above = (numbers ^ bit) | (bit << 1)
    first = np.where(above < nodes, above, numbers ^ bit)
    first[0] = -1
    if nodes % 2 == 0:
        return first, np.where(first < 0, first, nodes - 1 - first)[::-1]
    return first, np.roll(np.where(first < 0, first, (first + 1) % nodes), 1)


def tree_depth(parents: Ints) -> int:
    """Edges from the root to the farthest leaf."""
    depth, reached = 0, parents
    while (reached >= 0).any():
        reached = np.where(reached < 0, reached, parents[reached])
        depth += 1
    return depth


def tree_edges(members: Ints, parents: Ints) -> Ints:
    """Parents and children of a tree over members, as two rows."""
    below = np.flatnonzero(parents >= 0)
    return np.stack((members[parents[below]], members[below]))


def both_ways(edges: Ints) -> Ints:
    """Edges of the tree in both directions, first down, then up."""
    return np.concatenate((edges, edges[::-1]), axis=1)


def _nodes(layout: Layout, order: Ints) -> tuple[Ints, Ints, int]:
    """First member of each node along a ring, edges of the chains inside, hops of the longest."""
    outer = layout.coordinates[order][:, 1:]
    enters = np.concatenate(([True], (outer[1:] != outer[:-1]).any(axis=1)))
    if np.count_nonzero(enters) == 1:
        enters[:] = True
    first = np.flatnonzero(enters)
    inside = np.flatnonzero(~enters)
    longest = int(np.diff([*first, layout.ranks]).max()) - 1
    return order[first], np.stack((order[inside - 1], order[inside])), longest


DOUBLE_BINARY_TREE = FlatAlgorithm(
    kinds=(CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST, CollectiveKind.REDUCE),
    steps=_double_binary_tree,
    worth_pricing=soon_traced,
)
