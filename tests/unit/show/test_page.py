"""Reports without a browser: numbers are the result's, bytes repeat, names stay text."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from helpers import Run, answers_of
from serving import unfolded

import stepsim
from stepsim.base.structs import replace
from stepsim.base.units import format_time_ps
from stepsim.face.results import Result
from stepsim.face.steps import compare
from stepsim.files.measured import load_run
from stepsim.measured.summary import RunSummary
from stepsim.show.page.page import page_of
from stepsim.views.answer import conclusion
from stepsim.views.pages import comparison_page, step_page
from stepsim.views.timelines import drawn_profile
from stepsim.views.words import name_ranks

WORKLOADS = Path(__file__).parents[3] / "workloads"
WORKLOAD = WORKLOADS / "moe_128.txt"
EVIL = "</script><img src=x onerror=alert(1)>&'\""
PLAN: dict[str, Any] = {"npus": 32, "tp": 2, "pp": 4, "global_batch": 64, "sequence": 2048}


@pytest.fixture(scope="module")
def result() -> Result:
    return stepsim.simulate(WORKLOAD, "hgx-h100")


def report_of(result: Result, path: Path) -> bytes:
    step_page(result, None).write(path, "stepsim simulate")
    return path.read_bytes()


def shown_of(page: Path) -> dict[str, Any]:
    shown: dict[str, Any] = answers_of(page.read_bytes())["shown"]
    return shown


def bare(page: bytes) -> bytes:
    """A page without its answers and its title."""
    return re.sub(rb'(id="answers">|<title>)[^<]*', rb"\1", page)


def test_the_page_says_what_the_report_says(result: Result, tmp_path: Path) -> None:
    answers, report = answers_of(report_of(result, tmp_path / "a.html")), result.report
    shown = answers["shown"]
    assert answers["lines"]["command"] == "stepsim simulate"
    assert shown["heading"] == f"{report.workload} on {report.topology}: {conclusion(report)}"
    assert conclusion(report) not in shown["said"]
    facts = {fact["name"]: fact["value"] for fact in shown["facts"]}
    assert list(facts) == ["step time", "throughput", "pipeline bubble"]
    assert facts["step time"] == shown["step_ps"] == report.step_time_ps
    assert facts["pipeline bubble"] == report.bubble_fraction
    assert shown["breakdown"] == report.breakdown_ps
    told = [*shown["said"], *shown["warnings"]]
    assert all(told.count(each) == 1 for each in report.said)
    words = json.dumps([shown["said"], shown["tables"]])
    times = [*filter(None, report.breakdown_ps.values()), *(use.time_ps for use in report.comms)]
    names = [name for link in report.links for name in (link.name, link.busiest)]
    for said in (*map(format_time_ps, times), *names, "ranks 0-31", "A replay has no"):
        assert f'"{said}' in words, said


def test_what_a_model_holds_is_shown(tmp_path: Path) -> None:
    report_of(stepsim.simulate("llama-3.2-3b", "hgx-h100", **PLAN), tmp_path / "a.html")
    shown = shown_of(tmp_path / "a.html")
    assert [each["name"] for each in shown["facts"]] == ["step time", "tokens/s per GPU", "MFU"]
    assert " to " in shown["facts"][0]["range"]
    memory = shown["memory"]
    assert memory["value"] == sum(size for _, size, _ in memory["parts"])
    assert memory["full"] < 1
    (table,) = (each for each in shown["tables"] if "memory" in column_names(each))
    bars = column(table, "memory")
    ends = [sum(piece[0] for piece in bar) for bar in bars]
    assert max(ends) == pytest.approx(memory["full"])
    assert len(bars) == PLAN["pp"]


def column_names(table: Any) -> list[str]:
    return [each["name"] for each in table["columns"]]


def column(table: Any, name: str) -> list[Any]:
    place = column_names(table).index(name)
    return [row[place] for row in table["rows"]]


def test_what_does_not_fit_is_marked(tmp_path: Path) -> None:
    found = stepsim.simulate("llama-3-70b", "hgx-h100", npus=8, tp=8, pp=1, global_batch=8)
    report_of(found, tmp_path / "a.html")
    shown = shown_of(tmp_path / "a.html")
    assert shown["memory"]["full"] > 1
    assert "does not fit" in shown["memory"]["words"]
    assert shown["facts"][2]["note"] == "if it fitted"
    assert any("it does not fit" in each for each in shown["said"])


def test_bars_add_up_to_the_step(result: Result, tmp_path: Path) -> None:
    report_of(result, tmp_path / "a.html")
    bars = column(shown_of(tmp_path / "a.html")["tables"][0], "step")
    assert len(bars) == len(result.ranks.actors)
    for bar in bars:
        assert sum(piece[0] for piece in bar) == pytest.approx(1)


def test_pages_repeat_in_another_process(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    command = ["simulate", str(WORKLOAD), "-q", "--report", str(page)]
    assert run(*command)[0] == 0
    first = page.read_bytes()
    code = f"import sys; from stepsim.cli import main; sys.argv[1:] = {command!r}; main()"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert page.read_bytes() == first


def test_a_step_is_concluded_by_its_time_and_what_is_most_of_it_beside_compute(
    result: Result,
) -> None:
    report = result.report
    parts = dict.fromkeys(report.breakdown_ps, 0)
    whole = replace(report, step_time_ps=10**12, breakdown_ps=parts | {"compute": 10**12})
    assert conclusion(whole) == "1 s per step, 100.0% of it compute"
    lost = parts | {"compute": 4 * 10**11, "exposed_tp": 25 * 10**10, "exposed_dp": 35 * 10**10}
    assert conclusion(replace(whole, breakdown_ps=lost)) == "1 s per step, 35.0% of it exposed dp"


def test_names_stay_text(result: Result, tmp_path: Path) -> None:
    """Answers and the title are all that a report adds to the explorer's page."""
    report = result.report
    comms = tuple(replace(use, algorithms=(EVIL,)) for use in report.comms)
    links = tuple(replace(link, name=EVIL, busiest=EVIL) for link in report.links)
    changed = replace(
        report, workload=EVIL, topology=EVIL, comms=comms, links=links, warnings=(EVIL,)
    )
    page = report_of(replace(result, report=changed), tmp_path / "a.html")
    assert bare(page) == bare(page_of())
    (title,) = re.findall("<title>(.*)</title>", page.decode())
    assert unescape(title) == answers_of(page)["shown"]["heading"]
    assert unescape(title).startswith(f"{EVIL} on {EVIL}: ")
    assert EVIL in answers_of(page)["shown"]["warnings"]


