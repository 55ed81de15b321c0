"""A page begins with the answer; what it draws can be seen, and nothing is named that is not."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import rows_of

import stepsim
from stepsim.base.units import format_size_bytes, format_time_ps
from stepsim.explain.report import CommUse
from stepsim.face.results import Result
from stepsim.run.spans import TaskKind
from stepsim.show.headlines import headlines
from stepsim.show.page.bands import joined_comms, memory_bars
from stepsim.show.page.columns import SpanColumns, span_columns
from stepsim.show.page.write import write_step
from stepsim.show.palette import (
    ACTION_COLOURS,
    IDLE,
    ON_DARK,
    PART_COLOURS,
    PATH,
    SHADES,
    contrast,
)

MOE = Path(__file__).parents[3] / "workloads" / "moe_128.txt"
PAPER = {"light": "#ffffff", "dark": "#0d1117"}
ASKED: dict[str, Any] = {"npus": 32, "tp": 2, "pp": 4, "global_batch": 64, "sequence": 2048}


@pytest.fixture(scope="module")
def step() -> Result:
    return stepsim.simulate("llama-3.2-3b", "hgx-h100", **ASKED)


@pytest.fixture(scope="module")
def page(step: Result, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bands") / "step.html"
    write_step(step, path, command="stepsim simulate", what_if="not asked")
    return path.read_text()


@pytest.fixture(scope="module")
def columns(step: Result) -> SpanColumns:
    return span_columns(step.timeline, step.report)


def test_the_answer_precedes_the_timeline_and_that_all_tables(page: str, step: Result) -> None:
    rates = step.report.throughput
    assert rates
    assert rates.memory_bytes
    assert rates.capacity_bytes
    first = [
        format_time_ps(step.report.step_time_ps),
        f"{rates.tokens_per_s:,.0f}",
        f"{rates.mfu:.1%}",
        format_size_bytes(rates.memory_bytes),
        f"of {format_size_bytes(rates.capacity_bytes)}",
        'id="assumptions"',
        'id="timeline-0"',
        'id="breakdown"',
        'id="memory"',
        'id="path"',
    ]
    places = [page.index(text, page.index("<header>")) for text in first]
    assert places == sorted(places)
    assert page.index("<table") > page.index('id="timeline-0"')
    for text in step.report.said:
        assert text.partition("'")[0] in page


def test_the_step_is_said_with_the_range_of_measured_ones(step: Result) -> None:
    rates = step.report.throughput
    assert rates
    assert rates.low_s
    assert rates.high_s
    known = {each.name: each for each in headlines(step.report)}
    assert list(known) == ["step time", "tokens/s", "MFU", "memory"]
    assert known["step time"].beside[0].count(" to ") == 1
    assert known["tokens/s"].beside == ("per GPU",)
    assert known["memory"].share == step.memory.total_bytes / rates.capacity_bytes  # type: ignore[union-attr,operator]
    assert not any(each.wrong for each in known.values())


def test_what_does_not_fit_is_marked(tmp_path: Path) -> None:
    found = stepsim.simulate("llama-3-70b", "hgx-h100", npus=8, tp=8, pp=1, global_batch=8)
    write_step(found, tmp_path / "a.html", command="", what_if="not asked")
    text = (tmp_path / "a.html").read_text()
    marked = re.search(r'<div class="wrong">(.*?)</div>', text, re.S)
    assert marked
    assert "does not fit" in marked[1]
    assert 'class="notices wrong"' in text
    assert "device&#39;s memory" in text


def test_a_workload_without_a_model_has_shares_for_an_answer() -> None:
    names = [each.name for each in headlines(stepsim.simulate(MOE, "hgx-h100").report)]
    assert names == ["step time", "compute", "exposed communication", "pipeline bubble"]


def test_contrast_is_that_of_the_guideline() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def marks() -> list[str]:
    shades = [colour for _, colour in SHADES.values()]
    return sorted({*shades, *ACTION_COLOURS.values(), *PART_COLOURS.values(), IDLE, PATH})


@pytest.mark.parametrize("scheme", PAPER)
def test_every_mark_stands_out_from_the_paper(scheme: str) -> None:
    for colour in marks():
        shown = ON_DARK.get(colour, colour) if scheme == "dark" else colour
        assert contrast(shown, PAPER[scheme]) >= 3, colour


def test_bars_of_memory_stand_out(step: Result) -> None:
    for _, colour in memory_bars(step.report).legend:
        assert contrast(colour, PAPER["light"]) >= 3
        assert contrast(ON_DARK.get(colour, colour), PAPER["dark"]) >= 3


def test_no_lane_is_without_tasks(columns: SpanColumns) -> None:
    long = columns.end_ps > columns.start_ps
    for number, row in enumerate(columns.rows):
        used = {*columns.stream[long & (columns.row == number)].tolist()}
        assert used == {stream.value for stream in row.streams}


def test_the_legend_names_what_is_drawn_and_nothing_else(columns: SpanColumns, page: str) -> None:
    section = page[page.index('<section id="timeline">') :]
    legend = re.findall(r"</svg>([^<]+)</li>", section[: section.index("</section>")])
    used = {*columns.shade.tolist(), *columns.action.shade.tolist()}
    expected = [name for shade, (name, _) in SHADES.items() if shade in used]
    assert legend == [*expected, "idle", "critical path"]
    assert "optimizer and gradient sync" in legend
    assert not {"cp collective", "ep collective"} & set(legend)


def test_what_is_done_outside_the_pipeline_is_in_no_action(
    columns: SpanColumns, step: Result
) -> None:
    """Held against the spans one by one: joined, without messages, the host and all actions."""
    outside, action = columns.outside, columns.action
    spans = list(rows_of(step.timeline))
    for number, row in enumerate(columns.rows):
        own = outside.row == number
        times = list(zip(outside.start_ps[own].tolist(), outside.end_ps[own].tolist(), strict=True))
        assert times
        assert all(end < start for (_, end), (start, _) in pairwise(times))
        mine = action.row == number
        for start, end in times:
            assert not ((action.start_ps[mine] < end) & (action.end_ps[mine] > start)).any()
        beside = (TaskKind.HOST, TaskKind.SEND, TaskKind.RECV)
        alone = [
            s for s in spans if s.rank == row.rank and s.entry is None and s.kind not in beside
        ]
        moments = np.array([0, *sorted({t for s in alone for t in (s.start_ps, s.end_ps)})])
        for begin, end in pairwise(moments.tolist()):
            middle = (begin + end) / 2
            busy = any(s.start_ps < middle < s.end_ps for s in alone)
            covered = ((action.start_ps[mine] < middle) & (action.end_ps[mine] > middle)).any()
            shown = any(a < middle < b for a, b in times)
            if shown:
                assert busy
            if busy and not covered:
                assert shown


def test_equal_calls_are_one_row_with_a_total() -> None:
    def use(size: int, count: int, time: int, kind: str = "all_reduce") -> CommUse:
        return CommUse(
            group="dp",
            kind=kind,
            ranks=8,
            size_bytes=size,
            count=count,
            algorithms=("ring",),
            time_ps=time,
            alone_ps=time,
        )

    calls = [use(2**30, 3, 100), use(2**20, 5, 9), use(2**30 + 8, 1, 104), use(2**30, 2, 7, "x")]
    joined = list(joined_comms(calls))
    assert [each.count for each in joined] == [4, 5, 2]
    assert joined[0].time_ps * joined[0].count == 3 * 100 + 104
    assert joined[1:] == [calls[1], calls[3]]


def test_stages_that_hold_the_same_are_one_bar(step: Result) -> None:
    table = memory_bars(step.report)
    stages = [stage for row in table.rows for stage in _stages(str(row[0]))]
    assert stages == list(range(4))
    for row in table.rows:
        assert sum(piece.share for piece in row[-1]) <= 1.0 + 1e-9  # type: ignore[union-attr,misc]


def _stages(text: str) -> range:
    first, _, last = text.partition(" to ")
    return range(int(first), int(last or first) + 1)
