"""Documents over as many ranks as they need: a context-parallel degree for each of them."""

from heapq import heapify, heapreplace
from itertools import pairwise

import numpy as np

from stepsim.base.arrays import Floats, Ints, ints, rows_of, spans
from stepsim.parallel.packers.balanced import shared_out
from stepsim.parallel.packers.base import BatchShape, Packing


def dynamic_cp(lengths: Ints, shape: BatchShape) -> Packing:
    """Each document over its length by `shape.full_tokens` ranks, rounded up to a power of two.

    Megatron-Core's hybrid context parallelism. Longest first, each goes to the aligned group of so
    many ranks that has least to do, and to its emptiest microbatch. A rank of a group of c computes
    a c-th of the document's tokens and of its attention. Documents that even all ranks cannot hold
    at `full_tokens` are spread over all of them. Where ranks would wait for each other, documents
    of a step take 2, 4, ... ranks at least.
    """
    needed = degrees(lengths, shape)
    edges = [-(-len(lengths) * step // shape.steps) for step in range(shape.steps + 1)]
    degree, slots = needed.copy(), [np.zeros(0, np.int64)]
    for step, (low, high) in enumerate(pairwise(edges)):
        own, slot = _fastest(lengths[low:high], needed[low:high], shape)
        degree[low:high] = own
        slots.append(slot + step * shape.step_slots)
    document = np.repeat(np.arange(len(lengths)), degree)
    member = spans(np.zeros_like(degree), degree)
    tokens = lengths[document] // degree[document]
    tokens += member < lengths[document] % degree[document]
    squares = shape.shared_squares(lengths[document], degree[document])
    return Packing(shape, np.concatenate(slots), document, tokens, tokens, squares)


def degrees(lengths: Ints, shape: BatchShape) -> Ints:
    """Context-parallel degree of each document: a power of two, at most that of all ranks.

    With 4,096 full tokens, documents of 3,000, 5,000 and 9,000 tokens have 1, 2 and 4.
    """
    needed = np.maximum(np.ceil(np.log2(lengths / shape.full_tokens)), 0).astype(np.int64)
    most = shape.ranks.bit_length() - 1
    return np.asarray(1 << np.minimum(needed, most))


def _aligned(load: Floats, filled: Floats, count: int) -> tuple[Ints, int]:
    """The aligned group of so many ranks that has least to do, and its emptiest microbatch.

    Groups of four ranks are 0 to 3, 4 to 7 and so on.
    """
    groups = len(load) // count
    group = int(load[: groups * count].reshape(groups, count).max(axis=1).argmin())
    held = np.arange(count) + group * count
    return held, int(filled[held].max(axis=0).argmin())


def _fastest(lengths: Ints, needed: Ints, shape: BatchShape) -> tuple[Ints, Ints]:
    """Degrees of a step's documents and slots of their pieces, the fastest of some degrees."""
    found = []
    for least in (1 << doublings for doublings in range(len(shape.sharing))):
        if least <= shape.ranks:
            degree = np.maximum(needed, least)
            alike = len(degree) > 0 and (degree == degree[0]).all()
            slots = _slots_alike if alike else _slots
            slot, took = slots(lengths, degree, shape)
            found.append((took, degree, slot))
    _, degree, slot = min(found, key=lambda tried: tried[0])
    return degree, slot


def _costs(lengths: Ints, degree: Ints, shape: BatchShape) -> tuple[Floats, Floats]:
    """What a piece of each document costs, and what is evened out over a rank's microbatches.

    That is the same cost in a pipeline, whose stages wait for each other's microbatches, and tokens
    without one: the rank's step is as long, and it holds least.
    """
    tokens = lengths / degree
    cost = shape.cost(tokens, shape.shared_squares(lengths, degree))
    return cost, cost if shape.stages > 1 else tokens


def _took(total: Floats, filled: Floats, shape: BatchShape) -> float:
    """The longest rank, and its longest microbatch on the other stages."""
    return float(total.max() + (shape.stages - 1) * filled.max())


def _slots_alike(lengths: Ints, degree: Ints, shape: BatchShape) -> tuple[Ints, float]:
    """As `_slots`, of documents that take as many ranks each: by differencing, as `balance`."""
    together = int(degree[0])
    groups = shape.ranks // together
    cost, weight = _costs(lengths, degree, shape)
    group = shared_out(cost, np.zeros_like(lengths), 1, groups)
    microbatch = shared_out(weight, group, groups, shape.microbatches)
    filled = np.bincount(group * shape.microbatches + microbatch, weight)
    rank = (group[:, np.newaxis] * together + np.arange(together)).ravel()
    slot = rank * shape.microbatches + np.repeat(microbatch, together)
    total = np.bincount(group, cost).astype(np.float64)
    return slot, _took(total, filled.astype(np.float64), shape)


def _slots(lengths: Ints, degree: Ints, shape: BatchShape) -> tuple[Ints, float]:
    """Slots of the pieces of a step's documents, longest first, and how long the step takes."""
    total, filled = np.zeros(shape.ranks), np.zeros((shape.ranks, shape.microbatches))
    first = np.concatenate(([0], np.cumsum(degree)))
    cost, weight = _costs(lengths, degree, shape)
    slot = np.zeros(int(degree.sum()), np.int64)
    order = np.argsort(-lengths, kind="stable")
    several = int((degree > 1).sum())  # a longer document takes as many ranks or more
    for document in order[:several].tolist():
        held, microbatch = _aligned(total, filled, int(degree[document]))
        total[held] += cost[document]
        filled[held, microbatch] += weight[document]
        slot[first[document] : first[document + 1]] = held * shape.microbatches + microbatch
    alone = order[several:]
    own = _alone(cost[alone], weight[alone], total, filled)
    slot[first[alone]] = own
    np.add.at(total, own // shape.microbatches, cost[alone])
    np.add.at(filled.reshape(-1), own, weight[alone])
    return slot, _took(total, filled, shape)


def _alone(cost: Floats, weight: Floats, total: Floats, filled: Floats) -> Ints:
    """Slots of documents of one rank each: the emptiest microbatch of the rank with least to do."""
    ranks = [(busy, rank) for rank, busy in enumerate(total.tolist())]
    slots = [[(held, i) for i, held in enumerate(row)] for row in filled.tolist()]
    for heap in (ranks, *slots):
        heapify(heap)
    found = []
    for own, more in rows_of(cost, weight):
        busy, rank = ranks[0]
        held, microbatch = slots[rank][0]
        heapreplace(ranks, (busy + own, rank))
        heapreplace(slots[rank], (held + more, microbatch))
        found.append(rank * filled.shape[1] + microbatch)
    return ints(found)
