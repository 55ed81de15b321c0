"""Which groups look the same on nested dimensions: the digits of NPU numbers that may be turned."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.network.topology.placed import PlacedWiring, Turn


def find_turns(axes: Sequence[PlacedWiring]) -> tuple[Turn, ...]:
    """Digits that can each be shifted, for all NPUs at once, without changing the network."""
    joining = [axis for axis in axes if axis.joins_inside]
    found = [turn for axis in axes for turn in _own_digits(axis)]
    return tuple(turn for turn in found if all(_may_turn(axis, turn) for axis in joining))


def turned_to_origin(members: Ints, digits: Sequence[Turn]) -> Ints:
    """Groups (rows) with those digits counted from their first member's."""
    moved = members.astype(np.int64)
    for stride, end in digits:
        digit = members // stride - members // end * (end // stride)  # quicker than remainders
        first = digit[:, :1]
        moved -= first * stride
        np.add(moved, end, out=moved, where=digit < first)
    return moved


def may_turn(axes: Sequence[PlacedWiring], turn: Turn) -> bool:
    """Whether this digit of all NPU numbers can be shifted without changing the network."""
    return all(_leaves(axis, turn) or _within_a_digit(axis, turn) for axis in axes)


def _leaves(axis: PlacedWiring, turn: Turn) -> bool:
    """Whether a turn moves copies of a wiring as they are, no position in them."""
    low, high = turn
    first, end = axis.stride, axis.stride * axis.wiring.size
    return (high <= first and first % high == 0) or (low >= end and low % end == 0)


def digit_bounds(axis: PlacedWiring) -> list[int]:
    """Strides at which digits of the wiring begin, in NPU numbers, and the last one's end."""
    sizes = [digit.size for digit in axis.wiring.digits]
    return list(accumulate(sizes, mul, initial=axis.stride))


def _own_digits(axis: PlacedWiring) -> list[Turn]:
    """The digits of an axis outside what it joins: an inner dimension has its own."""
    bounds = digit_bounds(axis)
    if not axis.joins_inside:
        digits = zip(pairwise(bounds), axis.wiring.digits, strict=True)
        return [turn for turn, digit in digits if digit.turns]
    inside, end = axis.outer_stride, axis.outer_stride * axis.outer_size
    outside = [inside, *(bound for bound in bounds if inside < bound < end), end]
    aligned = all(high % low == 0 for low, high in pairwise(outside))
    return list(pairwise(outside)) if aligned else []


def _may_turn(axis: PlacedWiring, turn: Turn) -> bool:
    """Whether an axis that joins the NPUs inside looks the same when this digit is shifted."""
    if turn[0] >= axis.outer_stride * axis.outer_size:
        return True
    return _within_a_digit(axis, turn)


def _within_a_digit(axis: PlacedWiring, turn: Turn) -> bool:
    """Whether a turn is of a digit of the wiring, or of a part that may be shifted by itself."""
    low, high = turn
    bounds = digit_bounds(axis)
    for (start, end), digit in zip(pairwise(bounds), axis.wiring.digits, strict=True):
        if start <= low and high <= end and low % start == 0 and end % high == 0:
            return digit.turns and (digit.any_order or high == end)
    return False
