"""Every source of a step has every view: the product of both, by the commands that users type."""

import csv
import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from helpers import Run, answers_of

JOB = ("--npus", "8", "--pp", "2", "-m", "2")
SCHEDULES = ("1f1b", "interleaved:2")
OUTPUTS: Mapping[str, str] = {
    "--plot": "view.png",
    "--csv": "view.csv",
    "--trace": "view.json.gz",
    "--report": "view.html",
    "--json": "view.json",
    "--kineto": "kineto",
    "--chakra": "chakra",
}
"""Views that are written, and where; beside them are the table and `diff`."""
SOURCES = (
    *("SimAI text", "model", "compared schedules", "Megatron trace", "log of leaf modules"),
    *("Kineto", "Chakra", "Nsight", "NDTimeline"),
)
Made = Callable[[str], list[str]]


@pytest.fixture
def source(workloads: Path, shared: Path, tmp_path: Path, run: Run) -> Made:
    """The command about a source with its arguments; traces without a file are made here."""

    def made(name: str) -> list[str]:
        text = str(workloads / "gpt_tp4.txt")
        profiles = shared / "reference" / "profiles"
        if name in ("Kineto", "Chakra"):
            folder = str(tmp_path / "recorded")
            assert run("simulate", text, *JOB, f"--{name.lower()}", folder)[0] == 0
            return ["simulate", folder]
        return {
            "SimAI text": ["simulate", text, *JOB],
            "model": [
                "simulate",
                "llama-3.2-1b",
                "--npus",
                "8",
                "--tp",
                "2",
                "--global-batch",
                "8",
            ],
            "compared schedules": ["compare", text, *JOB, "--schedules", ",".join(SCHEDULES)],
            "Megatron trace": ["simulate", str(workloads / "measured" / "megatron_moe_rank0.txt")],
            "log of leaf modules": ["simulate", str(workloads / "measured" / "llama_pp8_a40.txt")],
            "Nsight": ["simulate", str(profiles / "nsys" / "mfu_2gpu_before.sqlite")],
            "NDTimeline": ["simulate", str(profiles / "ndtimeline" / "trace-ST.parquet")],
        }[name]

    return made


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_has_every_view(name: str, source: Made, tmp_path: Path, run: Run) -> None:
    paths = {flag: tmp_path / output for flag, output in OUTPUTS.items()}
    views = [str(word) for view in paths.items() for word in view]
    command = source(name)
    if command[0] == "compare":
        views += ["--results", str(tmp_path / "results")]
    code, printed, said = run(*command, "-q", *views)
    assert (code, said) == (0, "")
    assert re.search("[0-9] m?s (per step|explained|in the recording)", printed.splitlines()[1]), (
        "the answer"
    )
    check_files(paths)
    traces = [paths["--kineto"], paths["--chakra"]]
    if command[0] == "compare":
        traces = [folder / each for folder in traces for each in ("1f1b", "interleaved-2")]
    for folder in traces:
        check_trace_folder(folder, run)
    check_diff(sorted((tmp_path / "results").glob("*")) or [paths["--json"]], run)
    check_diff([paths["--json"]], run)


def check_files(paths: Mapping[str, Path]) -> None:
    """The files of a source hold what their formats promise."""
    assert paths["--plot"].read_bytes().startswith(b"\x89PNG")
    header, *rows = csv.reader(paths["--csv"].read_text().splitlines())
    assert rows
    assert {len(row) for row in rows} == {len(header)}
    trace = json.loads(gzip.decompress(paths["--trace"].read_bytes()))
    assert any(event["ph"] in "BX" for event in trace["traceEvents"])
    shown = answers_of(paths["--report"].read_bytes())["shown"]
    assert shown["lanes"]["of"], "a timeline"
    assert shown["tables"]
    assert json.loads(paths["--json"].read_text())["schema_version"] >= 1


def check_trace_folder(folder: Path, run: Run) -> None:
    """A folder of traces has operations, and is itself a source."""
    assert any(folder.iterdir()), folder
    code, printed, said = run("simulate", folder, "-q")
    assert (code, said) == (0, ""), folder
    assert "its own durations, put back in order" in printed


def check_diff(documents: Sequence[Path], run: Run) -> None:
    """The same two documents are identical; those of two schedules are not."""
    first, *others = documents
    code, printed, said = run("diff", first, first)
    assert (code, said) == (0, "")
    assert "identical" in printed
    for other in others:
        code, printed, said = run("diff", first, other)
        assert (code, said) == (0, "")
        assert "1f1b -> interleaved:2" in printed


def compared(source: Made, run: Run, path: Path, *more: str) -> Path:
    """The JSON of `compare`; options that are given twice count as given last."""
    assert run(*source("compared schedules"), *more, "-q", "--json", path)[0] == 0
    return path


