"""What a packer takes and gives: documents into the microbatches of ranks."""

from collections.abc import Callable

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import PlanError, within
from stepsim.base.structs import Noun


class BatchShape(Noun):
    """The microbatches that documents are packed into: `steps` of `ranks` by `microbatches`.

    Ranks are data-parallel ones: each works on documents of its own. A microbatch takes `count`
    documents where they are padded, `full_tokens` where they are packed. `attention` is the share
    of a microbatch's time that attention takes where it is one document of `full_tokens`.
    `sharing` says what attention over 1, 2, 4, ... ranks takes with what these exchange, as that of
    a document on one rank: of so many times the length, and so many tokens more. Microbatches
    pass `stages` of a pipeline.
    """

    ranks: int
    microbatches: int
    count: int
    full_tokens: int
    steps: int = 1
    attention: float = 0.5
    sharing: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    stages: int = 1

    def __post_init__(self) -> None:
        for name in ("ranks", "microbatches", "count", "full_tokens", "steps"):
            within(f"batch: {name}", getattr(self, name), 1)
        within("batch: attention", self.attention, 0, 1)

    def cost(self, tokens: Ints | Floats, squares: Floats) -> Floats:
        """How long work takes, in tokens of a document of `full_tokens`: linear in both.

        For example all of a document of `full_tokens` costs `full_tokens`, whatever `attention` is.
        """
        linear = np.asarray(tokens, np.float64)
        return linear + self.attention * (squares / self.full_tokens - linear)

    def shared_squares(self, length: Ints | Floats, ranks: Ints | Floats) -> Floats:
        """Squares that each of some ranks computes of a document, and what sharing it costs.

        For example 4 * (8 * 1.1 + 3) of a document of 8 tokens over 2 ranks, where `sharing` of 2
        is 1.1 and 3. Beyond the last of these more ranks share at the same cost.
        """
        doublings = np.arange(len(self.sharing), dtype=np.float64)
        times, more = (
            np.interp(np.log2(ranks), doublings, column)
            for column in zip(*self.sharing, strict=True)
        )
        tokens = np.asarray(length, np.float64)
        return np.asarray(tokens / ranks * (tokens * times + more))

    @property
    def each_tokens(self) -> int:
        """Most tokens of a document where a microbatch takes `count` of them."""
        return max(self.full_tokens // self.count, 1)

    @property
    def step_slots(self) -> int:
        """Microbatches of a step, of all ranks."""
        return self.ranks * self.microbatches

    @property
    def slots(self) -> int:
        """Microbatches of all steps and ranks."""
        return self.steps * self.step_slots


class Packing(Noun, kw_only=False, eq=False):
    """Documents in microbatches: a row per piece of a document.

    `slot` is (step * ranks + rank) * microbatches + microbatch, `document` the number of the
    document in what was drawn, `tokens` what is computed of it there, `real` what of these are its
    own and not padding, `squares` the pairs of tokens that attention looks at, twice (a whole
    document of n tokens has n * n). Documents of a slot are apart: none attends to another.
    """

    shape: BatchShape
    slot: Ints
    document: Ints
    tokens: Ints
    real: Ints
    squares: Floats

    def check(self, packer: str, lengths: Ints, *, whole: bool) -> None:
        """Raise PlanError where a packer lost or made tokens of documents of these lengths.

        Where all documents are to be packed `whole`, none may be left; else some may wait.
        """
        columns = (self.slot, self.document, self.tokens, self.real, self.squares)
        rows = {len(column) for column in columns}
        if len(rows) > 1:
            raise PlanError(f"packer {packer} gave columns of {min(rows)} to {max(rows)} pieces")
        self._check_places(packer, len(lengths))
        held = np.bincount(self.document, self.real, len(lengths)).astype(np.int64)
        wrong = np.flatnonzero((held != lengths) if whole else (held > lengths))
        if len(wrong) or (self.real > self.tokens).any() or (self.real < 0).any():
            first = int(wrong[0]) if len(wrong) else int(self.document[self.real.argmin()])
            raise PlanError(
                f"packer {packer} packs {int(held.sum())} of {int(lengths.sum())} tokens, "
                f"{int(held[first])} of document {first}: expected its {int(lengths[first])}"
            )

    def _check_places(self, packer: str, documents: int) -> None:
        """Raise PlanError for a slot or a document that there is not."""
        for name, column, count in (
            ("slot", self.slot, self.shape.slots),
            ("document", self.document, documents),
        ):
            if len(column) and not 0 <= column.min() <= column.max() < count:
                wrong = int(column[(column < 0) | (column >= count)][0])
                raise PlanError(f"packer {packer}: {name} is {wrong}: expected 0 to {count - 1}")

    def loads(self) -> "Loads":
        """What each microbatch computes: arrays of shape (steps, ranks, microbatches)."""
        size = self.shape.steps, self.shape.ranks, self.shape.microbatches

        def summed(values: Ints | Floats) -> Floats:
            total = np.bincount(self.slot, values, self.shape.slots).astype(np.float64)
            return total.reshape(size)

        share = self.real / np.maximum(self.tokens, 1)
        return Loads(
            tokens=summed(self.tokens),
            real=summed(self.real),
            squares=summed(self.squares),
            real_squares=summed(self.squares * share**2),
        )


class Loads(Noun, kw_only=False, eq=False):
    """Work of microbatches, arrays of shape (steps, ranks, microbatches).

    `tokens` are computed, `real` of them are no padding, `squares` is attention's work: sums of
    squared lengths of documents, `real_squares` those without padding.
    """

    tokens: Floats
    real: Floats
    squares: Floats
    real_squares: Floats


Packer = Callable[[Ints, BatchShape], Packing]
"""A pure function from lengths of documents, as drawn, to their microbatches."""


def cut(lengths: Ints, full_tokens: int) -> tuple[Ints, Ints]:
    """Pieces of at most `full_tokens`: which document each is of, and its length.

    With 4 full tokens, documents of 3 and 9 are pieces of 3, 4, 4 and 1 of documents 0, 1, 1, 1.
    """
    counts = -(-lengths // full_tokens)
    document = np.repeat(np.arange(len(lengths)), counts)
    length = np.full(len(document), full_tokens, np.int64)
    last = np.cumsum(counts) - 1
    length[last] = lengths - (counts - 1) * full_tokens
    return document, length


def cut_by_count(lengths: Ints, shape: BatchShape) -> tuple[Ints, Ints]:
    """Pieces for microbatches of `shape.count`, as `cut` has them; what fills none is left."""
    document, length = cut(lengths, shape.each_tokens)
    used = shape.slots * shape.count
    return document[:used], length[:used]


def padded(shape: BatchShape, slot: Ints, document: Ints, length: Ints) -> Packing:
    """Pieces in their slots, each as long as the longest of its slot."""
    longest = np.zeros(shape.slots, np.int64)
    np.maximum.at(longest, slot, length)
    return packed(shape, slot, document, length, longest[slot])


def packed(
    shape: BatchShape, slot: Ints, document: Ints, length: Ints, tokens: Ints | None = None
) -> Packing:
    """Pieces in their slots, without padding unless they are given more tokens."""
    tokens = length if tokens is None else tokens
    return Packing(shape, slot, document, tokens, length, tokens.astype(np.float64) ** 2)


def dealt(bins: Ints, shape: BatchShape) -> Ints:
    """Slots of bins that are filled one after the other: a loader deals them to ranks in turn.

    With 2 ranks of 2 microbatches, bins 0, 1, 2, 3 of a step are microbatch 0 of ranks 0 and 1,
    then microbatch 1 of both.
    """
    step, within = np.divmod(bins, shape.step_slots)
    microbatch, rank = np.divmod(within, shape.ranks)
    return (step * shape.ranks + rank) * shape.microbatches + microbatch
