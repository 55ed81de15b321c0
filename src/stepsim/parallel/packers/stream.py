"""Documents packed into microbatches of a number of tokens: laid end to end, or kept whole."""

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.parallel.packers.base import BatchShape, Packing, cut, dealt, packed

_BLOCK = 32
"""Microbatches that are looked at together when one with room is looked for."""


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
    counts = np.diff(_step_worths(length, shape))
    worth = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((-length, worth))
    turn = np.arange(len(length)) - np.repeat(np.cumsum(counts) - counts, counts)
    # a document of no tokens is where a worth has fewer than others: it changes nothing
    by_turn = np.zeros((int(counts.max()), len(counts)), dtype=np.int64)
    by_turn[turn, worth] = length[order]
    fitted = _fitted(by_turn, shape.full_tokens)[turn, worth]
    used = np.zeros(len(counts), dtype=np.int64)
    np.maximum.at(used, worth, fitted + 1)
    bins = np.zeros(len(length), dtype=np.int64)
    bins[order] = fitted + (np.cumsum(used) - used)[worth]
    return _first_bins(bins, int(used.sum()), document, length, shape)


def _step_worths(length: Ints, shape: BatchShape) -> list[int]:
    """Where documents of a step's worth of tokens begin, one behind the other; the end is last."""
    edges, limits = [0], np.cumsum(length)
    while edges[-1] < len(length):
        aim = limits[edges[-1]] - length[edges[-1]] + shape.step_slots * shape.full_tokens
        edges.append(max(int(np.searchsorted(limits, aim, side="right")), edges[-1] + 1))
    return edges


def _fitted(by_turn: Ints, full_tokens: int) -> Ints:
    """The first bin with room of each document: shape (turns, worths), a column of bins each.

    Bins are in blocks, so that the first block with room is looked for, then the first bin there.
    """
    turns, worths = by_turn.shape
    most = int(by_turn.sum(axis=0).max()) // full_tokens * 2 + 2  # two bins hold more than one full
    blocks = -(-most // _BLOCK)
    room = np.full((worths * blocks, _BLOCK), full_tokens, dtype=np.int64)
    widest = np.full((worths, blocks), full_tokens, dtype=np.int64)
    flat, rows, firsts = widest.reshape(-1), np.arange(worths), np.arange(worths) * blocks
    fitted = np.zeros_like(by_turn)
    for turn in range(turns):
        tokens = by_turn[turn][:, None]
        block = firsts + (widest >= tokens).argmax(axis=1)
        own = room[block]
        place = (own >= tokens).argmax(axis=1)
        own[rows, place] -= by_turn[turn]
        room[block], flat[block] = own, own.max(axis=1)
        fitted[turn] = (block - firsts) * _BLOCK + place
    return fitted


def _first_bins(
    bins: Ints, complete: int, document: Ints, length: Ints, shape: BatchShape
) -> Packing:
    """The complete bins that the steps take."""
    taken = bins < min(complete, shape.slots)
    return packed(shape, dealt(bins[taken], shape), document[taken], length[taken])
