"""What an exchange of all pairs puts on nested dimensions, without a flow per pair.

Routing is by dimensions, so the flows from one position of a copy of a wiring to another are those
that some members send, times the members that they are for. Copies in which as many send and
receive at every position are alike, and one tells the loads of all.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np

from stepsim.base.arrays import (
    Floats,
    Ints,
    Summand,
    add_up,
    bounds,
    distinct,
    distinct_rows,
    numbers_of,
    row_numbers,
    spans,
)
from stepsim.network.topology.placed import PlacedWiring
from stepsim.network.topology.wiring import Digit, Flows, Wiring

_PAIRS_AT_ONCE = 1 << 20


@runtime_checkable
class _Switched(Protocol):
    """A wiring of switches in layers: those of layer l are above `layers[l]` neighbours each."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Neighbours that meet in a NIC or switch of each layer, innermost first."""

    def exchange(
        self, positions: Ints, leaving: Sequence[Floats], entering: Sequence[Floats]
    ) -> Summand:
        """Loads where `leaving[l][i]` flows of position i leave its switch of layer l.

        As many as `entering` says come in to it. Layer 0 are the positions themselves, so that
        `layers[l]` belongs to `leaving[l + 1]`.
        """


def exchange(
    axes: Sequence[PlacedWiring], classes: int, members: Ints
) -> tuple[Summand, Ints] | None:
    """Loads on links, and the kinds of paths, of a flow of weight 1 between any two members.

    A row of paths has the hops of each of so many `classes` of links. None where the members are
    not all combinations of some coordinates, and not all axes are switches.
    """
    if len(distinct(members)) < len(members):
        return None
    counts = [len(distinct(axis.coordinates(members))) for axis in axes]
    if prod(counts) == len(members):
        grid = (_of_grid(axes, counts, k, members) for k in range(len(axes)))
        return add_up([*grid]), _paths_of_grid(axes, classes, members)
    if not all(_switches(axis) for axis in axes):
        return None
    parts = [each for k in range(len(axes)) for each in _along(axes[k], axes[k + 1 :], members)]
    return add_up(parts), _paths_counted(axes, classes, members)


def _of_grid(axes: Sequence[PlacedWiring], counts: Sequence[int], k: int, members: Ints) -> Summand:
    """Loads on the links of axis k, where members are all combinations of so many coordinates."""
    axis, beyond = axes[k], zip(counts[k + 1 :], axes[k + 1 :], strict=True)
    weight = prod(count for count, outer in beyond if not outer.joins_inside)
    weight *= 1 if axis.joins_inside else prod(counts[:k])
    positions = distinct(axis.positions(members))
    each = np.ones(len(positions), np.int64)
    links, loads = _within(axis, positions, each, each)
    return _in_copies(axis, distinct(axis.copy_of(members)), (links, loads * weight))


def _along(axis: PlacedWiring, beyond: Sequence[PlacedWiring], members: Ints) -> list[Summand]:
    """Loads on the links of an axis, of which `beyond` are outside.

    A copy has the outer coordinates of those who send in it, and the inner ones of those who
    receive, whose coordinates on axes that join all inside are the senders' too.
    """
    inner, outer = members % axis.stride, members // (axis.stride * axis.wiring.size)
    place, position = np.unique(axis.positions(members), return_inverse=True)
    joins = [each.coordinates(members) for each in beyond if each.joins_inside]
    _, join = row_numbers(np.stack((np.zeros_like(members), *joins), axis=1))
    senders, sender = numbers_of(outer)
    receivers, receiver = row_numbers(np.stack((inner, join), axis=1))
    sent, received = _counted(sender, position), _counted(receiver, position)
    several = np.bincount(join[receivers])
    counts = several[join[senders]]
    a = np.repeat(np.arange(len(senders)), counts)
    b = np.argsort(join[receivers], kind="stable")[spans(bounds(several)[join[senders]], counts)]
    copy = outer[senders][a] * axis.stride + inner[receivers][b]
    alike = np.stack((row_numbers(sent)[1][a], row_numbers(received)[1][b]), axis=1)
    first, number = row_numbers(alike)
    ends = np.cumsum(np.bincount(number, minlength=len(first)))[:-1]
    copies = np.split(copy[np.argsort(number, kind="stable")], ends)
    return [
        _in_copies(axis, each, _within(axis, place, sent[a[pair]], received[b[pair]]))
        for pair, each in zip(first.tolist(), copies, strict=True)
    ]


def _counted(row: Ints, column: Ints) -> Ints:
    """How often each number of a row and of a column come together."""
    rows, columns = int(row.max()) + 1, int(column.max()) + 1
    found = np.bincount(row * columns + column, minlength=rows * columns)
    return found.reshape(rows, columns)


def _in_copies(axis: PlacedWiring, copies: Ints, part: Summand) -> Summand:
    """What one copy of an axis carries, in all of these."""
    links, loads = part
    first = axis.offset + copies * axis.links_per_copy
    return (first[:, None] + links).reshape(-1), np.tile(loads, len(copies))


