"""Columns of numbers, and sums over them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stepsim.base.units import MAX_INT64

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Summand = tuple[Ints, Floats]
"""Numbers of things and a value of each; a thing may occur several times."""

_SPARSE = 16


def add_up(parts: Sequence[Summand]) -> Summand:
    """The distinct numbers of all parts, ascending, and the sum of each one's values."""
    numbers = np.concatenate([np.zeros(0, dtype=np.int64), *(numbers for numbers, _ in parts)])
    values = np.concatenate([np.zeros(0), *(values for _, values in parts)])
    if not numbers.size:
        return numbers, values
    first = int(numbers.min())
    span = int(numbers.max()) - first + 1
    if span > _SPARSE * numbers.size:
        distinct, place = np.unique(numbers, return_inverse=True)
        return distinct, totals(place, values, len(distinct))
    present = np.flatnonzero(np.bincount(numbers - first, minlength=span)).astype(np.int64)
    return present + first, totals(numbers - first, values, span)[present]


def totals(places: Ints, values: Floats, size: int) -> Floats:
    """Sum of the values at each place from 0 to size - 1."""
    sums: Floats = np.bincount(places, values, size).astype(np.float64)
    return sums


def distinct_rows(rows: Ints) -> Ints:
    """Distinct rows of non-negative numbers, ascending: each row is told by one number."""
    if not rows.size:
        return np.unique(rows, axis=0)
    sizes = [int(most) + 1 for most in rows.max(axis=0)]
    code, room = np.zeros(len(rows), dtype=np.int64), 1
    for column, size in enumerate(sizes):
        room *= size
        if room > MAX_INT64:
            return np.unique(rows, axis=0)
        code = code * size + rows[:, column]
    if room <= _SPARSE * len(code):
        distinct = np.flatnonzero(np.bincount(code, minlength=room))
    else:
        distinct = np.unique(code)
    return np.stack(np.unravel_index(distinct, sizes), axis=1).astype(np.int64)
