"""`stepsim simulate --against`: a predicted step beside a recorded one."""

from functools import partial
from pathlib import Path

from stepsim.base.errors import PlanError
from stepsim.cli.options import SimulateOptions
from stepsim.cli.profiles import read_with_progress, recorded_forms
from stepsim.cli.terminal import command_line, warn, warn_of

# Lines of what the recording lacks, where nobody asks for all.
_MOST_NOTES = 3


def hold_step_against(file: Path, trace: Path, options: SimulateOptions) -> None:
    """Simulate a step and print it beside the recorded one; raises the errors of both."""
    from stepsim.step.against import hold_against
    from stepsim.step.prepared import prepare
    from stepsim.views.against import against_answer, against_tables
    from stepsim.views.answer import job_line
    from stepsim.views.timelines import plot_against

    if any(recorded_forms(file)):
        raise PlanError(
            f"{file}: --against holds a prediction against a recording: expected a model or a "
            "workload first (stepsim diff compares two recordings)"
        )
    recorded = read_with_progress(trace)
    job = options.inputs(file)
    step = prepare(job).simulated(weigh=True)
    held = hold_against(step, recorded)
    against = held.against
    if options.report:
        from stepsim.views.pages import against_page

        against_page(held).write(options.report, command_line())
    shown = [job_line(step.report), *against_answer(against)]
    shown += against_tables(against) if options.full else []
    options.show_study(against, shown, partial(plot_against, held))
    if options.full:
        warn_of([step.report], verbose=options.verbose)
    warn(against.notes[: None if options.full else _MOST_NOTES])
