"""Steps whose microbatches have works of a measured run: its documents are not seen."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import PlanError
from stepsim.engine.lay_out import Times
from stepsim.explore.batches.prices import MicrobatchPrices
from stepsim.explore.noise.columns import ColumnNode
from stepsim.parallel.packers.balanced import swap_works
from stepsim.workload.documents import ListedWorks

RECORDED = "recorded"
SWAPPED = "recorded+swap"
"""What takes the place of packers: microbatches as drawn, and whole ones swapped between ranks."""


def known_packers(packers: Sequence[object]) -> list[str]:
    """The names of packers; raises PlanError for one that needs the lengths of documents."""
    names = [str(packer) for packer in packers]
    if wrong := [name for name in names if name not in (RECORDED, SWAPPED)]:
        raise PlanError(
            f"packer is {wrong[0]!r}: expected {RECORDED} or {SWAPPED}: a profile tells the work "
            "of whole microbatches, not their documents"
        )
    return [*dict.fromkeys(names)]


def usual_packers(lengths: object, usual: Sequence[str]) -> Sequence[str]:
    """The packers where none is asked for: the `usual` ones, of works those without lengths."""
    return (RECORDED, SWAPPED) if isinstance(lengths, ListedWorks) else usual


def drawn_works(
    law: ListedWorks, packer: str, shape: tuple[int, int, int], generator: np.random.Generator
) -> Floats:
    """Works of (steps, ranks, microbatches), swapped between ranks if the packer says so."""
    works = law.draw(generator, shape)
    return swap_works(works) if packer == SWAPPED else works


class WorkDurations(Struct, frozen=True, kw_only=True, eq=False):
    """NodeDurations of nodes whose computes take the works' multiple of what was planned.

    `works` have shape (replicas, steps, microbatches), with one replica where all are alike;
    `replicas` are those of each actor's columns. Transfers take what was planned: microbatches
    have equal tokens.
    """

    prices: MicrobatchPrices
    works: Floats
    replicas: list[Ints]

    def computed(self, node: ColumnNode) -> Times:
        """Of a task on every replica of an actor: (replicas, steps), or one number for all."""
        assert node.node is not None
        microbatch = int(self.prices.microbatch[node.node])
        planned = self.sent(node)
        if microbatch < 0 or not planned.any():
            return planned
        works = self.works[:, :, microbatch]
        own = works if len(works) == 1 else works[self.replicas[node.actor]]
        return np.rint(planned * own).astype(np.int64)

    def sent(self, node: ColumnNode) -> Times:
        """Of a transfer in every group, as planned."""
        assert node.node is not None
        return np.array([[int(self.prices.whole_ps[node.node])]])
