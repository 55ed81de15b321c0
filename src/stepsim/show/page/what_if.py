"""Sensitivities on a page, or why there are none."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stepsim.base.errors import PlanError
from stepsim.explore.sensitivity import Sensitivity, find_sensitivity
from stepsim.explore.sensitivity.names import describe, show_value
from stepsim.files.asked import StepInputs
from stepsim.show.page.page import Cell, Column, Section, Table
from stepsim.show.page.sections import share_cell
from stepsim.step.compare import ComparedSchedules


def find_what_if(job: StepInputs) -> Sensitivity | str:
    """What one per cent of each parameter of a job is worth.

    A text where derivatives are not defined, as with links that transfers share.
    """
    try:
        return find_sensitivity(job.workload, job.topology, job.options)
    except PlanError as error:
        return f"No sensitivities: {error}."


def find_each_what_if(comparison: ComparedSchedules, job: StepInputs) -> list[Sensitivity | str]:
    """The same for every schedule that runs, in order."""
    return [
        find_what_if(replace(job, options=result.timeline.graph.options))
        for _, result in comparison.valid
    ]


def what_if_section(runs: Sequence[tuple[str, Sensitivity]], missing: str = "") -> Section:
    """What one per cent of each parameter is worth, a column per run."""
    tables = (_what_if(runs),) if runs else ()
    notes = dict.fromkeys(note for _, found in runs for note in (*found.notes, *_turns(found)))
    return Section(
        name="what-if",
        heading="What if",
        text="How much shorter the step gets when one thing is one per cent better, evaluated "
        "exactly." * bool(runs),
        tables=tables,
        notes=tuple(notes),
        missing=missing,
    )


def _what_if(runs: Sequence[tuple[str, Sensitivity]]) -> Table:
    slopes = {slope.name: slope for _, found in runs for slope in found.slopes}
    gains = [{slope.name: slope.gain for slope in found.slopes} for _, found in runs]
    rows = sorted(slopes.values(), key=lambda s: -max(each.get(s.name, 0.0) for each in gains))
    saved = [f"{title} saves" if title else "Saves" for title, _ in runs]
    return Table(
        caption="What one per cent is worth, of the step time",
        columns=(Column("Change", number=False), Column("Now"), *map(Column, saved)),
        rows=tuple(
            (
                Cell(describe(slope)),
                Cell(show_value(slope)),
                *(
                    share_cell(each[slope.name], 3) if slope.name in each else Cell("-")
                    for each in gains
                ),
            )
            for slope in rows
        ),
    )


def _turns(found: Sensitivity) -> Iterator[str]:
    """Where the critical path changes within a step to either side."""
    for slope in found.slopes:
        if slope.one_sided and found.step_time_ps:
            below, above = (
                each * slope.value / found.step_time_ps for each in (slope.below, slope.above)
            )
            yield (
                f"{found.schedule}, {describe(slope)}: the critical path changes; "
                f"{100 * below:+.3f} % of the step per 100 % below, {100 * above:+.3f} % above."
            )