def test_the_policy_names_the_script_and_nothing_is_loaded() -> None:
    page = page_of().decode()
    (policy,) = re.findall('Content-Security-Policy" content="(.*)"', page)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    own = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", page, re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in own}
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == digests
    assert page.count("<script") == page.count("<style") + 1 == 2
    markup = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.DOTALL)
    loading = r"\b(src|srcset|href|data|action|poster|background)=\"([^\"]*)"
    assert re.findall(loading, markup) == [("href", "data:,")]
    assert not re.search("<(iframe|object|embed|base|img)", markup)


def test_a_comparison_has_every_run_on_one_axis(tmp_path: Path) -> None:
    found = compare(WORKLOAD, ["1f1b", "zb-h1", "dualpipe-v"], "hgx-h100", microbatches=4)
    path = tmp_path / "a.html"
    comparison_page(found, found.inputs).write(path, "stepsim compare")
    shown = shown_of(path)
    steps = {run["title"]: run["step_ps"] for run in (shown, *shown["others"])}
    assert steps == {name: each.report.step_time_ps for name, each in found.valid}
    assert list(steps.values()) == sorted(steps.values()), "the fastest first"
    for run in (shown, *shown["others"]):
        assert max(unfolded(run["tasks"])["end"]) == run["step_ps"]
    words = json.dumps(shown["tables"])
    for _, each in found.valid:
        assert f"{found.speedup(each):.3f}" in words


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_report_of_a_stored_result_says_what_the_fresh_page_says(
    run: Run, tmp_path: Path, command: str
) -> None:
    document, stored, fresh = (tmp_path / name for name in ("a.json", "a.html", "b.html"))
    assert run(command, WORKLOAD, "-q", "--json", document, "--report", fresh)[0] == 0
    assert run("report", document, "-o", stored)[0] == 0
    assert answers_of(stored.read_bytes())["lines"]["command"].startswith("stepsim report")
    one, other = shown_of(stored), shown_of(fresh)
    assert one["heading"] == other["heading"]
    assert one["said"][0] == other["said"][0]
    if command == "simulate":
        same = ("step_ps", "facts", "breakdown", "memory", "warnings", "lanes")
        assert {each: one[each] for each in same} == {each: other[each] for each in same}
    there = {table["caption"]: table for table in other["tables"]}
    found = [table for table in one["tables"] if table["rows"]]
    assert len(found) > 1
    for table in found:
        assert table == there[table["caption"]]


