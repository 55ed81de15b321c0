"""Documents packed into microbatches of a number of tokens: laid end to end, or kept whole."""

from bisect import bisect_right

import numpy as np

from stepsim.base.arrays import Ints, spans
from stepsim.parallel.packers.base import BatchShape, Packing, cut, dealt, packed


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


def first_fit(lengths: Ints, shape: BatchShape) -> Packing:
    """Whole documents, longest first of a step's worth, each in the first microbatch with room."""
    document, length = cut(lengths, shape.full_tokens)
    counts = np.diff(_edges(length, shape.step_slots * shape.full_tokens))
    worth = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((-length, worth))
    turn = spans(np.zeros_like(counts), counts)
    # a document of no tokens is where a worth has fewer than others: it changes nothing
    by_turn = np.zeros((int(counts.max()), len(counts)), np.int64)
    by_turn[turn, worth] = length[order]
    fitted = _fitted(by_turn, shape.full_tokens)
    used = np.where(by_turn > 0, fitted + 1, 0).max(axis=0)
    bins = np.zeros(len(length), np.int64)
    bins[order] = fitted[turn, worth] + (np.cumsum(used) - used)[worth]
    taken = bins < min(int(used.sum()), shape.slots)  # the complete bins that the steps take
    return packed(shape, dealt(bins[taken], shape), document[taken], length[taken])


def _edges(length: Ints, tokens: int) -> list[int]:
    """Where runs of at most so many tokens begin, one behind the other; the end is last."""
    limits = np.cumsum(length).tolist()
    edges = [0]
    while edges[-1] < len(limits):
        before = limits[edges[-1] - 1] if edges[-1] else 0
        edges.append(bisect_right(limits, before + tokens, lo=edges[-1]))
    return edges


def _fitted(by_turn: Ints, full_tokens: int) -> Ints:
    """The first bin with room of each document: shape (turns, worths), a column of bins each."""
    worths = np.arange(by_turn.shape[1])
    most = int(by_turn.sum(axis=0).max()) // full_tokens * 2 + 2  # two bins hold more than one full
    room = np.full((len(worths), most), full_tokens, np.int64)
    fitted = np.zeros_like(by_turn)
    for turn, tokens in enumerate(by_turn):
        fitted[turn] = (room >= tokens[:, None]).argmax(axis=1)
        room[worths, fitted[turn]] -= tokens
    return fitted
