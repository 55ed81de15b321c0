"""`stepsim simulate --lengths` and `stepsim compare --packers`: steps of real batches."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from stepsim.base.errors import PlanError
from stepsim.base.option import Panel
from stepsim.cli.options import NO_MEMORY, OneStepOptions
from stepsim.cli.terminal import StudyFiles

BESIDE_LENGTHS = NO_MEMORY | {
    *("file", "lengths", "packers", "steps", "seed", "json", "csv", "plot", "style"),
    *("topology", "strict", "comm_source", "numbers"),
}
"""Options that do something beside --lengths."""
PACKER_NAMES = (
    "sequence, padded, grouped, concat, greedy, first-fit, balanced, dynamic-cp, hybrid; "
    "all but the last two with or without +swap."
)
USUAL_NAMES = "padded,grouped,concat,greedy,first-fit,balanced"
"""Packers that are compared where nobody names some."""


def _of_lengths(flag: str, text: str, absent: str = "") -> Any:
    """An option about documents; `absent` is what holds where it is not given."""
    panel = Panel.JOB.value
    return typer.Option(flag, help=text, show_default=absent or False, rich_help_panel=panel)


@dataclass(frozen=True, kw_only=True)
class BatchOptions(OneStepOptions):
    """What documents the microbatches of a step hold, where they differ in length."""

    lengths: Annotated[
        str | None,
        _of_lengths(
            "--lengths",
            "Documents' tokens: a file, or a law as 'lognormal(mu=6, sigma=1, most=8192)'.",
        ),
    ] = None
    packers: Annotated[
        str | None,
        _of_lengths(
            "--packers",
            "With --lengths, how documents become microbatches: " + PACKER_NAMES,
            USUAL_NAMES,
        ),
    ] = None
    steps: Annotated[
        int | None, _of_lengths("--steps", "With --lengths, steps to draw.", "1000")
    ] = None
    seed: Annotated[
        int | None, _of_lengths("--seed", "With --lengths, equal seeds give equal steps.", "0")
    ] = None

    def check(self) -> None:
        """Raise PlanError where an option says how documents are packed, but there are none."""
        given = [name for name in ("packers", "steps", "seed") if getattr(self, name) is not None]
        if given and self.lengths is None:
            flags = ", ".join(f"--{name}" for name in given)
            raise PlanError(f"{flags}: without --lengths there are no documents to pack")


def show_batches(file: Path, options: BatchOptions, files: StudyFiles) -> None:
    """Print how long steps of documents of different lengths take under some packers.

    Raises the errors of the readers, PlanError for a workload file, which does not say what of its
    time is attention, and OutputError for a file that cannot be written.
    """
    from stepsim.explore.batches.document import BatchDocument
    from stepsim.explore.batches.draws import simulate_batches
    from stepsim.files.lengths import read_lengths
    from stepsim.show.figures.batches import plot_batches
    from stepsim.show.frames import tables_of
    from stepsim.show.tables.batches import batches_shown
    from stepsim.show.terminal import working
    from stepsim.workload.model.model import Model

    files.check(file)
    lengths = options.lengths or ""
    drawn, steps = read_lengths(lengths), 1000 if options.steps is None else options.steps
    job = options.inputs(file)
    if not isinstance(job.workload, Model):
        raise PlanError(
            f"{file}: lengths need a model: a workload file does not say what of its compute is "
            "attention"
        )
    packers = tuple(map(str.strip, (options.packers or USUAL_NAMES).split(",")))
    with working(f"drawing {steps} steps", enabled=not options.quiet):
        study = simulate_batches(
            *(job.workload, job.topology, job.options),
            lengths=drawn,
            source=lengths,
            packers=packers,
            steps=steps,
            seed=options.seed or 0,
            notes=job.notes,
        )
    document, draw = BatchDocument.of(study), partial(plot_batches, study)
    said = () if options.quiet else study.warnings
    files.show(document.to_json, batches_shown(study), tables_of(document), draw, said)
