"""Steps whose microbatches have works of a measured run: its documents are not seen."""

from collections.abc import Sequence

import numpy as np

from stepsim.base.errors import PlanError
from stepsim.parallel.packers import BatchShape, Loads
from stepsim.parallel.packers.balanced import swap_works
from stepsim.workload.documents import ListedWorks

AS_RECORDED = "recorded"
SWAPPED = "recorded+swap"
"""What takes the place of packers: microbatches as drawn, and whole ones swapped between ranks."""


def known_packers(packers: Sequence[object]) -> list[str]:
    """The names of packers; raises PlanError for one that needs the lengths of documents."""
    names = [str(packer) for packer in packers]
    if wrong := [name for name in names if name not in (AS_RECORDED, SWAPPED)]:
        raise PlanError(
            f"packer is {wrong[0]!r}: expected {AS_RECORDED} or {SWAPPED}: a profile tells the "
            "work of whole microbatches, not their documents"
        )
    return [*dict.fromkeys(names)]


def usual_packers(lengths: object, usual: Sequence[str]) -> Sequence[str]:
    """The packers where none is asked for: the `usual` ones, of works those without lengths."""
    return (AS_RECORDED, SWAPPED) if isinstance(lengths, ListedWorks) else usual


def loads_of_works(
    packer: str, law: ListedWorks, seed: int, shape: BatchShape, steps: int
) -> Loads:
    """Loads of full microbatches whose computes have works of a law, swapped if the packer says so.

    Equal seeds draw the same works for both packers.
    """
    size = steps, shape.ranks, shape.microbatches
    works = law.draw(np.random.default_rng(seed), size)
    tokens, squares = (
        np.full(size, float(n)) for n in (shape.full_tokens, shape.full_tokens**2 / shape.count)
    )
    return Loads(
        tokens=tokens,
        real=tokens,
        squares=squares,
        real_squares=squares,
        scale=swap_works(works) if packer == SWAPPED else works,
    )
