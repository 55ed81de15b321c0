"""`stepsim simulate --lengths` and `stepsim compare --packers`: steps of real batches."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from stepsim.base.errors import PlanError
from stepsim.base.option import Panel
from stepsim.cli.options import NO_MEMORY, OneStepOptions
from stepsim.cli.terminal import check_outputs, show, warn, write_rows
from stepsim.show.figures.style import FigureStyle

BESIDE_LENGTHS = NO_MEMORY | {
    *("file", "lengths", "packers", "steps", "seed", "json", "csv", "plot", "style"),
    *("topology", "strict", "comm_source", "numbers"),
}
"""Options that do something beside --lengths."""
PACKER_NAMES = (
    "sequence, padded, grouped, concat, greedy, first-fit, balanced, dynamic-cp; all but "
    "the last with or without +swap. A profile's microbatches: recorded, recorded+swap."
)
_USUAL_PACKERS = "padded,grouped,concat,greedy,first-fit,balanced"


@dataclass(frozen=True, kw_only=True)
class BatchOptions(OneStepOptions):
    """What documents the microbatches of a step hold, where they differ in length."""

    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            help="Documents' tokens: a file, a law as 'lognormal(mu=6, sigma=1, most=8192)', or a "
            "profile whose microbatches differ.",
            rich_help_panel=Panel.JOB.value,
        ),
    ] = None
    packers: Annotated[
        str | None,
        typer.Option(
            "--packers",
            help="With --lengths, how documents become microbatches: " + PACKER_NAMES,
            show_default=_USUAL_PACKERS,
            rich_help_panel=Panel.JOB.value,
        ),
    ] = None
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            help="With --lengths, steps to draw.",
            show_default="1000",
            rich_help_panel=Panel.JOB.value,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            help="With --lengths, equal seeds give equal steps.",
            show_default="0",
            rich_help_panel=Panel.JOB.value,
        ),
    ] = None

    def check(self) -> None:
        """Raise PlanError where an option says how documents are packed, but there are none."""
        given = [name for name in ("packers", "steps", "seed") if getattr(self, name) is not None]
        if given and self.lengths is None:
            flags = ", ".join(f"--{name}" for name in given)
            raise PlanError(f"{flags}: without --lengths there are no documents to pack")


def show_batches(
    file: Path,
    options: BatchOptions,
    *,
    json: str | None,
    csv: Path | None,
    plot: Path | None,
    style: FigureStyle,
) -> None:
    """Print how long steps of documents of different lengths take under some packers.

    Raises the errors of the readers, PlanError for a workload file, which does not say what of its
    time is attention, and OutputError for a file that cannot be written.
    """
    from stepsim.explore.batches.document import BatchDocument
    from stepsim.explore.batches.draws import simulate_batches
    from stepsim.explore.batches.works import usual_packers
    from stepsim.files.lengths import read_lengths
    from stepsim.show.figures.batches import plot_batches
    from stepsim.show.frames import tables_of
    from stepsim.show.tables.batches import batches_shown
    from stepsim.show.terminal import working
    from stepsim.workload.model.model import Model

    check_outputs([file], json=json, figures=[plot], files=[csv])
    lengths = options.lengths or ""
    drawn, steps = read_lengths(lengths), 1000 if options.steps is None else options.steps
    job = options.inputs(file)
    if not isinstance(job.workload, Model):
        raise PlanError(
            f"{file}: lengths need a model: a workload file does not say what of its compute is "
            "attention"
        )
    usual = usual_packers(drawn, _USUAL_PACKERS.split(","))
    packers = [*map(str.strip, options.packers.split(","))] if options.packers else usual
    with working(f"drawing {steps} steps", enabled=not options.quiet):
        study = simulate_batches(
            job.workload,
            job.topology,
            job.options,
            lengths=drawn,
            source=lengths,
            packers=packers,
            steps=steps,
            seed=options.seed or 0,
            notes=job.notes,
        )
    warn(study.warnings, quiet=options.quiet)
    if plot:
        plot_batches(study, plot, style=style)
    document = BatchDocument.of(study)
    write_rows(csv, tables_of(document))
    show(json, document.to_json, batches_shown(study))
