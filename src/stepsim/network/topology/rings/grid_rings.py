"""Rings through blocks of a torus or mesh, from neighbour to neighbour.

On a torus, two rings that share no cable: Bose, Broeg, Kwon and Ashir, "Lee distance and
topological properties of k-ary n-cubes", IEEE ToC 1995; Bae and Bose, "Edge disjoint Hamiltonian
cycles in k-ary n-cubes and hypercubes", IEEE ToC 2003.
"""

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from stepsim.base.arrays import Ints, distinct

_Cell = tuple[int, ...]


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
        ring and _goes_around(level, size)
        for level, size, ring in zip(levels, sizes, closed, strict=True)
    ]
    place = np.empty(shape, dtype=np.int64)
    index = [
        np.searchsorted(level, column) for level, column in zip(levels, coordinates.T, strict=True)
    ]
    place[tuple(index)] = np.arange(len(coordinates), dtype=np.int64)
    cycles = _disjoint_cycles(shape) if all(around) else []
    cycles = cycles or [_snake(shape, around)]
    return tuple(np.array([place[cell] for cell in cycle], dtype=np.int64) for cycle in cycles)


def _goes_around(level: Ints, size: int) -> bool:
    """Whether the way from the last coordinate on to the first is no longer than other steps."""
    return bool(size - level[-1] + level[0] <= np.diff(level).max())


def _disjoint_cycles(shape: _Cell) -> list[list[_Cell]]:
    """Two cycles through a torus that share no cable, where the formula gives them."""
    if len(shape) < 2 or min(shape) < 3:
        return []
    if len(shape) > 2:
        inner = _disjoint_cycles(shape[:-1])
        if not inner:
            return []
        flat = _two_cycles(len(inner[0]), shape[-1])
        return [[(*inner[0][a], b) for a, b in cycle] for cycle in flat]
    return [list[_Cell](cycle) for cycle in _two_cycles(*shape)]


def _two_cycles(m: int, k: int) -> list[list[tuple[int, int]]]:
    """Edge-disjoint cycles through an m by k torus; none where the formula does not hold."""
    if m < k:
        return [[(a, b) for b, a in cycle] for cycle in _two_cycles(k, m)]
    words = [divmod(number, k) for number in range(m * k)]
    cycles = [
        [(a, (b - a) % k) for a, b in words],
        [((a * (k - 1) + b) % m, a % k) for a, b in words],
    ]
    cables = [_cables(cycle, (m, k)) for cycle in cycles]
    sound = all(len(each) == m * k for each in cables) and not cables[0] & cables[1]
    return cycles if sound else []


def _cables(cycle: list[tuple[int, int]], shape: _Cell) -> set[frozenset[_Cell]]:
    """The cables that a cycle uses; none if it is no cycle of neighbours through all cells."""
    if len(set(cycle)) != prod(shape):
        return set()
    steps = list(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    for here, there in steps:
        far = [min((a - b) % n, (b - a) % n) for a, b, n in zip(here, there, shape, strict=True)]
        if sum(far) != 1:
            return set()
    return {frozenset(step) for step in steps}


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
    cells = []
    for cell in product(*(range(side) for side in reversed(shape))):
        turned: list[int] = []
        for digit, side in zip(cell, reversed(shape), strict=True):
            turned.append(side - 1 - digit if sum(turned) % 2 else digit)
        cells.append(tuple(reversed(turned)))
    return cells


def _insert(cell: _Cell, axis: int, value: int) -> _Cell:
    return (*cell[:axis], value, *cell[axis:])
