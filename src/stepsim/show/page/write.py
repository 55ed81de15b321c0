"""Reports: what is shown of a result, as the explorer's page with its answers inside."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepsim.base.errors import PlanError, StepsimError, SweepError
from stepsim.base.process import paused
from stepsim.base.structs import replace
from stepsim.explain.report import Report, ResultDocument
from stepsim.explore.sensitivity import Sensitivity, find_sensitivity
from stepsim.explore.sweep import open_for_reading
from stepsim.files.asked import StepInputs
from stepsim.files.reading import first_bytes, read_json
from stepsim.files.sweep_table import SweepTable
from stepsim.files.writing import write_whole
from stepsim.measured.profile.events import Profile
from stepsim.runs.improve import Improvements
from stepsim.show.figures.drawing import svg_text
from stepsim.show.figures.timelines import drawn_profile
from stepsim.show.page.facts import Plain, document_shown, plain_table, time_fact
from stepsim.show.page.lanes import lanes_of_recorded, lanes_of_timeline, tasks_of_timeline
from stepsim.show.page.load import network_load
from stepsim.show.page.looks import looks
from stepsim.show.page.page import page_of
from stepsim.show.tables.against import against_shown
from stepsim.show.tables.answer import answer_of
from stepsim.show.tables.comparison import comparison_answer, comparison_shown
from stepsim.show.tables.model import TEXT, Pairs, Shown, Table
from stepsim.show.tables.profiles import improvements_shown
from stepsim.show.tables.step import bars_table, runs_bars_table
from stepsim.show.tables.studies import (
    path_changes,
    scenarios_table,
    sensitivity_shown,
    sweep_shown,
    worth_table,
)
from stepsim.step.against import StepAgainst
from stepsim.step.compare import ComparedSchedules, ComparisonDocument
from stepsim.step.prepared import SimulatedStep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Worth = Sensitivity | str
"""What one per cent is worth, or why that is not known."""


@paused()
def write_report(
    path: str | Path,
    title: str,
    shown: Iterable[Shown],
    *,
    command: str = "",
    runs: Sequence[Plain] = (),
    figures: Iterable["Figure"] = (),
    warnings: Sequence[str] = (),
) -> None:
    """Write a page: sentences on top, then runs on one axis of time, figures, notes, tables.

    Sentences behind the first table are notes. What the first of the runs says of itself is said of
    the page. Raises OutputError.
    """
    found: list[Any] = [*runs] or [_NOTHING]
    first, *others = found
    said, notes, tables, pairs = taken_apart(shown)
    job = tuple(dict([*first["job"], *pairs]).items())
    settings = Table(caption="settings", columns={"": TEXT, "value": TEXT}, rows=job)
    own = [plain_table(each) for each in tables if each.rows]
    answers = {
        "choices": looks(),
        "lines": {"command": command, "python": ""},
        "shown": first
        | {
            "heading": title,
            "said": said,
            "tables": [*own, *first["tables"], *([plain_table(settings)] if job else [])],
            "warnings": [
                each
                for each in dict.fromkeys([*notes, *warnings, *first["warnings"]])
                if each not in said
            ],
            "figures": [svg_text(each) for each in figures],
            "others": others,
        },
    }
    write_whole(Path(path), page_of(answers, title))


def taken_apart(shown: Iterable[Shown]) -> tuple[list[str], list[str], list[Table], Pairs]:
    """Sentences before the first table, and behind it, tables, and pairs of names and words."""
    said, notes, tables, pairs = list[str](), list[str](), list[Table](), list[tuple[str, str]]()
    for each in shown:
        if isinstance(each, Table):
            tables.append(each)
        elif isinstance(each, str):
            (notes if tables else said).append(each)
        else:
            pairs += each
    return said, notes, tables, tuple(pairs)


_NOTHING: Plain = {
    "step_ps": 0, "facts": [], "breakdown": {}, "memory": None, "lanes": None, "job": [],
    "tables": [], "warnings": [],
}  # fmt: skip


def simulated_run(step: SimulatedStep, title: str = "") -> Plain:
    """A simulated step of a page, with its tasks."""
    document = step.document()
    return document_shown(document, tables=[plain_table(bars_table(document))]) | {
        "title": title,
        "lanes": lanes_of_timeline(step.timeline),
        "tasks": tasks_of_timeline(step.timeline, step.report),
        "network": network_load(step),
    }


def recorded_run(profile: Profile, title: str = "") -> Plain:
    """A recorded run of a page: when what ran."""
    run = drawn_profile(profile)
    facts = [time_fact("recorded step", run.width_ps)]
    lanes = lanes_of_recorded(run)
    return _NOTHING | {"title": title, "step_ps": run.width_ps, "facts": facts, "lanes": lanes}


def write_step(
    step: SimulatedStep,
    path: str | Path,
    *,
    command: str = "",
    job: StepInputs | None,
    measured: Profile | None = None,
    tables: Sequence[Table] = (),
) -> None:
    """Write a step; `measured` is the run that it is the replay of; raises OutputError.

    A replay is of no `job`.
    """
    runs = [simulated_run(step, "Simulated" if measured else "")]
    runs += [recorded_run(measured, "Measured")] if measured else []
    ran = Path(step.report.workload).name if measured else step.report.workload
    title = f"{ran} on {step.report.topology}"
    shown = [*_concluded(step.report), *tables, *_worth({"": find_what_if(job)})]
    write_report(path, title, shown, command=command, runs=runs)


def _concluded(report: Report) -> Iterator[str]:
    """The answer of a step, and what of its input weighs on it."""
    yield from answer_of(report).lines[1:]
    yield from (each.text for each in report.findings if each.is_weighty)


def write_improvements(
    found: Improvements, profile: Profile, path: str | Path, *, command: str = ""
) -> None:
    """Write what would help a profiled run, below what ran; raises OutputError."""
    title, runs = f"{Path(profile.source).name}: what would help", [recorded_run(profile)]
    shown, warnings = improvements_shown(found, profile), profile.warnings
    write_report(path, title, shown, command=command, runs=runs, warnings=warnings)


def write_comparison(
    comparison: ComparedSchedules, path: str | Path, *, command: str = "", job: StepInputs
) -> None:
    """Write a comparison with all timelines on one axis, the fastest first; raises OutputError."""
    document = ComparisonDocument.of(comparison)
    fastest = sorted(comparison.valid, key=lambda pair: pair[1].report.step_time_ps)
    runs = [simulated_run(step, name) for name, step in fastest]
    what_if = {
        name: find_what_if(replace(job, options=step.timeline.graph.options))
        for name, step in comparison.valid
    }
    _write_comparison(document, path, command, runs, what_if)


def _write_comparison(
    found: ComparisonDocument,
    path: str | Path,
    command: str,
    runs: Sequence[Plain],
    what_if: dict[str, Worth],
) -> None:
    fastest = sorted(found.runs, key=lambda run: run.step_time_ps)
    first, bars = found.runs[0], runs_bars_table({run.name: run for run in fastest})
    title = f"{first.workload} on {first.topology}: {len(found.runs)} schedules"
    answer = comparison_answer(found).lines[1:]
    shown = [*answer, *comparison_shown(found), bars, *_worth(what_if)]
    warnings = [text for run in found.runs for text in run.warnings]
    write_report(path, title, shown, command=command, runs=runs, warnings=warnings)


def write_sweep(
    table: SweepTable, path: str | Path, *, command: str = "", axes: Sequence[str]
) -> None:
    """Write what a sweep has found; raises OutputError, and SweepError for axes it has not."""
    from stepsim.show.figures.sweep import plot_sweep

    fastest = table.extremes(_MOST_SCENARIOS)
    if not fastest:
        failure = table.first_error()
        why = f"; the first: {failure[1]}" if failure else ""
        raise SweepError(f"none of {table.progress.done} scenarios has a result{why}")
    shown = [*sweep_shown(table, kept=False), scenarios_table(table, fastest)]
    try:
        figures = [plot_sweep(table, names=axes)]
    except SweepError as error:
        if axes:
            raise
        figures, shown = [], [*shown, f"No figure: {error}."]
    title = f"{' on '.join(table.source)}: sweep"
    write_report(path, title, shown, command=command, figures=figures)


_MOST_SCENARIOS = 1000


def write_against(held: StepAgainst, path: str | Path, *, command: str = "") -> None:
    """Write a step below the recorded one that it is held against; raises OutputError."""
    against, step = held.against, held.simulated
    runs = [simulated_run(step, "Predicted"), recorded_run(held.measured, "Measured")]
    title, shown = f"{step.report.workload} held against {against.source}", against_shown(against)
    write_report(path, title, shown, command=command, runs=runs, warnings=against.notes)


def write_sensitivity(found: Sensitivity, path: str | Path, *, command: str = "") -> None:
    """Write what one per cent of each parameter is worth; raises OutputError."""
    title = f"{found.workload} on {found.topology}: sensitivities"
    write_report(path, title, sensitivity_shown(found), command=command, warnings=found.warnings)


def _worth(runs: dict[str, Worth]) -> list[Shown]:
    """What one per cent of each parameter is worth, a column per run, or why it is not known."""
    found = {name: each for name, each in runs.items() if isinstance(each, Sensitivity)}
    notes = (
        note if note in each.notes else f"{each.schedule}, {note}"
        for each in found.values()
        for note in (*each.notes, *path_changes(each))
    )
    reasons = (each for each in runs.values() if isinstance(each, str) and each)
    return [*([worth_table(found)] if found else []), *dict.fromkeys((*notes, *reasons))]


def find_what_if(job: StepInputs | None) -> Worth:
    """What one per cent of each parameter of a job is worth.

    A text where derivatives are not defined, as with links that transfers share.
    """
    if job is None:
        return "A replay has no sensitivities."
    try:
        return find_sensitivity(*job.nouns)
    except PlanError as error:
        return f"No sensitivities: {error}."


_DATABASE = b"SQLite format 3\0"
_KNOWN = "a result of stepsim simulate, compare or sensitivity --json, or a sweep's database"


def write_file(source: Path, path: str | Path, *, command: str) -> None:
    """Write what a file holds: a result in JSON, or a sweep's database.

    Raises StepsimError naming file, place and value when it is neither.
    """
    if first_bytes(source, len(_DATABASE)) == _DATABASE:
        with open_for_reading(source) as store:
            write_sweep(SweepTable(store=store), path, command=command, axes=())
        return
    raw, place = read_json(source, _KNOWN), str(source)
    if "candidates" in raw:
        _write_comparison(ComparisonDocument.from_plain(raw, place), path, command, (), {})
    elif "slopes" in raw:
        write_sensitivity(Sensitivity.from_plain(raw, place), path, command=command)
    elif "breakdown_ps" in raw:
        found = ResultDocument.from_plain(raw, place)
        runs = [document_shown(found) | {"lanes": found.timeline}]
        title = f"{found.workload} on {found.topology}"
        write_report(path, title, _concluded(found), command=command, runs=runs)
    else:
        raise StepsimError(f"{source}: no page shows this: expected {_KNOWN}")
