"""Pages of steps, comparisons and sensitivities."""

from collections.abc import Sequence

from stepsim.base.units import format_time_ps
from stepsim.explore.sensitivity.analysis import Sensitivity
from stepsim.results.document import ResultDocument
from stepsim.show.page.columns import SpanColumns
from stepsim.show.page.page import Cell, Column, Page, Section, Table
from stepsim.show.page.sections import (
    breakdown_section,
    count_cell,
    job_words,
    network_section,
    notes_section,
    parts_bars,
    path_section,
    share_cell,
    size_cell,
    step_facts,
    step_settings,
    time_cell,
    timeline_section,
)
from stepsim.show.page.what_if import what_if_section
from stepsim.step.document import ComparisonDocument

_OF_ALL_RUNS = ("Workload", "Topology", "Job", "Contention", "Settings")
NO_SPANS = "The file holds no tasks, so there is no timeline: --report of {} draws it."
NO_WHAT_IF = "The file holds no sensitivities: --report of {} finds them."


def step_page(
    result: ResultDocument,
    *,
    command: str,
    spans: SpanColumns | None = None,
    what_if: Sensitivity | str = "",
) -> Page:
    """A simulated step; `what_if` says why there are no sensitivities, if there are none."""
    what_if = what_if or NO_WHAT_IF.format("stepsim simulate")
    runs = [("", result, spans)] if spans else []
    absent = "" if spans else NO_SPANS.format("stepsim simulate")
    return Page(
        title=f"{result.workload} on {result.topology}",
        subtitle=f"One training step under {result.schedule}, {job_words(result)}",
        facts=step_facts(result),
        settings=step_settings(result),
        sections=(
            timeline_section(runs, absent),
            path_section(result),
            breakdown_section(result),
            network_section(result),
            _what_if([("", what_if)]),
            notes_section(result.warnings),
        ),
        command=command,
    )


def comparison_page(
    comparison: ComparisonDocument,
    *,
    command: str,
    spans: Sequence[SpanColumns] = (),
    what_if: Sequence[Sensitivity | str] = (),
) -> Page:
    """Several schedules; `spans` and `what_if` belong to those that run, in order, or are empty."""
    runs = comparison.runs
    names = [run.name for run in runs]
    first, fastest = runs[0], min(runs, key=lambda run: run.step_time_ps)
    return Page(
        title=f"{first.workload} on {first.topology}: {len(runs)} schedules",
        subtitle=f"One training step, {job_words(first)}, {first.microbatches:,} microbatches",
        facts=(
            ("Fastest", fastest.name),
            ("Step time", format_time_ps(fastest.step_time_ps)),
            (f"Speed-up over {first.name}", f"{fastest.speedup:.3f}"),
            ("Pipeline bubble", f"{fastest.bubble_fraction:.1%}"),
        ),
        settings=tuple(pair for pair in step_settings(first) if pair[0] in _OF_ALL_RUNS),
        sections=(
            _schedules(comparison),
            timeline_section(
                list(zip(names, runs, spans, strict=True)) if spans else [],
                "" if spans else NO_SPANS.format("stepsim compare"),
            ),
            _what_if(
                list(zip(names, what_if, strict=True))
                if what_if
                else [("", NO_WHAT_IF.format("stepsim compare"))]
            ),
            notes_section(tuple(dict.fromkeys(w for run in runs for w in run.warnings))),
        ),
        command=command,
    )


def sensitivity_page(found: Sensitivity, *, command: str) -> Page:
    """What one per cent of each parameter is worth."""
    return Page(
        title=f"{found.workload} on {found.topology}: sensitivities",
        subtitle=f"One training step under {found.schedule}",
        facts=(("Step time", format_time_ps(found.step_time_ps)),),
        settings=(
            ("Workload", found.workload),
            ("Topology", found.topology),
            ("Schedule", found.schedule),
        ),
        sections=(what_if_section([("", found)]), notes_section(found.warnings)),
        command=command,
    )


def _schedules(comparison: ComparisonDocument) -> Section:
    """A row per schedule, a bar per schedule on one scale, and why the others cannot run."""
    runs = comparison.runs
    in_bytes = all(run.peak_activation_bytes is not None for run in runs)
    peak = "Activations" if in_bytes else "Activations, chunks"
    numbers = ("Step", "Speed-up", "Bubble", "Exposed p2p", peak)
    table = Table(
        caption="Schedules side by side; activations: the most that live at once on any rank",
        columns=(
            Column("Schedule", number=False),
            Column("p2p", number=False),
            *map(Column, numbers),
        ),
        rows=tuple(
            (
                Cell(run.name),
                Cell(run.p2p),
                time_cell(run.step_time_ps),
                Cell(f"{run.speedup:.3f}", run.speedup),
                share_cell(run.bubble_fraction),
                time_cell(run.breakdown_ps["exposed_pp"]),
                count_cell(run.peak_activations)
                if run.peak_activation_bytes is None
                else size_cell(run.peak_activation_bytes),
            )
            for run in runs
        ),
    )
    refused = tuple(f"{each.name} cannot run: {each.refusal}" for each in comparison.refused)
    return Section(
        name="schedules",
        heading="Schedules",
        tables=(table, parts_bars({run.name: run for run in runs})),
        notes=refused,
    )


def _what_if(runs: Sequence[tuple[str, Sensitivity | str]]) -> Section:
    found = [(title, each) for title, each in runs if isinstance(each, Sensitivity)]
    reasons = dict.fromkeys(each for _, each in runs if isinstance(each, str))
    return what_if_section(found, " ".join(reasons))
