"""Writing pages: of results at hand, with all that can be shown, and of files."""

from collections.abc import Sequence
from pathlib import Path

from stepsim.base import garbage as collector
from stepsim.base.errors import StepsimError
from stepsim.explain.improve import Improvements
from stepsim.explain.stragglers import Stragglers
from stepsim.explore.sensitivity import Sensitivity
from stepsim.explore.sweep import open_for_reading
from stepsim.explore.sweep.table import SweepTable
from stepsim.files.reading import open_file, read_json
from stepsim.files.writing import write_whole
from stepsim.results.report import ResultDocument
from stepsim.show.page.build import (
    comparison_page,
    improvements_page,
    profile_page,
    sensitivity_page,
    step_page,
)
from stepsim.show.page.columns import MOST_SPANS, span_columns
from stepsim.show.page.measured import RunBesideReplay
from stepsim.show.page.page import Page, render
from stepsim.show.page.sweep_page import sweep_page
from stepsim.step.compare import ComparedSchedules
from stepsim.step.document import ComparisonDocument
from stepsim.step.simulate import SimulatedStep

_DATABASE = b"SQLite format 3\0"
_KNOWN = "a result of stepsim simulate, compare or sensitivity --json, or a sweep's database"


@collector.paused()
def write_step(
    result: SimulatedStep,
    path: str | Path,
    *,
    command: str,
    what_if: Sensitivity | str,
    measured: RunBesideReplay | None = None,
) -> None:
    """Write a step with its timeline; `what_if` says why there are no sensitivities, if so.

    `measured` is the run that the step is the replay of.
    Raises OutputError when the file cannot be written.
    """
    document = result.document()
    spans = span_columns(result.timeline, result.report)
    page = step_page(document, command=command, spans=spans, what_if=what_if, measured=measured)
    _write(page, path)


@collector.paused()
def write_comparison(
    comparison: ComparedSchedules,
    path: str | Path,
    *,
    command: str,
    what_if: Sequence[Sensitivity | str],
) -> None:
    """Write a comparison with all timelines on one axis; raises OutputError.

    `what_if` belongs to the schedules that run, in order. The timelines share the spans that a
    page has room for.
    """
    document = ComparisonDocument.of(comparison)
    most = MOST_SPANS // len(comparison.valid)
    spans = [span_columns(each.timeline, each.report, most) for _, each in comparison.valid]
    _write(comparison_page(document, command=command, spans=spans, what_if=what_if), path)


def write_sweep(table: SweepTable, path: str | Path, *, command: str, axes: Sequence[str]) -> None:
    """Write what a sweep has found; raises OutputError, and SweepError as `sweep_page`."""
    _write(sweep_page(table, command=command, axes=axes), path)


def write_sensitivity(found: Sensitivity, path: str | Path, *, command: str) -> None:
    """Write what each parameter is worth; raises OutputError."""
    _write(sensitivity_page(found, command=command), path)


def write_improvements(found: Improvements, path: str | Path, *, command: str) -> None:
    """Write what would help a profiled run; raises OutputError."""
    _write(improvements_page(found, command=command), path)


def write_profile(found: Stragglers, path: str | Path, *, command: str) -> None:
    """Write where the steps of a profile go and how they replay; raises OutputError."""
    _write(profile_page(found, command=command), path)


def write_file(source: Path, path: str | Path, *, command: str) -> None:
    """Write what a file holds: a result in JSON, or a sweep's database.

    Raises StepsimError naming file, place and value when it is neither.
    """
    if _starts_as_database(source):
        with open_for_reading(source) as store:
            write_sweep(SweepTable(store=store), path, command=command, axes=())
        return
    _write(_read(source, command), path)


def _starts_as_database(source: Path) -> bool:
    try:
        with open_file(source, most=None) as file:
            return file.read(len(_DATABASE)) == _DATABASE
    except OSError as error:
        raise StepsimError(f"{source}: cannot read the result: {error.strerror}") from None


def _read(source: Path, command: str) -> Page:
    raw, place = read_json(source, _KNOWN), str(source)
    if "candidates" in raw:
        return comparison_page(ComparisonDocument.from_plain(raw, place), command=command)
    if "slopes" in raw:
        return sensitivity_page(Sensitivity.from_plain(raw, place), command=command)
    if "breakdown_ps" not in raw:
        raise StepsimError(f"{source}: no page shows this: expected {_KNOWN}")
    return step_page(ResultDocument.from_plain(raw, place), command=command)


def _write(page: Page, path: str | Path) -> None:
    write_whole(Path(path), render(page))
