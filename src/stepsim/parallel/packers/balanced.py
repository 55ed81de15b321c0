"""Documents of a step shared out so that all ranks, and all their microbatches, take as long.

Karmarkar and Karp, "The differencing method of set partitioning", UC Berkeley report 82/113, 1982,
for k sets as verl's `get_seqlen_balanced_partitions` has it with equal counts.
"""

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.structs import replace
from stepsim.parallel.packers.base import BatchShape, Packing, cut, packed


def balance(lengths: Ints, shape: BatchShape) -> Packing:
    """As many documents a step, by differencing over its ranks, then over their microbatches.

    Documents are weighed by what they cost (`BatchShape.cost`), so that long ones count by their
    squares as far as attention takes time.
    """
    document, length = cut(lengths, shape.full_tokens)
    a_step = len(length) // shape.steps
    slot = np.zeros(a_step * shape.steps, dtype=np.int64)
    weight = shape.cost(length, length.astype(np.float64) ** 2)
    for step in range(shape.steps):
        own = slice(step * a_step, (step + 1) * a_step)
        slot[own] = step * shape.step_slots + _slots(weight[own], shape)
    used = slice(0, len(slot))
    return packed(shape, slot, document[used], length[used])


def _slots(weight: Floats, shape: BatchShape) -> Ints:
    """Rank times microbatches plus microbatch of every document of a step."""
    rank = differencing(weight, shape.ranks)
    microbatch = np.zeros_like(rank)
    for own in range(shape.ranks):
        held = rank == own
        microbatch[held] = differencing(weight[held], shape.microbatches)
    return rank * shape.microbatches + microbatch


def differencing(weight: Floats, sets: int) -> Ints:
    """The set of every item, by the largest differencing method for so many sets.

    Items are taken `sets` at a time, largest first, one to each set; then the two partial
    partitions whose sums differ most are joined, the heaviest set of one with the lightest of the
    other, until one is left. For example 8, 7, 6, 5, 4 in 2 sets: sums of 16 and 14.
    """
    order = np.argsort(-weight, kind="stable")
    rows = -(-len(weight) // sets)
    member = np.full(rows * sets, -1, dtype=np.int64)
    member[: len(order)] = order
    known = np.append(weight, 0.0)
    sums = known[member].reshape(rows, sets)  # -1 is the weight of nothing
    partition = [[[item] for item in row] for row in member.reshape(rows, sets).tolist()]
    spread = sums.max(axis=1, initial=0.0) - sums.min(axis=1, initial=np.inf)
    while len(partition) > 1:
        first = int(spread.argmax())
        spread[first] = -1.0
        second = int(spread.argmax())
        joined, total = _joined(partition[first], sums[first], partition[second], sums[second])
        first, second = min(first, second), max(first, second)
        partition[first], sums[first] = joined, total
        spread[first] = total.max() - total.min()
        last = len(partition) - 1
        partition[second], sums[second], spread[second] = (
            partition[last],
            sums[last],
            spread[last] if second != last else 0.0,
        )
        partition.pop()
        sums, spread = sums[:last], spread[:last]
    return _set_of(partition[0] if partition else [], len(weight))


def _joined(
    heavy: list[list[int]], heavy_sums: Floats, light: list[list[int]], light_sums: Floats
) -> tuple[list[list[int]], Floats]:
    """Two partial partitions as one: heaviest sets with lightest ones."""
    down, up = np.argsort(-heavy_sums, kind="stable"), np.argsort(light_sums, kind="stable")
    pairs = zip(down.tolist(), up.tolist(), strict=True)
    return [heavy[i] + light[j] for i, j in pairs], heavy_sums[down] + light_sums[up]


def _set_of(sets: list[list[int]], items: int) -> Ints:
    found = np.zeros(items, dtype=np.int64)
    for number, members in enumerate(sets):
        found[[item for item in members if item >= 0]] = number
    return found


def swap(packing: Packing) -> Packing:
    """Whole microbatches changed between the ranks of a step: longest first, equal counts.

    Each goes to the rank with the least work so far of those that have not their number yet.
    """
    loads = packing.loads()
    moved = _swapped_slots(packing.shape.cost(loads.tokens, loads.squares))
    return replace(packing, slot=moved[packing.slot])


def swap_works(works: Floats) -> Floats:
    """Works of (steps, ranks, microbatches) once `swap` has changed whole microbatches."""
    moved = np.empty(works.size)
    moved[_swapped_slots(works)] = works.ravel()
    return moved.reshape(works.shape)


def _swapped_slots(cost: Floats) -> Ints:
    """Where each microbatch of (steps, ranks, microbatches) goes, all of them in one row."""
    slots = [_dealt_longest_first(step) for step in cost]
    return np.concatenate([i * cost[0].size + slot for i, slot in enumerate(slots)])


def _dealt_longest_first(cost: Floats) -> Ints:
    """Where each microbatch of a step goes: rank times microbatches plus its place there."""
    ranks, microbatches = cost.shape
    held = np.zeros(ranks)
    count = np.zeros(ranks, dtype=np.int64)
    slot = np.zeros(cost.size, dtype=np.int64)
    flat = cost.ravel()
    for own in np.argsort(-flat, kind="stable").tolist():
        rank = int(np.where(count < microbatches, held, np.inf).argmin())
        slot[own] = rank * microbatches + count[rank]
        held[rank] += flat[own]
        count[rank] += 1
    return slot
