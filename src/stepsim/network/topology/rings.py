"""Rings through a group of NPUs that follow the network: which member comes after which.

A block of a torus or mesh is walked from neighbour to neighbour. On a torus, two rings that share
no cable: Bose, Broeg, Kwon and Ashir, "Lee distance and topological properties of k-ary n-cubes",
IEEE ToC 1995; Bae and Bose, "Edge disjoint Hamiltonian cycles in k-ary n-cubes and hypercubes",
IEEE ToC 2003. Where NPUs are cabled to some others only, a short search finds a ring.
"""

from collections.abc import Sequence
from math import gcd, prod

import numpy as np

from stepsim.base.arrays import Ints, distinct, ints
from stepsim.base.structs import Numbers
from stepsim.network.topology.placed import PlacedWiring
from stepsim.network.topology.wiring import DimensionKind
from stepsim.network.topology.wirings import Cables

_GRID = (DimensionKind.RING, DimensionKind.LINE)


def rings(
    members: Ints, node_size: int, axes: Sequence[PlacedWiring], *, duplex: bool
) -> tuple[Ints, ...]:
    """Member positions in ring order, one order per channel.

    A group within a torus, mesh or cabled node goes from neighbour to neighbour, where it fills a
    block; any other goes node by node, and through each node in that way. With `duplex` each
    ring over cables has one the other way round beside it, as NCCL's have.
    """
    found = _neighbours(members, axes)
    if not found:
        # orders of the members of a node, where every node has the same ones
        first = members[members // node_size == members[0] // node_size]
        alike = len(members) % len(first) == 0 and np.array_equal(
            members % node_size, np.tile(first % node_size, len(members) // len(first))
        )
        found = node_rings(members, node_size, _neighbours(first, axes) if alike else ())
    if duplex and all(
        isinstance(axis.wiring, Cables) for axis in axes if np.ptp(axis.coordinates(members))
    ):
        return found + tuple(order[::-1] for order in found)
    return found


def node_rings(members: Ints, node_size: int, inside: tuple[Ints, ...] = ()) -> tuple[Ints, ...]:
    """Member positions in ring order, one order per channel, going node by node.

    Channel c enters each node at its c-th member there and leaves it at the one before, as NCCL's
    channels do, so that every NPU's network link is used. `inside` are the orders of a node's
    members, taken in turn; they are as given by default.
    """
    places = np.arange(len(members), dtype=np.int64)
    starts = np.flatnonzero(np.diff(members // node_size, prepend=-1))
    if len(starts) == 1:
        return inside or (places,)
    counts = np.diff(starts, append=len(members))
    first, count = np.repeat(starts, counts), np.repeat(counts, counts)
    ways = inside or (places,)
    return tuple(
        first + ways[channel % len(ways)][(places - first + channel) % count]
        for channel in range(int(counts.min()))
    )


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
        return disjoint_rings(wiring.cabling.between(column))
    return ()


_Cell = Numbers


def grid_rings(coordinates: Ints, sizes: Sequence[int], closed: Sequence[bool]) -> tuple[Ints, ...]:
    """Rings of positions of a group that fills a block; none if it does not.

    `sizes[k]` is the length of axis k, `closed[k]` whether it is a ring. A block that takes in only
    part of a ring is a line there.
    """
    levels = [distinct(column) for column in coordinates.T]
    shape = tuple(len(level) for level in levels)
    if prod(shape) != len(coordinates):
        return ()
    around = [
        # whether the way from the last coordinate on to the first is no longer than other steps
        ring and bool(size - level[-1] + level[0] <= np.diff(level).max())
        for level, size, ring in zip(levels, sizes, closed, strict=True)
    ]
    place = np.empty(shape, np.int64)
    index = [
        np.searchsorted(level, column) for level, column in zip(levels, coordinates.T, strict=True)
    ]
    place[tuple(index)] = np.arange(len(coordinates), dtype=np.int64)
    cycles = _disjoint_cycles(shape) if all(around) else []
    cycles = cycles or [_snake(shape, around)]
    return tuple(ints([place[cell] for cell in cycle]) for cycle in cycles)


def _disjoint_cycles(shape: _Cell) -> list[list[_Cell]]:
    """Two cycles through a torus that share no cable, where the formula gives them."""
    if len(shape) < 2 or min(shape) < 3:
        return []
    if len(shape) == 2:
        return _two_cycles(*shape)
    inner = _disjoint_cycles(shape[:-1])
    if not inner:
        return []
    flat = _two_cycles(len(inner[0]), shape[-1])
    return [[(*inner[0][a], b) for a, b in cycle] for cycle in flat]


def _two_cycles(m: int, k: int) -> list[list[_Cell]]:
    """Edge-disjoint cycles through an m by k torus; none where the formula does not hold."""
    if m < k:
        return [[(a, b) for b, a in cycle] for cycle in _two_cycles(k, m)]
    if m % k or gcd(m, k - 1) > 1:
        return []
    words = [divmod(number, k) for number in range(m * k)]
    return [
        [(a, (b - a) % k) for a, b in words],
        [((a * (k - 1) + b) % m, a % k) for a, b in words],
    ]


def _snake(shape: _Cell, around: Sequence[bool]) -> list[_Cell]:
    """One cycle through a block, with no long way back where there is a shorter one.

    Along one axis: around a ring, or out on even and back on odd places of a line. With more: back
    and forth along one axis, from place to place of the others, and home along its first places;
    that closes where the others have an even number of places.
    """
    if len(shape) == 1:
        if around[0]:
            return [(a,) for a in range(shape[0])]
        return [(a,) for a in (*range(0, shape[0], 2), *reversed(range(1, shape[0], 2)))]
    for home, side in enumerate(shape):
        rest = [k for k in range(len(shape)) if k != home]
        if prod(shape[k] for k in rest) % 2 == 0 or around[home] or side == 2:
            break
    path = _back_and_forth([shape[k] for k in rest])
    cells = []
    for i, cell in enumerate(path):
        lane = range(1, side) if i % 2 == 0 else range(side - 1, 0, -1)
        cells += [_insert(cell, home, a) for a in lane]
    return cells + [_insert(cell, home, 0) for cell in reversed(path)]


def _back_and_forth(shape: Sequence[int]) -> list[_Cell]:
    """All cells so that each is a neighbour of the one before."""
    path: list[_Cell] = [()]
    for side in shape:
        path = [(*cell, a) for a in range(side) for cell in path[:: -1 if a % 2 else 1]]
    return path


def _insert(cell: _Cell, axis: int, value: int) -> _Cell:
    return (*cell[:axis], value, *cell[axis:])


_MOST_NPUS = 32
_MOST_STEPS = 20_000


def disjoint_rings(cables: Ints) -> tuple[Ints, ...]:
    """Rings through all NPUs that share no cable, as many as are found; none if there is none.

    `cables[a, b]` is the number of cables from a to b. The search is greedy and bounded: it prefers
    pairs with the most cables left, then low numbers, and gives up a ring after 20,000 steps.
    """
    left = np.minimum(cables, cables.T)
    rings: list[Ints] = []
    if not 3 <= len(left) <= _MOST_NPUS:
        return ()
    while ring := _ring(left):
        rings.append(ints(ring))
        for here, there in zip(ring, ring[1:] + ring[:1], strict=True):
            left[here, there] -= 1
            left[there, here] -= 1
    return tuple(rings)


def _ring(cables: Ints) -> list[int]:
    """One ring through all NPUs over cables that are left; empty if none is found soon."""
    npus = len(cables)
    options = [
        [other for other in np.argsort(-row, kind="stable").tolist() if row[other]]
        for row in cables
    ]
    path, tried = [0], [0]
    for _ in range(_MOST_STEPS):
        here = path[-1]
        if len(path) == npus and cables[here, 0]:
            return path
        while tried[-1] < len(options[here]) and options[here][tried[-1]] in path:
            tried[-1] += 1
        if len(path) < npus and tried[-1] < len(options[here]):
            path.append(options[here][tried[-1]])
            tried[-1] += 1
            tried.append(0)
        else:
            path.pop()
            tried.pop()
            if not path:
                return []
    return []
