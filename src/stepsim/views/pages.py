"""Reports: what is shown of a result, as the explorer's page with its answers inside."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepsim.base.errors import PlanError, SweepError
from stepsim.base.process import paused
from stepsim.base.structs import File, Noun, replace
from stepsim.base.writing import write_whole
from stepsim.documents.table import Sheet, Table
from stepsim.explain.report import Report, ResultDocument
from stepsim.explain.stragglers import Stragglers
from stepsim.explore.sensitivity import Sensitivity, find_sensitivity
from stepsim.explore.sweep import open_for_reading
from stepsim.files.asked import StepInputs
from stepsim.files.reading import first_bytes, read_document
from stepsim.files.sweep_table import SweepTable
from stepsim.measured.profile.events import Profile
from stepsim.runs.improve import Improvements
from stepsim.show.figures.drawing import svg_text
from stepsim.show.page.looks import looks
from stepsim.show.page.page import page_of
from stepsim.step.against import StepAgainst
from stepsim.step.compare import ComparedSchedules, ComparisonDocument
from stepsim.step.prepared import SimulatedStep
from stepsim.views.against import against_shown
from stepsim.views.answer import answer_of, conclusion
from stepsim.views.comparison import comparison_answer, comparison_shown, comparison_tables
from stepsim.views.facts import Plain, document_shown, plain_table, plain_tables, time_fact
from stepsim.views.lanes import lanes_of_recorded, lanes_of_timeline, tasks_of_timeline
from stepsim.views.load import network_load
from stepsim.views.profiles import improvements_shown, profile_replay_shown, profile_shown
from stepsim.views.step import bars_table
from stepsim.views.studies import (
    path_changes,
    scenarios_table,
    sensitivity_shown,
    sweep_shown,
    worth_table,
)
from stepsim.views.timelines import drawn_profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Page(Noun):
    """A report: sentences on top, then runs on one axis of time, figures, notes, tables.

    The first sentence is what the page comes to, and stands behind its title. Sentences behind the
    first table are notes. What the first of the runs says of itself is said of the page.
    """

    title: str
    shown: Sheet
    runs: Sequence[Plain] = ()
    figures: Sequence["Figure"] = ()
    warnings: Sequence[str] = ()

    def answer(self) -> Plain:
        """What it shows, as an answer to the page that asks for a step."""
        found: list[Any] = [*self.runs] or [_NOTHING]
        first, *others = found
        every, said, notes = list(self.shown), list[str](), list[str]()
        place = said
        for each in every:
            if isinstance(each, Table):
                place = notes
            elif isinstance(each, str):
                place.append(each)
        warnings = dict.fromkeys([*notes, *self.warnings, *first["warnings"]])
        return {
            **first,
            "heading": f"{self.title}: {said[0]}",
            "said": said[1:],
            "tables": [*plain_tables(every), *first["tables"]],
            "warnings": [each for each in warnings if each not in said],
            "figures": [svg_text(each) for each in self.figures],
            "others": others,
        }

    @paused()
    def write(self, path: File, command: str = "") -> None:
        """Write it with the command that it is of; raises OutputError."""
        shown: Any = self.answer()
        lines = {"command": command, "python": ""}
        answers = {"choices": looks(), "lines": lines, "shown": shown}
        write_whole(Path(path), page_of(answers, shown["heading"]))


_NOTHING: Plain = {
    "step_ps": 0, "facts": [], "breakdown": {}, "memory": None, "lanes": None, "job": [],
    "tables": [], "warnings": [],
}  # fmt: skip


def simulated_run(step: SimulatedStep, title: str = "") -> Plain:
    """A simulated step of a page, with its tasks."""
    shown: Any = document_shown(step.report)
    return {
        **shown,
        "title": title,
        "tables": [plain_table(bars_table(step.document())), *shown["tables"]],
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


def step_page(
    step: SimulatedStep,
    job: StepInputs | None,
    measured: Profile | None = None,
    tables: Sheet = (),
) -> Page:
    """A step; `measured` is the run that it is the replay of. A replay is of no `job`."""
    runs = [simulated_run(step, "Simulated" if measured else "")]
    runs += [recorded_run(measured, "Measured")] if measured else []
    ran = Path(step.report.workload).name if measured else step.report.workload
    title = f"{ran} on {step.report.topology}"
    worth = _worth({"": job}) if job else ["A replay has no sensitivities."]
    shown = [*_concluded(step.report), *tables, *worth]
    return Page(title=title, shown=shown, runs=runs)


def _concluded(report: Report) -> Iterator[str]:
    """The answer of a step, and what of its input weighs on it."""
    yield conclusion(report)
    yield from answer_of(report).lines[1:]
    yield from (each.text for each in report.findings if each.is_weighty)


def profile_page(found: Stragglers) -> Page:
    """A profile, replayed as it ran."""
    steps = {"measured step": found.measured_ps, "replayed": found.replayed_ps}
    facts = [time_fact(name, int(each.mean())) for name, each in steps.items()]
    return Page(
        title=Path(found.profile.source).name,
        shown=[*profile_shown(found), *profile_replay_shown(found)],
        runs=[recorded_run(found.profile) | {"facts": facts}],
        warnings=found.profile.warnings,
    )


def improvements_page(found: Improvements, profile: Profile) -> Page:
    """What would help a profiled run, below what ran."""
    return Page(
        title=Path(profile.source).name,
        shown=improvements_shown(found, profile),
        runs=[recorded_run(profile)],
        warnings=profile.warnings,
    )


def comparison_page(comparison: ComparedSchedules, job: StepInputs) -> Page:
    """A comparison with all timelines on one axis, the fastest first."""
    document = ComparisonDocument.of(comparison)
    fastest = sorted(comparison.valid, key=lambda pair: pair[1].report.step_time_ps)
    runs = [simulated_run(step, name) for name, step in fastest]
    jobs = {
        name: replace(job, options=step.timeline.graph.options) for name, step in comparison.valid
    }
    return _of_comparison(document, runs, jobs)


def _of_comparison(
    found: ComparisonDocument, runs: Sequence[Plain], jobs: Mapping[str, StepInputs]
) -> Page:
    first, parts = found.runs[0], comparison_tables(found)["parts"]
    title = f"{first.workload} on {first.topology}"
    answer = comparison_answer(found).lines[1:]
    shown = [*answer, *comparison_shown(found), parts, *_worth(jobs)]
    warnings = [text for run in found.runs for text in run.warnings]
    return Page(title=title, shown=shown, runs=runs, warnings=warnings)


def sweep_page(table: SweepTable, axes: Sequence[str] = ()) -> Page:
    """What a sweep has found; raises SweepError for axes it has not."""
    from stepsim.views.sweep import plot_sweep

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
    title = f"sweep of {' on '.join(table.source)}"
    return Page(title=title, shown=shown, figures=figures)


_MOST_SCENARIOS = 1000


def against_page(held: StepAgainst) -> Page:
    """A step below the recorded one that it is held against."""
    against, step = held.against, held.simulated
    runs = [simulated_run(step, "Predicted"), recorded_run(held.measured, "Measured")]
    title, shown = f"{step.report.workload} held against {against.source}", against_shown(against)
    return Page(title=title, shown=shown, runs=runs, warnings=against.notes)


def sensitivity_page(found: Sensitivity) -> Page:
    """What one per cent of each parameter is worth."""
    title = f"{found.workload} on {found.topology}: sensitivities"
    return Page(title=title, shown=sensitivity_shown(found), warnings=found.warnings)


def _worth(jobs: Mapping[str, StepInputs]) -> Sheet:
    """What one per cent of each parameter is worth, a column per job, or why that is not known.

    It is not with links that transfers share, for one.
    """
    found: dict[str, Sensitivity] = {}
    notes: list[str] = []
    for name, job in jobs.items():
        try:
            each = found[name] = find_sensitivity(job)
        except PlanError as error:
            notes.append(f"No sensitivities: {error}.")
        else:
            notes += each.notes
            notes += (f"{each.schedule}, {change}" for change in path_changes(each))
    return [*([worth_table(found)] if found else []), *dict.fromkeys(notes)]


_DATABASE = b"SQLite format 3\0"
_KINDS: Mapping[str, type[ComparisonDocument | Sensitivity | ResultDocument]] = {
    "candidates": ComparisonDocument,
    "slopes": Sensitivity,
    "breakdown_ps": ResultDocument,
}
_KNOWN = "a result of stepsim simulate, compare or sensitivity --json, or a sweep's database"


def file_page(source: Path) -> Page:
    """What a file holds: a result in JSON, or a sweep's database.

    Raises StepsimError naming file, place and value when it is neither.
    """
    if first_bytes(source, len(_DATABASE)) == _DATABASE:
        with open_for_reading(source) as store:
            return sweep_page(SweepTable(store=store))
    found = read_document(source, _KINDS, _KNOWN)
    if isinstance(found, ComparisonDocument):
        return _of_comparison(found, (), {})
    if isinstance(found, Sensitivity):
        return sensitivity_page(found)
    runs = [document_shown(found) | {"lanes": found.timeline}]
    title = f"{found.workload} on {found.topology}"
    return Page(title=title, shown=_concluded(found), runs=runs)
