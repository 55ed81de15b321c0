"""`stepsim simulate --lengths` and `stepsim compare --packers`: steps of real batches."""

from functools import partial
from pathlib import Path

from stepsim.cli.options import OF_STUDY, USUAL_NAMES, ViewOptions
from stepsim.cli.terminal import command_bar, command_line, warn

BESIDE_LENGTHS = OF_STUDY | {"lengths", "packers", "steps", "seed", "report"}
"""Options that do something beside --lengths."""
BESIDE_DRAWN_SWEEP = BESIDE_LENGTHS - {"plot", "style", "report", "numbers"} | {"axes"}
"""Options that do something beside --lengths in a sweep."""


def show_batches(file: Path, options: ViewOptions) -> None:
    """Print how long steps of documents of different lengths take under some packers.

    Raises the errors of the readers, PlanError for a workload file, which does not say what of its
    time is attention, and OutputError for a file that cannot be written.
    """
    from stepsim.explore.batches.draws import BatchDocument, DrawnBatches, simulate_batches
    from stepsim.views.batches import batches_shown, plot_batches

    job = options.inputs(file)
    steps = 1000 if options.steps is None else options.steps
    packers = map(str.strip, (options.packers or USUAL_NAMES).split(","))
    drawn = DrawnBatches.named(options.lengths or "", packers, steps, options.seed)
    with command_bar(f"drawing {steps} steps"):
        study = simulate_batches(job, drawn)
    if options.report:
        from stepsim.views.pages import Page

        page = Page(
            title=study.job,
            shown=batches_shown(study),
            figures=[plot_batches(study)],
            warnings=study.warnings,
        )
        page.write(options.report, command_line())
    document, draw = BatchDocument.of(study), partial(plot_batches, study)
    warn(study.warnings)
    options.show_study(document, batches_shown(study), draw)
