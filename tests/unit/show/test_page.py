"""Pages without a browser: their numbers are the report's, their bytes repeat, names stay text."""

import base64
import gzip
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bokeh.models import Range1d
from helpers import Run, rows_of

import stepsim
from stepsim.base.structs import replace
from stepsim.base.units import format_time_ps
from stepsim.face.results import Result
from stepsim.face.steps import compare
from stepsim.files.asked import read_inputs
from stepsim.files.measured import load_run
from stepsim.measured.summary import RunSummary
from stepsim.run.spans import TaskKind
from stepsim.runs.measured import replay_measured
from stepsim.show.page.columns import span_columns
from stepsim.show.page.measured import RunBesideReplay
from stepsim.show.page.write import find_what_if, write_comparison, write_step
from stepsim.show.tables.model import name_ranks

MEASURED = Path(__file__).parents[3] / "workloads" / "measured"
EVIL = "</script><img src=x onerror=alert(1)>&'\""


class Text(HTMLParser):
    """What a browser makes of a page: its elements, their attributes, the text it shows."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.hidden: list[str] = []
        self.open = ""
        self.broken = False
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.broken = tag == "wbr"  # where a long name may be broken; it is one name
        if not self.broken:
            self.open = tag

    def handle_data(self, data: str) -> None:
        texts = self.hidden if self.open in ("script", "style") else self.text
        texts.append(texts.pop() + data if self.broken else data)
        self.broken = False

    def handle_endtag(self, tag: str) -> None:
        self.open = ""


@pytest.fixture(scope="module")
def result() -> Result:
    return stepsim.simulate(WORKLOAD, "hgx-h100")


WORKLOAD = Path(__file__).parents[3] / "workloads" / "moe_128.txt"


def page_of(result: Result, path: Path) -> bytes:
    write_step(result, path, command="stepsim simulate", what_if="not asked")
    return path.read_bytes()


def page_data(page: bytes) -> dict[str, Any]:
    (text,) = re.findall(rb'id="page-data">(.*?)</script>', page, re.S)
    found: dict[str, Any] = json.loads(text)
    return found


def bokeh_column(page: bytes, name: str, source: str = "spans") -> Any:
    """A column as Bokeh's document holds it."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            attributes = value.get("attributes", {})
            if value.get("name") == "ColumnDataSource" and attributes.get("name") == source:
                return dict(attributes["data"]["entries"])[name]
            value = list(value.values())
        if isinstance(value, list):
            return next((found for each in value if (found := walk(each)) is not None), None)
        return None

    found = walk(page_data(page)["document"])
    data = gzip.decompress(base64.b64decode(found["array"]["data"]))
    return np.frombuffer(data, dtype=found["dtype"])


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved:2", "zb-h1", "zb-v"])
def test_columns_are_the_timelines_spans(fold: bool, schedule: str) -> None:
    workload = WORKLOAD.with_name("gpt_tp4.txt")
    result = stepsim.simulate(
        workload, "hgx-h100", npus=32, pp=4, microbatches=8, schedule=schedule, fold_ranks=fold
    )
    columns = span_columns(result.timeline, result.report, most=10**9)
    spans = list(rows_of(result.timeline))
    assert len(columns) == len(spans)
    assert columns.start_ps.tolist() == [span.start_ps for span in spans]
    assert columns.end_ps.tolist() == [span.end_ps for span in spans]
    assert columns.stream.tolist() == [span.stream for span in spans]
    ranks = [columns.rows[row].rank for row in columns.row]
    assert ranks == [span.rank for span in spans]
    for i, span in enumerate(spans):
        if span.kind not in (TaskKind.SEND, TaskKind.RECV):
            assert columns.names[columns.name[i]].startswith(span.label)
        assert (columns.entry[i] >= 0) == (span.entry is not None)
        assert (columns.comm[i] >= 0) == bool(span.size_bytes)


