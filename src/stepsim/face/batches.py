"""Real batches from Python: documents of different lengths, and what packs them best."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from stepsim.base.fields import checked
from stepsim.base.structs import File
from stepsim.explore.batches.draws import (
    USUAL_PACKERS,
    BatchDocument,
    BatchStudy,
    DrawnBatches,
    simulate_batches,
)
from stepsim.face.described import takes_options, warn_caller
from stepsim.face.keywords import StepKeywords
from stepsim.face.viewed import Drawn, taken_as
from stepsim.files.asked import read_inputs
from stepsim.views.batches import batches_shown, plot_batches
from stepsim.workload.model.model import Model

if TYPE_CHECKING:
    from stepsim.network.topology.network import TopologyLike
    from stepsim.parallel.packers import Packer, PackerEntry


class BatchesResult(Drawn, BatchStudy, eq=False):
    """Steps of real batches, and the ways to see them.

    `plot` draws lengths, steps by packer and work of ranks.
    """

    _kind = BatchDocument

    _shown = batches_shown

    def _said(self) -> Sequence[str]:
        return self.warnings

    _draw = plot_batches


@takes_options
@checked
def batches(
    workload: Model | File,
    topology: "TopologyLike | None" = None,
    *,
    lengths: File | Sequence[int],
    packers: "Sequence[str | Packer | PackerEntry] | None" = None,
    steps: int = 1000,
    seed: int = 0,
    **options: Unpack[StepKeywords],
) -> BatchesResult:
    """Steps of a model whose documents have different lengths, under each packer.

    `lengths` are a file, a law such as `"lognormal(mu=6, sigma=1, most=8192)"`, or numbers.
    `packers` are names, or functions of one's own from lengths and a
    `stepsim.parallel.packers.BatchShape` to a `Packing`: they take the documents of whole steps, or
    in a `PackerEntry` what that says. `options` are those of `simulate`; equal arguments give equal
    steps. Raises PlanError for a workload file and for a packer that loses or makes tokens, and the
    errors of `simulate`.
    """
    named = USUAL_PACKERS if packers is None else packers
    drawn = DrawnBatches.named(lengths, named, steps, seed)
    found = simulate_batches(read_inputs(workload, topology, options), drawn)
    warn_caller(found.warnings)
    return taken_as(BatchesResult, found)