def test_a_comparison_is_held_against_its_first_schedule(
    source: Made, tmp_path: Path, run: Run
) -> None:
    both = compared(source, run, tmp_path / "both.json")
    results = tmp_path / "results"
    assert run(*source("compared schedules"), "-q", "--results", results)[0] == 0
    assert run("diff", both) == run("diff", *sorted(results.iterdir()))
    three = compared(source, run, tmp_path / "three.json", "--schedules", "gpipe,1f1b,zb-h1")
    code, printed, _ = run("diff", three, "--csv", tmp_path / "rows.csv")
    assert code == 0
    assert "gpipe -> zb-h1" in printed
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["schedule", "gpipe -> 1f1b", "gpipe -> zb-h1"]


def test_comparisons_are_compared_schedule_by_schedule(
    source: Made, tmp_path: Path, run: Run
) -> None:
    before = compared(source, run, tmp_path / "before.json")
    others = ("--schedules", "zb-h1,interleaved:2", "-m", "4")
    after = compared(source, run, tmp_path / "after.json", *others)
    code, printed, said = run("diff", before, after)
    assert (code, said) == (0, "")
    assert printed.startswith("only A has 1f1b\nonly B has zb-h1\n")
    assert "microbatches  2 -> 4" in printed
    again = run("diff", before, before)[1]
    assert "1f1b: A and B are identical" in again
    assert "interleaved:2: A and B are identical" in again


def test_a_result_is_compared_with_its_schedule_of_a_comparison(
    source: Made, workloads: Path, tmp_path: Path, run: Run
) -> None:
    both, alone = compared(source, run, tmp_path / "both.json"), tmp_path / "alone.json"
    command = ("simulate", workloads / "gpt_tp4.txt", *JOB, "-q", "--json", alone, "--schedule")
    assert run(*command, "interleaved:2")[0] == 0
    code, printed, said = run("diff", both, alone)
    assert (code, said) == (0, "")
    assert "only A has 1f1b" in printed
    assert "identical" in printed
    assert run(*command, "zb-h1")[0] == 0
    code, _, said = run("diff", both, alone)
    assert code == 2
    assert said.endswith("schedules 1f1b, interleaved:2 and zb-h1: expected one that both have\n")


def test_one_result_alone_has_no_difference(
    source: Made, workloads: Path, tmp_path: Path, run: Run
) -> None:
    alone = tmp_path / "alone.json"
    assert run("simulate", workloads / "gpt_tp4.txt", "-q", "--json", alone)[0] == 0
    code, _, said = run("diff", alone)
    assert code == 2
    assert said.endswith("one result: expected a second file to compare it with\n")
    one = compared(source, run, tmp_path / "one.json", "--schedules", "1f1b")
    code, _, said = run("diff", one)
    assert code == 2
    assert said.endswith("only 1f1b ran: expected two schedules or files\n")


def test_what_compare_writes_of_a_schedule_is_what_simulate_writes(
    source: Made, workloads: Path, tmp_path: Path, run: Run
) -> None:
    folders = {flag: tmp_path / flag.strip("-") for flag in ("--results", "--kineto", "--chakra")}
    views = [str(word) for view in folders.items() for word in view]
    assert run(*source("compared schedules"), "-q", *views)[0] == 0
    for schedule, name in zip(SCHEDULES, ("1f1b", "interleaved-2"), strict=True):
        alone = tmp_path / "alone" / name
        alone.mkdir(parents=True)
        text = workloads / "gpt_tp4.txt"
        written = ("--json", alone / "result", "--kineto", alone / "k", "--chakra", alone / "c")
        assert run("simulate", text, *JOB, "--schedule", schedule, "-q", *written)[0] == 0
        result = (folders["--results"] / f"{name}.json").read_bytes()
        assert result == (alone / "result").read_bytes()
        for folder, other in ((folders["--kineto"], "k"), (folders["--chakra"], "c")):
            files = sorted(file.name for file in (alone / other).iterdir())
            assert sorted(file.name for file in (folder / name).iterdir()) == files
            for file in files:
                assert (folder / name / file).read_bytes() == (alone / other / file).read_bytes()


def test_schedules_of_one_name_get_folders_of_their_own(
    workloads: Path, tmp_path: Path, run: Run
) -> None:
    job = (workloads / "gpt_tp4.txt", *JOB, "--schedules", "1f1b,1f1b,dualpipe-v,interleaved:2")
    assert run("compare", *job, "-q", "--results", tmp_path / "new")[0] == 0
    names = {file.name for file in (tmp_path / "new").iterdir()}
    assert names == {"1f1b.json", "1f1b--2.json", "interleaved-2.json"}


def test_a_result_and_a_profile_are_not_compared(
    source: Made, workloads: Path, tmp_path: Path, run: Run
) -> None:
    step, profile = tmp_path / "step.json", tmp_path / "profile.json"
    assert run("simulate", workloads / "gpt_tp4.txt", "-q", "--json", step)[0] == 0
    assert run(*source("Kineto"), "-q", "--json", profile)[0] == 0
    code, _, said = run("diff", step, profile)
    assert code == 2
    assert said.endswith("expected two results or two profiles, not one of each\n")
