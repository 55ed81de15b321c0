"""Documents of a step shared out so that all ranks, and all their microbatches, take as long.

Karmarkar and Karp, "The differencing method of set partitioning", UC Berkeley report 82/113, 1982,
for k sets as verl's `get_seqlen_balanced_partitions` has it with equal counts.
"""

import numpy as np

from stepsim.base.arrays import Floats, Ints, spans
from stepsim.parallel.packers.base import BatchShape, Packing, cut, packed


def balance(lengths: Ints, shape: BatchShape) -> Packing:
    """As many documents a step, by differencing over its ranks, then over their microbatches.

    Documents are weighed by what they cost (`BatchShape.cost`), so that long ones count by their
    squares as far as attention takes time.
    """
    document, length = cut(lengths, shape.full_tokens)
    step = document * shape.steps // max(len(lengths), 1)
    weight = shape.cost(length, length.astype(np.float64) ** 2)
    owner = step * shape.ranks + shared_out(weight, step, shape.steps, shape.ranks)
    owners = shape.steps * shape.ranks
    slot = owner * shape.microbatches + shared_out(weight, owner, owners, shape.microbatches)
    return packed(shape, slot, document, length)


def shared_out(weight: Floats, owner: Ints, owners: int, sets: int) -> Ints:
    """The set of every document among those of its owner, by differencing."""
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=owners)
    place = spans(np.zeros_like(counts), counts)
    held = np.zeros((owners, int(counts.max(initial=0))))
    held[owner[order], place] = weight[order]
    found = np.zeros_like(owner)
    found[order] = differencing(held, sets)[owner[order], place]
    return found


def differencing(weight: Floats, sets: int) -> Ints:
    """The set of every item, by the largest differencing method for so many sets.

    `weight` has a row of items for each problem; problems are solved side by side. Items are taken
    `sets` at a time, largest first, one to each set; then the two partial partitions whose sums
    differ most are joined, the heaviest set of one with the lightest of the other, until one is
    left. For example 8, 7, 6, 5, 4 in 2 sets: sums of 16 and 14.
    """
    problems, items = weight.shape
    rows = -(-items // sets)
    order = np.argsort(-weight, axis=1, kind="stable")
    sums = np.zeros((problems, rows * sets))
    sums[:, :items] = np.take_along_axis(weight, order, axis=1)
    leaf = _sets_of_rows(sums.reshape(problems, rows, sets)).reshape(problems, -1)
    found = np.zeros((problems, items), np.int64)
    np.put_along_axis(found, order, leaf[:, :items], axis=1)
    return found


def _sets_of_rows(sums: Floats) -> Ints:
    """The set that every place of every row ends in, of the sums' shape (problems, rows, sets).

    A row stands for a partial partition, first of its own items, then of all joined with it.
    """
    problems, rows, sets = sums.shape
    every = np.arange(problems)
    node = np.tile(np.arange(rows), (problems, 1))
    spread = sums.max(axis=2, initial=0.0) - sums.min(axis=2, initial=np.inf)
    joins: list[tuple[Ints, Ints, Ints, Ints]] = []
    for join in range(rows - 1):
        first = spread.argmax(axis=1)
        spread[every, first] = -1.0
        second = spread.argmax(axis=1)
        spread[every, second] = -2.0  # joined rows are never taken again
        heavy, light = sums[every, first], sums[every, second]
        down, up = (
            np.argsort(-heavy, axis=1, kind="stable"),
            np.argsort(light, axis=1, kind="stable"),
        )
        joins.append((node[every, first], node[every, second], down, up))
        total = np.take_along_axis(heavy, down, axis=1) + np.take_along_axis(light, up, axis=1)
        sums[every, first], node[every, first] = total, rows + join
        spread[every, first] = total.max(axis=1) - total.min(axis=1)
    found = np.zeros((problems, rows + len(joins), sets), np.int64)
    found[:, -1:] = np.arange(sets)
    for join in range(len(joins) - 1, -1, -1):
        heavy_node, light_node, down, up = joins[join]
        found[every[:, None], heavy_node[:, None], down] = found[:, rows + join]
        found[every[:, None], light_node[:, None], up] = found[:, rows + join]
    return found[:, :rows]


def swap_works(works: Floats) -> Floats:
    """Works of (steps, ranks, microbatches) once ranks of a step have changed whole microbatches.

    Longest first, each goes to the rank with the least work so far of those that have not their
    number yet.
    """
    moved = np.empty_like(works)
    _, ranks, microbatches = works.shape
    for step, costs in zip(moved, works, strict=True):
        held, count = np.zeros(ranks), np.zeros(ranks, np.int64)
        for cost in np.sort(costs, axis=None)[::-1]:
            rank = int(np.where(count < microbatches, held, np.inf).argmin())
            step[rank, count[rank]] = cost
            held[rank] += cost
            count[rank] += 1
    return moved
