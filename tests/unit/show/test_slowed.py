"""Compute that communication slowed is marked, with both times, wherever a step is shown."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving import unfolded

import stepsim
from stepsim.base.axes import Part
from stepsim.files.spans_csv import span_lines
from stepsim.show.figures.style import FigureStyle
from stepsim.show.figures.timelines import timelines_figure
from stepsim.show.palette import PART_TINTS, SHADES, Shade
from stepsim.show.perfetto import trace_lines
from stepsim.views.lanes import tasks_of_timeline
from stepsim.views.processes import TracedRun, trace_processes
from stepsim.views.timelines import drawn_step

JOBS: list[dict[str, Any]] = [{"tp": 2, "pp": 1}, {"pp": 2, "tp": 2}]


def run(job: dict[str, Any], **options: Any) -> stepsim.Result:
    return stepsim.simulate(
        "llama-3-8b", "hgx-h100", npus=8, global_batch=16, sequence=4096, **job, **options
    )


@pytest.fixture(scope="module", params=[0, 1], ids=["flat", "pipeline"])
def pair(request: pytest.FixtureRequest) -> tuple[stepsim.Result, stepsim.Result]:
    job = JOBS[request.param]
    return run(job), run(job, overlap_cost=True)


def test_slowed_spans_have_the_time_that_they_take_without(
    pair: tuple[stepsim.Result, stepsim.Result],
) -> None:
    plain, slowed = pair
    for one, other in zip(plain.timeline.spans(), slowed.timeline.spans(), strict=True):
        marked = other.slowed
        alone = np.where(marked, other.alone_ps, other.end_ps - other.start_ps)
        assert marked.any()
        assert not one.slowed.any()
        compute = one.kind == 0
        assert (marked <= compute).all()
        assert (alone[compute] == (one.end_ps - one.start_ps)[compute]).all()


def test_the_breakdown_tells_slowed_time_from_compute(
    pair: tuple[stepsim.Result, stepsim.Result],
) -> None:
    """Compute is what it is without; what is slowed is the difference, to the picosecond."""
    plain, slowed = (result.document() for result in pair)
    for one, other in zip(plain.ranks, slowed.ranks, strict=True):
        assert other.breakdown_ps["compute"] == one.breakdown_ps["compute"]
        assert one.breakdown_ps.get("slowed", 0) == 0
    tables = {int(spans.rank[0]): spans for spans in pair[1].timeline.spans()}
    for row in slowed.ranks:
        spans = tables.get(row.rank)
        if spans is not None:
            took = (spans.end_ps - spans.start_ps - spans.alone_ps)[spans.slowed]
            assert row.breakdown_ps["slowed"] == took.sum()


def test_traces_say_both_times(pair: tuple[stepsim.Result, stepsim.Result]) -> None:
    plain, slowed = (
        json.loads("".join(trace_lines(trace_processes([TracedRun(result)]))))["traceEvents"]
        for result in pair
    )
    assert not any("alone_ps" in event.get("args", {}) for event in plain)
    said = [event["args"] for event in slowed if "alone_ps" in event.get("args", {})]
    assert len(said) == sum(int(spans.slowed.sum()) for spans in pair[1].timeline.spans())
    assert all(args["slowed_by"] == "communication" for args in said)
    assert all(0 <= args["alone_ps"] < args["beside_ps"] for args in said)


def test_csv_and_pages_hold_the_time_alone(
    pair: tuple[stepsim.Result, stepsim.Result],
) -> None:
    _, slowed = pair
    names, *rows = span_lines(slowed.timeline.spans())
    marked = [row for row in rows if row[names.index("alone_ps")] != ""]
    tasks = unfolded(tasks_of_timeline(slowed.timeline))
    is_slowed = [shade == Shade.SLOWED for shade in tasks["shade"]]
    assert sum(is_slowed) == len(marked)
    assert is_slowed == [alone >= 0 for alone in tasks["alone"]]


def test_figures_mark_them(pair: tuple[stepsim.Result, stepsim.Result], tmp_path: Path) -> None:
    for result, is_marked in zip(pair, (False, True), strict=True):
        drawn = drawn_step(result.timeline, result.report)
        figure = timelines_figure([drawn], FigureStyle.SCREEN)
        named = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
        assert ("compute slowed by communication" in named) is is_marked
    assert SHADES[Shade.SLOWED][1] == PART_TINTS[Part.SLOWED]
