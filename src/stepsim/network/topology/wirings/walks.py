"""Flows that walk from neighbour to neighbour: what crosses every step of a ring or line."""

import numpy as np

from stepsim.base.arrays import Floats, Ints, Summand, totals


def steps_crossed(size: int, copy: Ints, start: Ints, count: Ints, weight: Floats) -> Summand:
    """`count` steps upward from position `start`, modulo `size`, in each flow's copy.

    Step p leads from position p to p + 1 and has the number `copy * size + p`. Long walks are not
    written out: a flow adds its weight where it starts and takes it away where it ends.
    """
    if not copy.size:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    if int(count.sum()) <= 2 * len(count) + size:
        return _written_out(size, copy, start, count, weight)
    copies, row = np.unique(copy, return_inverse=True)
    flows = _differences(size, len(copies), row, start, count, np.ones(len(row)))
    crossed = np.flatnonzero(np.rint(flows))
    loads = _differences(size, len(copies), row, start, count, weight)
    return copies[crossed // size] * size + crossed % size, loads[crossed]


def _written_out(size: int, copy: Ints, start: Ints, count: Ints, weight: Floats) -> Summand:
    first = np.repeat(np.cumsum(count) - count, count)
    step = np.arange(len(first), dtype=np.int64) - first
    position = (np.repeat(start, count) + step) % size
    return np.repeat(copy, count) * size + position, np.repeat(weight, count)


def _differences(
    size: int, rows: int, row: Ints, start: Ints, count: Ints, weight: Floats
) -> Floats:
    """Sums along rows of `size` steps; a walk past the end of a row goes on at its beginning."""
    width = size + 1
    end = start + count
    past = end > size
    begins = np.concatenate((row * width + start, row[past] * width))
    ends = row * width + np.where(past, end - size, end)
    total = totals(begins, np.concatenate((weight, weight[past])), rows * width)
    total -= totals(ends, weight, rows * width)
    sums: Floats = np.cumsum(total.reshape(rows, width), axis=1)[:, :size]
    return sums.reshape(-1)
