"""Documents as they were drawn, padded: to the longest of their microbatch, or to the sequence."""

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.structs import replace
from stepsim.parallel.packers.base import BatchShape, Packing, cut_by_count, dealt, padded


def pad(lengths: Ints, shape: BatchShape) -> Packing:
    """`count` documents a microbatch, each padded to the longest of them.

    What `transformers` does with `DataCollatorWithPadding`. Documents of more tokens than
    `shape.full_tokens / shape.count` are cut first; those that fill no microbatch are left.
    """
    document, length = cut_by_count(lengths, shape)
    slot = dealt(np.arange(len(length)) // shape.count, shape)
    return padded(shape, slot, document, length)


def pad_to_sequence(lengths: Ints, shape: BatchShape) -> Packing:
    """As `pad`, but every document is as long as the sequence: every microbatch is alike."""
    drawn = pad(lengths, shape)
    whole = np.full_like(drawn.tokens, shape.each_tokens)
    return replace(drawn, tokens=whole, squares=whole.astype(np.float64) ** 2)
