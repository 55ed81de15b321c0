"""Documents packed into microbatches of a number of tokens: laid end to end, or kept whole."""

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.parallel.packers.base import BatchShape, Packing, cut, dealt, packed

_OPEN_BINS = 1024
"""Microbatches that first-fit keeps open: a loader's buffer, not a whole data set."""


def concatenate(lengths: Ints, shape: BatchShape) -> Packing:
    """Documents end to end, cut where a microbatch is full: equal tokens, unequal attention.

    A piece of a document attends to itself alone. With 4 full tokens, documents of 3, 3 and 2
    make microbatches of 3 + 1 and 2 + 2.
    """
    limits = np.cumsum(lengths)
    total = min(int(limits[-1]) // shape.full_tokens, shape.slots) * shape.full_tokens
    edges = np.sort(np.concatenate((limits, np.arange(0, total + 1, shape.full_tokens))))
    edges = edges[(edges <= total) & (np.diff(edges, prepend=-1) > 0)]
    begin, length = edges[:-1], np.diff(edges)
    document = np.searchsorted(limits, begin, side="right")
    return packed(shape, dealt(begin // shape.full_tokens, shape), document, length)


def greedy(lengths: Ints, shape: BatchShape) -> Packing:
    """Whole documents in the order drawn: one that does not fit begins the next microbatch."""
    document, length = cut(lengths, shape.full_tokens)
    bins, held, number = np.zeros(len(length), dtype=np.int64), 0, 0
    for i, tokens in enumerate(length.tolist()):
        if held + tokens > shape.full_tokens:
            held, number = 0, number + 1
        held += tokens
        bins[i] = number
    return _first_bins(bins, number, document, length, shape)


def first_fit(lengths: Ints, shape: BatchShape) -> Packing:
    """Whole documents, longest first of a step's worth, each in the first microbatch with room."""
    document, length = cut(lengths, shape.full_tokens)
    bins = np.zeros(len(length), dtype=np.int64)
    begin, number = 0, 0
    limits = np.cumsum(length)
    while begin < len(length):
        aim = limits[begin] - length[begin] + shape.step_slots * shape.full_tokens
        end = max(int(np.searchsorted(limits, aim, side="right")), begin + 1)
        order = begin + np.argsort(-length[begin:end], kind="stable")
        bins[order] = number + _fitted(length[order], shape.full_tokens)
        number += int(bins[order].max()) + 1 - number
        begin = end
    return _first_bins(bins, number, document, length, shape)


def _fitted(length: Ints, full_tokens: int) -> Ints:
    """The bin of each document: the first open one with room, of the last 1,024."""
    room = np.zeros(len(length), dtype=np.int64)
    bins, used = np.zeros(len(length), dtype=np.int64), 0
    for i, tokens in enumerate(length.tolist()):
        low = max(used - _OPEN_BINS, 0)
        fits = room[low:used] >= tokens
        where = low + int(fits.argmax()) if fits.any() else used
        if where == used:
            room[used], used = full_tokens, used + 1
        room[where] -= tokens
        bins[i] = where
    return bins


def _first_bins(
    bins: Ints, complete: int, document: Ints, length: Ints, shape: BatchShape
) -> Packing:
    """The complete bins that the steps take."""
    taken = bins < min(complete, shape.slots)
    return packed(shape, dealt(bins[taken], shape), document[taken], length[taken])
