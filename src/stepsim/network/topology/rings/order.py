"""Rings through a group of NPUs that follow the network: which member comes after which."""

from collections.abc import Sequence

import numpy as np

from stepsim.base.arrays import Ints, distinct
from stepsim.network.topology.placed import PlacedWiring
from stepsim.network.topology.rings.grid_rings import grid_rings
from stepsim.network.topology.rings.search import disjoint_rings
from stepsim.network.topology.wiring import DimensionKind
from stepsim.network.topology.wirings import Cables

_GRID = (DimensionKind.RING, DimensionKind.LINE)


def rings(
    members: Ints, node_size: int, axes: Sequence[PlacedWiring], *, duplex: bool = False
) -> tuple[Ints, ...]:
    """Member positions in ring order, one order per channel.

    A group within a torus, mesh or cabled node goes from neighbour to neighbour, where it fills a
    block; any other goes node by node, and through each node in that way. With `duplex` each
    ring over cables has one the other way round beside it, as NCCL's have.
    """
    found = _neighbours(members, axes) or node_rings(
        members, node_size, _inside(members, node_size, axes)
    )
    if duplex and _over_cables(members, axes):
        return found + tuple(order[::-1] for order in found)
    return found


def _over_cables(members: Ints, axes: Sequence[PlacedWiring]) -> bool:
    """Whether the group lies within wirings of single cables."""
    spread = [axis for axis in axes if len(distinct(axis.coordinates(members))) > 1]
    return all(isinstance(axis.wiring, Cables) for axis in spread)


def node_rings(members: Ints, node_size: int, inside: tuple[Ints, ...] = ()) -> tuple[Ints, ...]:
    """Member positions in ring order, one order per channel, going node by node.

    Channel c enters each node at its c-th member there and leaves it at the one before, as NCCL's
    channels do, so that every NPU's network link is used. `inside` are the orders of a node's
    members, taken in turn; they are as given by default.
    """
    places = np.arange(len(members), dtype=np.int64)
    ends = np.flatnonzero(np.diff(members // node_size)) + 1
    if not len(ends):
        return inside or (places,)
    counts = np.diff([0, *ends.tolist(), len(members)])
    if (counts == counts[0]).all():
        nodes = places.reshape(len(counts), -1)
        ways = [nodes[:, order] for order in inside] or [nodes]
        return tuple(
            np.roll(ways[c % len(ways)], -c, axis=1).reshape(-1) for c in range(int(counts[0]))
        )
    several = np.split(places, ends)
    return tuple(
        np.concatenate([np.roll(node, -c) for node in several]) for c in range(int(counts.min()))
    )


def _inside(members: Ints, node_size: int, axes: Sequence[PlacedWiring]) -> tuple[Ints, ...]:
    """Orders of the members of a node, where every node has the same ones."""
    first = members[members // node_size == members[0] // node_size]
    alike = len(members) % len(first) == 0 and np.array_equal(
        members % node_size, np.tile(first % node_size, len(members) // len(first))
    )
    return _neighbours(first, axes) if alike else ()


def _neighbours(members: Ints, axes: Sequence[PlacedWiring]) -> tuple[Ints, ...]:
    """Rings from neighbour to neighbour; none where the group does not lie so."""
    coordinates = [(axis, axis.coordinates(members)) for axis in axes]
    spread = [(axis, column) for axis, column in coordinates if (column != column[0]).any()]
    kinds = [axis.wiring.kind for axis, _ in spread]
    if spread and all(kind in _GRID for kind in kinds):
        return grid_rings(
            np.stack([column for _, column in spread], axis=1),
            [axis.outer_size for axis, _ in spread],
            [kind is DimensionKind.RING for kind in kinds],
        )
    if len(spread) != 1:
        return ()
    wiring, column = spread[0][0].wiring, spread[0][1]
    if isinstance(wiring, Cables):
        return disjoint_rings(wiring.between(column))
    return ()
