"""Real batches from Python: documents of different lengths, and what packs them best."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from stepsim.base.arguments import checked
from stepsim.base.errors import PlanError
from stepsim.base.structs import Document
from stepsim.explore.batches.document import BatchDocument
from stepsim.explore.batches.draws import USUAL_PACKERS, BatchStudy, simulate_batches
from stepsim.face.described import takes_options, warn_caller
from stepsim.face.keywords import StepKeywords
from stepsim.face.viewed import Viewed, taken_as
from stepsim.files.asked import read_inputs
from stepsim.files.lengths import lengths_of
from stepsim.show.figures.style import FigureStyle
from stepsim.show.tables.batches import batches_shown
from stepsim.show.tables.model import Shown
from stepsim.workload.model.model import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from stepsim.network.topology.network import TopologyLike
    from stepsim.parallel.packers import Packer, PackerEntry


class BatchesResult(Viewed, BatchStudy, eq=False):
    """Steps of real batches, and the ways to see them."""

    def _document(self) -> Document:
        return BatchDocument.of(self)

    def _shown(self) -> Iterable[Shown]:
        return batches_shown(self)

    def _said(self) -> Sequence[str]:
        return self.warnings

    @checked
    def plot(
        self, path: str | Path | None = None, *, style: FigureStyle | str = FigureStyle.SCREEN
    ) -> "Figure":
        """Lengths, steps by packer, work of ranks; with a path also a file. Raises OutputError."""
        from stepsim.show.figures.batches import plot_batches

        return plot_batches(self, path, style=style)


@takes_options
@checked
def batches(
    workload: Model | str | Path,
    topology: "TopologyLike | None" = None,
    *,
    lengths: str | Path | Sequence[int],
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
    drawn, source = lengths_of(lengths)
    job = read_inputs(workload, topology, options)
    if not isinstance(job.workload, Model):
        raise PlanError(f"{workload}: lengths need a model: expected one, not a workload file")
    found = simulate_batches(
        job.workload,
        job.topology,
        job.options,
        lengths=drawn,
        source=source,
        packers=USUAL_PACKERS if packers is None else packers,
        steps=steps,
        seed=seed,
        notes=job.notes,
    )
    warn_caller(found.warnings)
    return taken_as(BatchesResult, found)
