"""What an exchange of all pairs puts on nested dimensions, without a flow per pair.

Members that are all combinations of some coordinates look alike along every axis: as many flows run
between any two of their coordinates, in every copy of the wiring. So an exchange between positions
of one copy tells the loads of all.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np

from stepsim.base.arrays import Floats, Ints, Summand, add_up, distinct, distinct_rows
from stepsim.network.topology.placed import PlacedWiring
from stepsim.network.topology.wiring import Flows, Wiring

_PAIRS_AT_ONCE = 1 << 20


@runtime_checkable
class _Switched(Protocol):
    """A wiring of switches in layers: those of layer l are above `layers[l]` neighbours each."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Neighbours that meet in a NIC or switch of each layer, innermost first."""

    def exchange(self, positions: Ints, crossing: Sequence[Floats]) -> Summand:
        """Loads where `crossing[l][i]` flows leave position i's switch of layer l, and enter it.

        Layer 0 are the positions themselves, so that `layers[l]` belongs to `crossing[l + 1]`.
        """


def exchange(
    axes: Sequence[PlacedWiring], classes: int, members: Ints
) -> tuple[Summand, Ints] | None:
    """Loads on links, and the kinds of paths, of a flow of weight 1 between any two members.

    A row of paths has the hops of each of so many `classes` of links. None where the members are
    not all combinations of some coordinates.
    """
    counts = [len(distinct(axis.coordinates(members))) for axis in axes]
    if prod(counts) != len(members) or len(distinct(members)) != len(members):
        return None
    parts: list[Summand] = []
    joined: list[Ints] = []
    walked = np.zeros((1, classes), dtype=np.int64)
    for k, axis in enumerate(axes):
        block = axis.outer_stride if axis.joins_inside else 1
        (links, loads), hops = _within(axis.wiring, distinct(axis.positions(members)), block)
        if not links.size:
            continue
        rows = np.zeros((len(hops), classes), dtype=np.int64)
        rows[:, axis.classes] = hops
        beyond = zip(counts[k + 1 :], axes[k + 1 :], strict=True)
        weight = prod(count for count, outer in beyond if not outer.joins_inside)
        if axis.joins_inside:
            joined.append(rows)
        else:
            weight *= prod(counts[:k])
            walked, *joined = (_and_perhaps(each, rows) for each in (walked, *joined))
        first = axis.offset + distinct(axis.copy_of(members)) * axis.links_per_copy
        parts.append(((first[:, None] + links).reshape(-1), np.tile(loads * weight, len(first))))
    return add_up(parts), distinct_rows(np.concatenate([walked[walked.any(axis=1)], *joined]))


def _and_perhaps(paths: Ints, more: Ints) -> Ints:
    """Kinds of paths that may go on as any of others."""
    both = (paths[:, None] + more[None]).reshape(-1, paths.shape[1])
    return distinct_rows(np.concatenate([paths, both]))


def _within(wiring: Wiring, positions: Ints, block: int) -> tuple[Summand, Ints]:
    """Loads and kinds of paths in one copy, of flows between positions of different blocks."""
    sizes = (block, *wiring.layers) if isinstance(wiring, _Switched) else ()
    if isinstance(wiring, _Switched) and _nest(sizes):
        widest = [max(block, size) for size in (1, *wiring.layers)]
        crossing = [_others(positions, size) for size in widest]
        starts = np.tile(positions, len(widest))
        ends = np.concatenate([_next(positions, size) for size in widest])
        return wiring.exchange(positions, crossing), _paths(wiring, starts, ends, block)
    parts, hops = [], [np.zeros((0, len(wiring.link_counts)), dtype=np.int64)]
    several = max(1, _PAIRS_AT_ONCE // len(positions))
    for first in range(0, len(positions), several):
        starts = np.repeat(positions[first : first + several], len(positions))
        ends = np.tile(positions, len(starts) // len(positions))
        apart = starts // block != ends // block
        parts.append(add_up(wiring.load(_flows(starts[apart], ends[apart]))))
        hops.append(_paths(wiring, starts, ends, block))
    return add_up(parts), distinct_rows(np.concatenate(hops))


def _flows(starts: Ints, ends: Ints) -> Flows:
    return Flows(copy=np.zeros_like(starts), start=starts, end=ends, weight=np.ones(len(starts)))


def _paths(wiring: Wiring, starts: Ints, ends: Ints, block: int) -> Ints:
    apart = starts // block != ends // block
    return distinct_rows(wiring.hops(_flows(starts[apart], ends[apart])))


def _nest(sizes: Sequence[int]) -> bool:
    """Whether of any two sizes one divides the other."""
    ascending = sorted(sizes)
    return all(high % low == 0 for low, high in pairwise(ascending))


def _others(positions: Ints, size: int) -> Floats:
    """How many of the positions are not in the same `size` neighbours as each one is."""
    _, place, count = np.unique(positions // size, return_inverse=True, return_counts=True)
    return (len(positions) - count[place]).astype(np.float64)


def _next(positions: Ints, size: int) -> Ints:
    """The first of the ascending positions behind the `size` neighbours of each, or the first."""
    behind = np.searchsorted(positions, (positions // size + 1) * size)
    return positions[behind % len(positions)]
