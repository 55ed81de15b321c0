"""Documents over as many ranks as they need: a context-parallel degree for each of them."""

from itertools import pairwise

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.parallel.packers.base import BatchShape, Packing


def dynamic_cp(lengths: Ints, shape: BatchShape) -> Packing:
    """Each document over its length by `shape.full_tokens` ranks, rounded up to a power of two.

    Megatron-Core's hybrid context parallelism. Longest first, each goes to the aligned group of so
    many ranks that has least to do, and to its emptiest microbatch. A rank of a group of c computes
    a c-th of the document's tokens and of its attention. Documents that even all ranks cannot hold
    at `full_tokens` are spread over all of them.
    """
    edges = [-(-len(lengths) * step // shape.steps) for step in range(shape.steps + 1)]
    rows = [_step(lengths[low:high], shape) for low, high in pairwise(edges)]
    slot = np.concatenate([row[0] + i * shape.step_slots for i, row in enumerate(rows)])
    document = np.concatenate([row[1] + low for low, row in zip(edges, rows, strict=False)])
    tokens = np.concatenate([row[2] for row in rows])
    squares = np.concatenate([row[3] for row in rows])
    return Packing(
        shape=shape, slot=slot, document=document, tokens=tokens, real=tokens, squares=squares
    )


def degrees(lengths: Ints, shape: BatchShape) -> Ints:
    """Context-parallel degree of each document: a power of two, at most that of all ranks.

    With 4,096 full tokens, documents of 3,000, 5,000 and 9,000 tokens have 1, 2 and 4.
    """
    needed = np.maximum(np.ceil(np.log2(lengths / shape.full_tokens)), 0).astype(np.int64)
    most = shape.ranks.bit_length() - 1
    return np.asarray(1 << np.minimum(needed, most))


def _step(lengths: Ints, shape: BatchShape) -> tuple[Ints, Ints, Ints, Floats]:
    """Slot, document, tokens and squares of the pieces of a step."""
    load = np.zeros((shape.ranks, shape.microbatches))
    degree = degrees(lengths, shape)
    none = np.zeros(0, dtype=np.int64)
    pieces: list[tuple[Ints, Ints, Ints, Floats]] = [(none, none, none, np.zeros(0))]
    for document in np.argsort(-lengths, kind="stable").tolist():
        ranks, length = int(degree[document]), int(lengths[document])
        groups = shape.ranks // ranks
        by_group = load[: groups * ranks].reshape(groups, ranks, -1)
        group = int(by_group.sum(axis=2).max(axis=1).argmin())
        microbatch = int(by_group[group].max(axis=0).argmin())
        held = np.arange(ranks) + group * ranks
        tokens = np.full(ranks, length // ranks, dtype=np.int64)
        tokens[: length % ranks] += 1
        squares = np.full(ranks, float(length) ** 2 / ranks)
        load[held, microbatch] += shape.cost(tokens, squares)
        slot = held * shape.microbatches + microbatch
        pieces.append((slot, np.full(ranks, document), tokens, squares))
    slots, documents, counts, pairs = zip(*pieces, strict=True)
    joined = [np.concatenate(column) for column in (slots, documents, counts)]
    return joined[0], joined[1], joined[2], np.concatenate(pairs)