def _within(axis: PlacedWiring, positions: Ints, sent: Ints, received: Ints) -> Summand:
    """Loads in one copy of an axis: from each position what is `sent`, to what is `received`.

    Both are 1 where the axis is not one of switches.
    """
    switches = _switches(axis)
    if switches:
        sizes = [max(_block(axis), size) for size in (1, *switches.layers)]
        return switches.exchange(
            positions,
            [sent * _others(positions, size, received) for size in sizes],
            [received * _others(positions, size, sent) for size in sizes],
        )
    found = add_up([add_up(axis.wiring.load(flows)) for flows in _pairs(axis, positions)])
    return _turned(axis.wiring, positions, found) if _turns(axis.wiring, positions) else found


def _turns(wiring: Wiring, positions: Ints) -> bool:
    """Whether shifts by the distance of neighbours take the positions, and the links, to others."""
    apart = wiring.size // len(positions)
    even = np.arange(len(positions)) * apart + positions[0] % apart
    alike = wiring.digits == (Digit(size=wiring.size, turns=True),) and wiring.per_position > 0
    return alike and apart * len(positions) == wiring.size and bool((positions == even).all())


def _turned(wiring: Wiring, positions: Ints, part: Summand) -> Summand:
    """What the flows of all positions put on links, where those of one put this on them."""
    count, each = len(positions), wiring.per_position
    period, row = wiring.size // count * each, wiring.size * each
    links, loads = part
    first, load = add_up([(links // row * row + links % row % period, loads)])
    return (first[:, None] + np.arange(count) * period).reshape(-1), np.repeat(load, count)


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


def _paths_counted(axes: Sequence[PlacedWiring], classes: int, members: Ints) -> Ints:
    """Kinds of paths through switches: of pairs, counted by the layers that join them.

    Pairs that a layer of an axis joins, or one below it, have a number there in common. Behind the
    last layer are all pairs.
    """
    below, hops = [], []
    for axis in axes:
        switches = _switches(axis)
        sizes = _sizes(axis, switches) if switches else []
        positions = axis.positions(members)
        below.append([*(positions // size for size in sizes), np.zeros_like(positions)])
        rows = np.zeros((len(sizes) + 1, classes), np.int64)
        reached = np.array(sizes)
        rows[1:, axis.classes] = axis.wiring.hops(_flows(axis, np.zeros_like(reached), reached))
        hops.append(rows)
    pairs = np.zeros([len(each) for each in below], np.int64)
    for layers in np.ndindex(pairs.shape):
        rows = np.stack([each[layer] for each, layer in zip(below, layers, strict=True)], axis=1)
        pairs[layers] = (np.bincount(row_numbers(rows)[1]) ** 2).sum()
    for k in range(pairs.ndim):
        pairs = np.diff(pairs, axis=k, prepend=0)
    found = [np.zeros((0, classes), np.int64)]
    for layers in np.argwhere(pairs > 0)[1:].tolist():  # the first are pairs of one with itself
        joins = [k for k, axis in enumerate(axes) if axis.joins_inside and layers[k]]
        last = max(joins, default=-1)
        passed = [
            k for k in range(max(last, 0), len(axes)) if k == last or not axes[k].joins_inside
        ]
        found.append(sum((hops[k][layers[k]] for k in passed), np.zeros((1, classes), np.int64)))
    return distinct_rows(np.concatenate(found))


def _switches(axis: PlacedWiring) -> _Switched | None:
    """The wiring of an axis, where it is switches whose layers nest."""
    wiring = axis.wiring
    if not isinstance(wiring, _Switched):
        return None
    sizes = sorted((_block(axis), *wiring.layers))
    return wiring if all(high % low == 0 for low, high in pairwise(sizes)) else None


def _sizes(axis: PlacedWiring, switches: _Switched) -> list[int]:
    """How many neighbours each layer joins, of those that send to each other; ascending."""
    return sorted({max(_block(axis), size) for size in (1, *switches.layers)})


def _block(axis: PlacedWiring) -> int:
    """Neighbours that do not send to each other along an axis."""
    return axis.outer_stride if axis.joins_inside else 1


def _pairs(axis: PlacedWiring, positions: Ints) -> Iterator[Flows]:
    """Flows between any two positions of one copy, about a million at a time.

    Where positions are like each other, those of the first alone.
    """
    several = max(1, _PAIRS_AT_ONCE // len(positions))
    starts = positions[:1] if _turns(axis.wiring, positions) else positions
    for first in range(0, len(starts), several):
        some = starts[first : first + several]
        yield _flows(axis, np.repeat(some, len(positions)), np.tile(positions, len(some)))


def _flows(axis: PlacedWiring, starts: Ints, ends: Ints) -> Flows:
    """Flows of weight 1 in one copy, but those within a block."""
    apart = starts // _block(axis) != ends // _block(axis)
    start, end = starts[apart], ends[apart]
    return Flows(copy=np.zeros_like(start), start=start, end=end, weight=np.ones(len(start)))


def _others(positions: Ints, size: int, counts: Ints) -> Floats:
    """The sum of the counts of all that are not in the same `size` neighbours as each one is."""
    _, place = np.unique(positions // size, return_inverse=True)
    others: Floats = counts.sum() - np.bincount(place, counts)[place]
    return others


def _next(positions: Ints, size: int) -> Ints:
    """The first of the ascending positions behind the `size` neighbours of each, or the first."""
    behind = np.searchsorted(positions, (positions // size + 1) * size)
    return positions[behind % len(positions)]
