"""What an exchange of all pairs puts on nested dimensions, without a flow per pair.

Routing is by dimensions, and the members are all combinations of some coordinates, so that copies
of a wiring are alike, and one tells the loads of all. Of switches in layers those of layer l are
above `layers[l]` neighbours each; they say what they carry where position i exchanges with
`others[l][i]` outside its switch of layer l, layer 0 being the positions themselves.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

import numpy as np

from stepsim.base.arrays import Floats, Ints, Summand, add_up, distinct, distinct_rows, slices
from stepsim.network.topology.dimension import Load
from stepsim.network.topology.placed import PlacedWiring
from stepsim.network.topology.wiring import Flows
from stepsim.network.topology.wirings import FatTree

_PAIRS_AT_ONCE = 1 << 20


def exchange(axes: Sequence[PlacedWiring], classes: int, members: Ints) -> Load | None:
    """What a flow of weight 1 between any two members puts on links of so many `classes`.

    Kinds of paths are not counted. None where the members are not all combinations of some
    coordinates.
    """
    counts = [len(distinct(axis.coordinates(members))) for axis in axes]
    if prod(counts) != len(members):
        return None
    links, loads = add_up([_of_grid(axes, counts, k, members) for k in range(len(axes))])
    hops = _paths_of_grid(axes, classes, members)
    return Load(links=links, loads=loads, hops=hops, flows=np.zeros(len(hops), np.int64))


def _of_grid(axes: Sequence[PlacedWiring], counts: Sequence[int], k: int, members: Ints) -> Summand:
    """Loads on the links of axis k, where members are all combinations of so many coordinates."""
    axis, beyond = axes[k], zip(counts[k + 1 :], axes[k + 1 :], strict=True)
    weight = prod(count for count, outer in beyond if not outer.joins_inside)
    weight *= 1 if axis.joins_inside else prod(counts[:k])
    positions = distinct(axis.positions(members))
    links, loads = _within(axis, positions)
    return _in_copies(axis, distinct(axis.copy_of(members)), (links, loads * weight))


def _in_copies(axis: PlacedWiring, copies: Ints, part: Summand) -> Summand:
    """What one copy of an axis carries, in all of these."""
    links, loads = part
    first = axis.offset + copies * axis.links_per_copy
    return (first[:, None] + links).reshape(-1), np.tile(loads, len(copies))


def _within(axis: PlacedWiring, positions: Ints) -> Summand:
    """Loads in one copy of an axis of a flow between any two of these positions."""
    switches = _switches(axis)
    if switches:
        sizes = [max(_block(axis), size) for size in (1, *switches.layers)]
        return switches.exchange(positions, [_others(positions, size) for size in sizes])
    return add_up([add_up(axis.wiring.load(flows)) for flows in _pairs(axis, positions)])


def _paths_of_grid(axes: Sequence[PlacedWiring], classes: int, members: Ints) -> Ints:
    """Kinds of paths among all combinations of some coordinates."""
    joined: list[Ints] = []
    walked = np.zeros((1, classes), np.int64)
    for axis in axes:
        rows = _paths_along(axis, classes, distinct(axis.positions(members)))
        if axis.joins_inside:
            joined.append(rows)
        else:
            walked, *joined = (_and_perhaps(each, rows) for each in (walked, *joined))
    return distinct_rows(np.concatenate([walked[walked.any(axis=1)], *joined]))


def _and_perhaps(paths: Ints, more: Ints) -> Ints:
    """Kinds of paths that may go on as any of others."""
    both = (paths[:, None] + more[None]).reshape(-1, paths.shape[1])
    return distinct_rows(np.concatenate([paths, both]))


def _paths_along(axis: PlacedWiring, classes: int, positions: Ints) -> Ints:
    """Kinds of paths of an axis between any two of these positions."""
    switches = _switches(axis)
    if switches:
        sizes = _sizes(axis, switches)
        ends = np.concatenate([_next(positions, size) for size in sizes])
        pairs = iter([_flows(axis, np.tile(positions, len(sizes)), ends)])
    else:
        pairs = _pairs(axis, positions)
    hops = distinct_rows(np.concatenate([distinct_rows(axis.wiring.hops(each)) for each in pairs]))
    rows = np.zeros((len(hops), classes), np.int64)
    rows[:, axis.classes] = hops
    return rows


def _switches(axis: PlacedWiring) -> FatTree | None:
    """The wiring of an axis, where it is switches whose layers nest."""
    wiring = axis.wiring
    if not isinstance(wiring, FatTree):
        return None
    sizes = sorted((_block(axis), *wiring.layers))
    return wiring if all(high % low == 0 for low, high in pairwise(sizes)) else None


def _sizes(axis: PlacedWiring, switches: FatTree) -> list[int]:
    """How many neighbours each layer joins, of those that send to each other; ascending."""
    return sorted({max(_block(axis), size) for size in (1, *switches.layers)})


def _block(axis: PlacedWiring) -> int:
    """Neighbours that do not send to each other along an axis."""
    return axis.outer_stride if axis.joins_inside else 1


def _pairs(axis: PlacedWiring, positions: Ints) -> Iterator[Flows]:
    """Flows between any two positions of one copy, about a million at a time."""
    several = max(1, _PAIRS_AT_ONCE // len(positions))
    for part in slices(len(positions), several):
        some = positions[part]
        yield _flows(axis, np.repeat(some, len(positions)), np.tile(positions, len(some)))


def _flows(axis: PlacedWiring, starts: Ints, ends: Ints) -> Flows:
    """Flows of weight 1 in one copy, but those within a block."""
    apart = starts // _block(axis) != ends // _block(axis)
    start, end = starts[apart], ends[apart]
    return Flows(copy=np.zeros_like(start), start=start, end=end, weight=np.ones(len(start)))


def _others(positions: Ints, size: int) -> Floats:
    """How many of the positions are not in the same `size` neighbours as each one is."""
    _, place, count = np.unique(positions // size, return_inverse=True, return_counts=True)
    others: Floats = (len(positions) - count[place]).astype(np.float64)
    return others


def _next(positions: Ints, size: int) -> Ints:
    """The first of the ascending positions behind the `size` neighbours of each, or the first."""
    behind = np.searchsorted(positions, (positions // size + 1) * size)
    return positions[behind % len(positions)]
