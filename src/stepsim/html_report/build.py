"""Pages of steps, comparisons and sensitivities."""

from collections.abc import Sequence

import msgspec

from stepsim.api import Result
from stepsim.errors import PlanError
from stepsim.formats.result_json import report_dict
from stepsim.formats.result_read import ResultDocument
from stepsim.html_report.columns import SpanColumns, span_columns
from stepsim.html_report.page import Page, Section
from stepsim.html_report.sections import (
    breakdown_section,
    job_words,
    network_section,
    notes_section,
    path_section,
    step_facts,
    step_settings,
    timeline_section,
    what_if_section,
)
from stepsim.sensitivity.analysis import Sensitivity


def step_page(
    result: ResultDocument,
    *,
    command: str,
    spans: SpanColumns | None,
    what_if: Sensitivity | str,
) -> Page:
    """A simulated step; `what_if` is why there is none, if there is none."""
    runs = [("", result, spans)] if spans else []
    absent = "" if spans else NO_SPANS
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


NO_SPANS = (
    "The result holds no tasks, so there is no timeline: stepsim simulate --report draws it."
)


def _what_if(runs: Sequence[tuple[str, Sensitivity | str]]) -> Section:
    found = [(title, each) for title, each in runs if isinstance(each, Sensitivity)]
    reasons = dict.fromkeys(each for _, each in runs if isinstance(each, str))
    return what_if_section(found, " ".join(reasons))


def document_of(result: Result) -> ResultDocument:
    """A result as a reader of its JSON sees it."""
    return msgspec.convert(report_dict(result.report), ResultDocument)
