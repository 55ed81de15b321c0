"""Writing pages: of results at hand, with all that can be shown, and of files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from stepsim import collector
from stepsim.api import Result
from stepsim.compare import Comparison, comparison_dict
from stepsim.errors import StepsimError
from stepsim.formats.comparison_read import read_comparison
from stepsim.formats.outputs import write_whole
from stepsim.formats.result_json import report_dict
from stepsim.formats.result_read import ResultDocument, check_result, convert, read_plain
from stepsim.formats.text_files import open_file
from stepsim.html_report.build import comparison_page, sensitivity_page, step_page
from stepsim.html_report.columns import MOST_SPANS, span_columns
from stepsim.html_report.page import Page, render
from stepsim.html_report.sweep_page import sweep_page
from stepsim.sensitivity import Sensitivity
from stepsim.sweep import open_for_reading
from stepsim.sweep.table import SweepTable

_DATABASE = b"SQLite format 3\0"
_KNOWN = "a result of stepsim simulate, compare or sensitivity --json, or a sweep's database"


@collector.paused()
def write_step(
    result: Result, path: str | Path, *, command: str, what_if: Sensitivity | str
) -> None:
    """Write a step with its timeline; `what_if` says why there are no sensitivities, if so.

    Raises OutputError when the file cannot be written.
    """
    document = msgspec.convert(report_dict(result.report), ResultDocument)
    spans = span_columns(result.timeline, result.report)
    _write(step_page(document, command=command, spans=spans, what_if=what_if), path)


@collector.paused()
def write_comparison(
    comparison: Comparison,
    path: str | Path,
    *,
    command: str,
    what_if: Sequence[Sensitivity | str],
) -> None:
    """Write a comparison with all timelines on one axis; raises OutputError.

    `what_if` belongs to the schedules that run, in order. The timelines share the spans that a
    page has room for.
    """
    document = read_comparison(Path("comparison"), comparison_dict(comparison))
    most = MOST_SPANS // len(comparison.valid)
    spans = [span_columns(each.timeline, each.report, most) for _, each in comparison.valid]
    _write(comparison_page(document, command=command, spans=spans, what_if=what_if), path)


def write_sweep(table: SweepTable, path: str | Path, *, command: str, axes: Sequence[str]) -> None:
    """Write what a sweep has found; raises OutputError, and SweepError as `sweep_page`."""
    _write(sweep_page(table, command=command, axes=axes), path)


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
        with open_file(source) as file:
            return file.read(len(_DATABASE)) == _DATABASE
    except OSError as error:
        raise StepsimError(f"{source}: cannot read the result: {error.strerror}") from None


def _read(source: Path, command: str) -> Page:
    raw = read_plain(source, _KNOWN)
    if "candidates" in raw:
        return comparison_page(read_comparison(source, raw), command=command)
    if "slopes" in raw:
        return sensitivity_page(_sensitivity(source, raw), command=command)
    if "breakdown_ps" not in raw:
        raise StepsimError(f"{source}: no page shows this: expected {_KNOWN}")
    document = convert(source, raw, ResultDocument)
    check_result(source, document)
    return step_page(document, command=command)


def _sensitivity(source: Path, raw: dict[str, Any]) -> Sensitivity:
    return convert(source, raw, Sensitivity)


def _write(page: Page, path: str | Path) -> None:
    write_whole(Path(path), render(page))