def test_every_span_starts_after_what_it_waits_for(result: Result) -> None:
    columns = span_columns(result.timeline, result.report)
    waiting = np.repeat(np.arange(len(columns)), np.diff(columns.first_before))
    assert len(columns.before) > len(columns) // 2
    assert (columns.end_ps[columns.before] <= columns.start_ps[waiting]).all()
    assert (columns.row[columns.before] == columns.row[waiting]).all()


def test_both_ends_of_a_message_name_each_other_and_end_together(result: Result) -> None:
    columns = span_columns(result.timeline, result.report)
    ends = np.flatnonzero(columns.peer >= 0)
    assert len(ends)
    assert (columns.peer[columns.peer[ends]] == ends).all()
    assert (columns.end_ps[columns.peer[ends]] == columns.end_ps[ends]).all()
    assert (columns.row[columns.peer[ends]] != columns.row[ends]).all()


def test_the_marked_spans_are_the_critical_path(result: Result) -> None:
    columns = span_columns(result.timeline, result.report)
    on_path = columns.critical.astype(bool)
    lengths = (columns.end_ps - columns.start_ps)[on_path]
    assert (
        lengths.sum() == result.report.step_time_ps == sum(result.report.critical_path_ps.values())
    )


def test_too_many_spans_are_left_out_in_words(result: Result) -> None:
    whole = stepsim.simulate(WORKLOAD, "hgx-h100", fold_ranks=False)
    every = len(span_columns(whole.timeline, whole.report, most=10**9))
    one_each = span_columns(whole.timeline, whole.report, most=every - 1)
    assert [row.rank for row in one_each.rows] == [0, 32, 64, 96]
    assert "the first rank of every stage; 128 ranks are simulated" in one_each.left_out
    actions = span_columns(whole.timeline, whole.report, most=len(one_each) - 1)
    assert len(actions) < len(one_each)
    assert "whole actions" in actions.left_out
    assert actions.end_ps.max() == one_each.end_ps.max()
    few = span_columns(whole.timeline, whole.report, most=len(actions) // 2)
    assert len(few.rows) == 2
    assert "the first rank of 2 of 4 stages" in few.left_out


def test_the_page_says_what_the_report_says(result: Result, tmp_path: Path) -> None:
    page = page_of(result, tmp_path / "step.html")
    shown = " ".join(Text(page).text)
    report = result.report
    assert format_time_ps(report.step_time_ps) in shown
    assert f"{report.bubble_fraction:.1%}" in shown
    for part, time in report.breakdown_ps.items():
        if time:
            assert format_time_ps(time) in shown, part
    for warning in report.warnings:
        assert warning in shown
    for link in report.links:
        assert link.name in shown
        assert link.busiest in shown
    for use in report.comms:
        assert format_time_ps(use.time_ps) in shown
    assert "ranks 0-31" in shown
    assert "not asked" in shown


def test_bars_and_shares_add_up_to_the_step(result: Result, tmp_path: Path) -> None:
    page = page_of(result, tmp_path / "step.html").decode()
    bars = re.findall(r'<td class="bar">.*?</td>', page, re.S)
    whole = [bar for bar in bars if bar.count("<rect") > 2]
    assert len(whole) == len(result.ranks.counts)
    for bar in whole:
        widths = [float(width) for width in re.findall(r' width="([\d.]+)%"', bar)]
        assert sum(widths) == pytest.approx(100, abs=0.01)


def test_the_figure_holds_the_spans(result: Result, tmp_path: Path) -> None:
    page = page_of(result, tmp_path / "step.html")
    data = page_data(page)["plots"][0]["data"]
    spans = list(rows_of(result.timeline))
    for name, times in (
        ("left", [span.start_ps for span in spans]),
        ("right", [span.end_ps for span in spans]),
    ):
        held = np.rint(bokeh_column(page, name) * data["scale_ps"]).astype(np.int64)
        assert held.tolist() == times
    assert [row[2] for row in data["rows"]] == [
        "ranks 0-31",
        "ranks 32-63",
        "ranks 64-95",
        "ranks 96-127",
    ]


def test_pages_repeat_in_another_process(run: Run, tmp_path: Path) -> None:
    command = ["simulate", str(WORKLOAD), "-q", "--report"]
    assert run(*command, str(tmp_path / "a.html"))[0] == 0
    first = (tmp_path / "a.html").read_bytes()
    code = "from stepsim.cli import main; main()"
    subprocess.run(
        [sys.executable, "-c", code, *command, str(tmp_path / "a.html")],
        check=True,
        capture_output=True,
    )
    second = (tmp_path / "a.html").read_bytes()
    drop = re.compile(rb"<pre.*?</pre>", re.S)
    assert drop.sub(b"", first) == drop.sub(b"", second)


def evil_result(result: Result) -> Result:
    """The same result with names that would break out of every place they stand in."""
    report = result.report
    comms = tuple(replace(use, algorithms=(EVIL,)) for use in report.comms)
    links = tuple(replace(link, name=EVIL, busiest=EVIL) for link in report.links)
    changed = replace(
        report, workload=EVIL, topology=EVIL, comms=comms, links=links, warnings=(EVIL,)
    )
    return replace(result, report=changed)


def test_names_stay_text(result: Result, tmp_path: Path) -> None:
    plain, evil = page_of(result, tmp_path / "a.html"), tmp_path / "b.html"
    write_step(evil_result(result), evil, command=f"stepsim {EVIL}", what_if=EVIL)
    expected, found = Text(plain), Text(evil.read_bytes())
    tags = {tag for tag, _ in found.elements}
    assert "img" not in tags
    assert [t for t, _ in found.elements].count("script") == [
        t for t, _ in expected.elements
    ].count("script")
    assert not any(name.startswith("on") for _, attrs in found.elements for name in attrs)
    assert found.text.count(EVIL) >= 3
    assert EVIL not in "".join(found.hidden)
    assert page_data(evil.read_bytes())["plots"][0]["data"]["comms"][0][2] == EVIL


def test_the_policy_names_the_scripts_and_nothing_is_loaded(result: Result, tmp_path: Path) -> None:
    page = page_of(result, tmp_path / "step.html")
    parsed = Text(page)
    (policy,) = [a["content"] for t, a in parsed.elements if a.get("http-equiv")]
    assert policy
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    scripts = re.findall(rb"<script>(.*?)</script>", page, re.S)
    digests = [base64.b64encode(hashlib.sha256(each).digest()).decode() for each in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    loading = {"src", "srcset", "data", "action", "formaction", "poster", "background"}
    for tag, attributes in parsed.elements:
        assert not loading & attributes.keys(), tag
        assert (attributes.get("href") or "#").startswith("#")
        assert tag not in ("link", "iframe", "object", "embed", "base")


def test_a_comparison_has_a_row_and_a_timeline_per_schedule(tmp_path: Path) -> None:
    found = compare(WORKLOAD, ["1f1b", "zb-h1", "dualpipe-v"], "hgx-h100", microbatches=4)
    path = tmp_path / "compare.html"
    write_comparison(found, path, command="stepsim compare", what_if=["", ""])
    page = path.read_bytes()
    shown = " ".join(Text(page).text)
    plots = page_data(page)["plots"]
    assert [plot["place"] for plot in plots] == ["timeline-0", "timeline-1"]
    for name, result in found.valid:
        assert name in shown
        assert format_time_ps(result.report.step_time_ps) in shown
        assert f"{found.speedup(result):.3f}" in shown


@pytest.mark.parametrize("command", ["simulate", "compare", "simulate --sensitivity"])
def test_report_reads_what_the_commands_write(run: Run, tmp_path: Path, command: str) -> None:
    document, target = tmp_path / "result.json", tmp_path / "page.html"
    assert run(*command.split(), WORKLOAD, "-q", "--json", document)[0] == 0
    assert run("report", document, "-o", target)[0] == 0
    shown = " ".join(Text(target.read_bytes()).text)
    assert "194.5 ms" in shown or "194 ms" in shown or "195 ms" in shown
    assert "stepsim report" in shown
    if "sensitivity" not in command:
        assert f"--report of stepsim {command} draws it" in shown


def test_report_of_a_step_and_of_its_json_say_the_same(run: Run, tmp_path: Path) -> None:
    document, from_json, whole = (tmp_path / name for name in ("a.json", "a.html", "b.html"))
    assert run("simulate", WORKLOAD, "-q", "--json", document, "--report", whole)[0] == 0
    assert run("report", document, "-o", from_json)[0] == 0
    for name in ("path", "breakdown", "stages", "memory", "network", "settings"):
        section = re.compile(rf'<section id="{name}".*?</section>'.encode(), re.S)
        (a,), (b,) = (section.findall(path.read_bytes()) for path in (whole, from_json))
        assert a == b


def test_report_of_a_sweep(run: Run, tmp_path: Path) -> None:
    database, target, again = (tmp_path / name for name in ("s.sqlite", "a.html", "b.html"))
    axes = ["--set", "fabric.bandwidth=100..400 Gbps:4", "--set", "nvlink.bandwidth=300,450 GB/s"]
    axes += ["--set", "schedule=1f1b,zb-h1"]
    code, out, _ = run("sweep", WORKLOAD, "-q", *axes, "--db", database, "--report", target)
    assert code == 0
    assert run("report", database, "-o", again)[0] == 0
    page = target.read_bytes()
    shown = " ".join(Text(page).text)
    assert "16 of 16" in shown
    fastest = re.search(r"fastest\n.*\n *([\d.]+ m?s)", out)
    assert fastest
    assert fastest[1] in shown
    assert [plot["place"] for plot in page_data(page)["plots"]] == ["map-0", "map-1"]
    assert bokeh_column(page, "value", "cells").size == 8
    assert page_data(again.read_bytes())["plots"] == page_data(page)["plots"]


def test_what_if_is_absent_with_a_reason(tmp_path: Path) -> None:
    found = find_what_if(read_inputs(WORKLOAD, "hgx-h100", {"contention": "fair"}))
    assert isinstance(found, str)
    assert "contention" in found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON"),
        (b'{"schema_version": 1}', "no page shows this"),
        (b'{"schema_version": 1, "candidates": 3}', "candidates is 3"),
        (b'{"schema_version": 1, "slopes": []}', "is missing"),
        (b"SQLite format 3\0 and nothing", "damaged"),
    ],
)
def test_what_is_no_result_is_one_clear_error(
    run: Run, tmp_path: Path, content: bytes, message: str
) -> None:
    source, target = tmp_path / "result.json", tmp_path / "page.html"
    source.write_bytes(content)
    code, out, err = run("report", source, "-o", target)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {source}")
    assert message in err
    assert not target.exists()


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([3], "rank 3"),
        ([0, 1, 4, 5], "ranks 0-1, 4-5"),
        ([0, 8, 16], "ranks 0-16 step 8"),
        ([0, 2, 5, 9, 14, 20], "6 ranks from 0 to 20"),
    ],
)
def test_ranks_in_words(ranks: list[int], words: str) -> None:
    assert name_ranks(ranks) == words


def test_a_stage_that_was_not_traced_is_not_drawn_as_idle() -> None:
    run = load_run(MEASURED / "megatron_moe_rank0.txt", node_size=None)
    assert isinstance(run, RunSummary)
    measured = RunBesideReplay.of(run, replay_measured(run, None, None).report)
    traced = [stage for stage, bars in enumerate(measured.stages) if bars is not None]
    assert 0 < len(traced) < len(measured.stages)
    plot = measured.chart(Range1d(), measured.step_ps).plot
    (idle,) = (each for each in plot.figure.renderers if each.data_source.name == "idle")
    rows = [low + 0.4 for low in idle.data_source.data["low"]]
    assert rows == pytest.approx(traced)