def test_report_of_sensitivities(run: Run, tmp_path: Path) -> None:
    document, page = tmp_path / "a.json", tmp_path / "a.html"
    assert run("simulate", WORKLOAD, "-q", "--sensitivity", "--json", document)[0] == 0
    assert run("report", document, "-o", page)[0] == 0
    shown = shown_of(page)
    assert "sensitivities" in shown["heading"]
    assert "1 % more fabric bandwidth" in json.dumps(shown["tables"])


def test_report_of_a_sweep(run: Run, tmp_path: Path) -> None:
    database, fresh, stored = (tmp_path / name for name in ("s.sqlite", "a.html", "b.html"))
    axes = ["--set", "fabric.bandwidth=100..400 Gbps:4", "--set", "nvlink.bandwidth=300,450 GB/s"]
    axes += ["--set", "schedule=1f1b,zb-h1"]
    code, out, _ = run("sweep", WORKLOAD, "-q", *axes, "--db", database, "--report", fresh)
    assert code == 0
    assert run("report", database, "-o", stored)[0] == 0
    shown = shown_of(fresh)
    assert shown == shown_of(stored)
    words = json.dumps(shown["tables"])
    assert "16 of 16" in words
    fastest = re.search(r"fastest\n.*\n *([\d.]+ m?s)", out)
    assert fastest
    assert fastest[1] in words
    (figure,) = shown["figures"]
    assert figure.count("<svg") == 1


def test_a_replay_stands_beside_what_was_measured(run: Run, tmp_path: Path) -> None:
    """A rank that was not traced is not drawn as idle."""
    source, page = WORKLOADS / "measured" / "megatron_moe_rank0.txt", tmp_path / "a.html"
    assert run("simulate", source, "-q", "--report", page)[0] == 0
    shown = shown_of(page)
    (measured,) = shown["others"]
    assert (shown["title"], measured["title"]) == ("Simulated", "Measured")
    assert shown["step_ps"] == stepsim.simulate_run(source).report.step_time_ps
    read = load_run(source, node_size=None)
    assert isinstance(read, RunSummary)
    drawn = drawn_profile(read.run)
    assert measured["lanes"]["rows"] == ["rank 0"]
    assert len(shown["lanes"]["rows"]) > 1
    spans = unfolded(measured["lanes"])
    assert spans["end"] == [end for _, each in drawn.rows for end in each.end_ps.tolist()]
    assert max(spans["end"]) == measured["step_ps"]


def test_what_if_is_absent_with_a_reason() -> None:
    step = stepsim.simulate(WORKLOAD, "hgx-h100", contention="fair")
    said: Any = step_page(step, step.inputs).answer()["said"]
    assert re.match("No sensitivities: .*contention", said[-1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not valid JSON"),
        (b'{"schema_version": 1}', "not a result of stepsim simulate, compare"),
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
