"""Documents of like length in one microbatch, padded."""

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.parallel.packers.base import BatchShape, Packing, cut_by_count, dealt, padded

# Batches of a rank that a window holds: `get_length_grouped_indices` of transformers.
_WINDOW_BATCHES = 50


def group_by_length(lengths: Ints, shape: BatchShape) -> Packing:
    """Documents sorted by length, longest first, in windows of 50 steps of a rank, then padded.

    `group_by_length` of transformers: `get_length_grouped_indices` sorts windows of 50 batches (a
    quarter of the data at most) of what one rank takes in a step, and `DistributedSampler` deals
    the documents to the ranks one by one. For example 2 ranks and documents sorted as 9 8 7 6 give
    rank 0 those of 9 and 7.
    """
    document, length = cut_by_count(lengths, shape)
    batch = shape.count * shape.microbatches
    window = batch * max(min(len(length) // (4 * batch), _WINDOW_BATCHES), 1)
    order = np.lexsort((-length, np.arange(len(length)) // window))
    turn, rank = np.divmod(np.arange(len(length)), shape.ranks)
    bins = turn // shape.count * shape.ranks + rank
    return padded(shape, dealt(bins, shape), document[order], length[order])
