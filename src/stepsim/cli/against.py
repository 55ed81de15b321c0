"""`stepsim simulate --against`: a predicted step beside a recorded one."""

from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun
from stepsim.cli.options import OneStepOptions
from stepsim.cli.profiles import read_with_progress
from stepsim.cli.terminal import (
    TablesAsked,
    check_outputs,
    command_line,
    show,
    warn,
    warn_of,
    write_rows,
)
from stepsim.show.figures.style import FigureStyle

if TYPE_CHECKING:
    from stepsim.step.against import StepAgainst


_MOST_NOTES = 3
"""Lines of what the recording lacks, where nobody asks for all."""


class AgainstViews(Noun):
    """Files to write of both steps; None for those that were not asked for."""

    plot: Path | None
    report: Path | None
    csv: Path | None
    style: FigureStyle

    def write(self, held: "StepAgainst") -> None:
        """Write them; raises OutputError where one cannot be written."""
        from stepsim.show.frames import tables_of

        if self.plot:
            from stepsim.show.figures.timelines import plot_against

            plot_against(held, self.plot, style=self.style)
        if self.report:
            from stepsim.show.page.write import write_against

            write_against(held, self.report, command=command_line())
        write_rows(self.csv, tables_of(held.against))


def hold_step_against(
    file: Path,
    trace: Path,
    options: OneStepOptions,
    views: AgainstViews,
    tables: TablesAsked,
    *,
    json: str | None,
) -> None:
    """Simulate a step and print it beside the recorded one; raises the errors of both."""
    from stepsim.files.load import is_model_at_sight
    from stepsim.files.traces.forms import is_measured, is_profile
    from stepsim.show.tables.against import against_answer, against_tables
    from stepsim.show.tables.answer import job_line
    from stepsim.step.against import hold_against
    from stepsim.step.prepared import prepare

    check_outputs(
        [file, trace], json=json, figures=[views.plot], files=[views.csv], page=views.report
    )
    if not is_model_at_sight(file) and (is_profile(file) or is_measured(file)):
        raise PlanError(
            f"{file}: --against holds a prediction against a recording: expected a model or a "
            "workload first (stepsim diff compares two recordings)"
        )
    recorded = read_with_progress(trace, quiet=options.quiet)
    job = options.inputs(file)
    step = prepare(job.workload, job.topology, job.options, notes=job.notes).simulated(weigh=True)
    held = hold_against(step, recorded)
    views.write(held)
    against = held.against
    shown = [job_line(step.report), *against_answer(against)]
    shown += against_tables(against) if tables.full else []
    show(json, against.to_json, shown)
    if tables.full:
        warn_of([step.report], quiet=options.quiet, verbose=options.verbose)
    warn(against.notes[: None if tables.full else _MOST_NOTES], quiet=options.quiet)
