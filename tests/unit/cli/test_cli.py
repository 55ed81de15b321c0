"""The command line: options, outputs, exit codes."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import Run

from stepsim.base.axes import Part
from stepsim.views.step import STEP_TABLES


@pytest.mark.parametrize(("name", "first"), [("plan", "--gpus"), ("sweep", "--set")])
def test_help_begins_with_what_a_command_asks(run: Run, name: str, first: str) -> None:
    """How the program runs, its engine and its warnings, stands last."""
    options = run(name, "--help")[1].partition("\nOptions:\n")[2]
    flags = re.findall(r"^\W*(--[a-z-]+)", options, re.MULTILINE)
    assert flags[0] == first
    assert flags.index("--engine") > flags.index("--json")


def test_version(run: Run) -> None:
    assert run("--version") == (0, "stepsim 0.1.0\n", "")


def test_report_on_stdout_and_warnings_on_stderr(run: Run, moe: Path) -> None:
    code, out, err = run("simulate", moe)
    assert code == 0
    assert out.splitlines()[1].startswith("194.5 ms per step")
    assert "warning" not in out
    assert "no topology given: stepsim assumes hgx-h100" in err
    assert run("simulate", moe, "--quiet")[2] == ""


def test_json_on_stdout_is_all_there_is(run: Run, moe: Path) -> None:
    code, out, _ = run("simulate", moe, "--json", "-")
    document = json.loads(out, parse_constant=pytest.fail)
    assert code == 0
    assert document["schema_version"] == 1
    assert document["npus"] == len(document["ranks"]) == 128
    parts = {part.name.lower() for part in Part}
    for entry in (document, *document["ranks"], *document["stages"]):
        assert entry["breakdown_ps"].keys() == parts
        assert sum(entry["breakdown_ps"].values()) == document["step_time_ps"]
    assert document["step_time_s"] == document["step_time_ps"] / 1e12
    assert {"schedule": "1f1b", "p2p": "blocking", "microbatches": 1}.items() <= document.items()
    assert all(math.isfinite(link["utilisation"]) for link in document["links"])
    assert any("vpp 8" in note for note in document["notes"])
    assert document["reading"].startswith(
        "the 2 blocks of the file (8, 1 layers) are read as 1 microbatch of"
    )
    (filled,) = (each for each in document["findings"] if "--fill-placeholders" in each["text"])
    assert filled["worth"] == pytest.approx(0.222, abs=0.01)


def test_csv_holds_every_span_of_a_rank_per_class(run: Run, moe: Path, tmp_path: Path) -> None:
    target = tmp_path / "spans.csv"
    assert run("simulate", moe, "--csv", target)[0] == 0
    lines = target.read_text().splitlines()
    assert lines[0].split(",")[:4] == ["rank", "stage", "stream", "kind"]
    ranks = {int(line.split(",")[0]) for line in lines[1:]}
    assert ranks == {0, 32, 64, 96}
    ends = [int(line.split(",")[-2]) for line in lines[1:]]
    assert max(ends) == written(run, "simulate", moe)["step_time_ps"]


@pytest.mark.parametrize("option", ["--json", "--plot", "--csv"])
def test_unwritable_output_is_refused_before_anything_is_written(
    run: Run, moe: Path, tmp_path: Path, option: str
) -> None:
    other = tmp_path / "other.json"
    target = tmp_path / "missing" / "result.png"
    arguments = ["--json", other] if option != "--json" else []
    code, out, err = run("simulate", moe, option, target, *arguments)
    assert code == 2
    assert out == ""
    assert f"error: {target}: cannot write: folder" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--npus", "100"], "100 NPUs (npus asked for): not divisible by tp*pp = 8*4 = 32"),
        (["--pp", "64", "--npus", "2048"], "pp is 64: the model has"),
        (["--microbatches", "0"], "microbatches is 0"),
        (["--global-batch", "8", "--microbatches", "2"], "contradict"),
        (["--schedule", "2f2b"], "schedule is '2f2b': expected one of 1f1b"),
        (
            ["--schedule", "interleaved:2", "--chunks", "4"],
            "schedule interleaved:2: chunks is 4: expected 2",
        ),
        (
            ["--schedule", "interleaved:2", "--microbatches", "2"],
            "microbatches is 2: expected at least 4 (ranks)",
        ),
        (["--group-size", "4"], "schedule 1f1b: option group_size is 4: expected no options"),
        (
            ["--schedule", "zb-h1", "--p2p", "blocking"],
            "schedule zb-h1 does not define p2p blocking: torch's runtime never waits",
        ),
        (["--p2p", "magic"], "p2p is 'magic': expected one of eager, blocking, overlap"),
        (["--compute-scale", "fast"], "compute scale is 'fast': expected a factor"),
        (["--host-overhead", "5"], "'5' has no unit"),
        (["--topology", "nowhere"], "no topology named 'nowhere': expected a file or one of"),
        (["--strict"], "refused by --strict"),
        (["--show", "stage"], f"show is 'stage': expected one of {', '.join(STEP_TABLES)}"),
        (["--messages"], "leave out --messages"),
        (["--csv", "-"], "only --json"),
        (["--trace", "-"], "only --json"),
        (["--trace", "step.txt"], "expected a name in .json or .json.gz"),
        (["--window", "1s..2s"], "no trace is named with --trace: leave out --window"),
        (["--plot", "a.gif"], "expected .png, .svg, .pdf"),
        (["--json", "/"], "it is a folder"),
        (["--plot", "a.png", "--csv", "a.png"], "same file"),
    ],
)
def test_contradictions_exit_with_2_and_one_message(
    run: Run, moe: Path, arguments: list[str], message: str
) -> None:
    code, out, err = run("simulate", moe, *arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")


def test_a_topology_smaller_than_the_job_is_refused(run: Run, moe: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text(
        'name = "small"\nsource = "test"\n[[dimension]]\nname = "r"\nkind = "ring"\n'
        'size = 8\nbandwidth = "1 GB/s"\nlatency = "1 ns"\n'
    )
    code, _, err = run("simulate", moe, "--topology", small)
    assert code == 2
    assert "topology small has 8 NPUs: the job needs 128" in err


def test_missing_file_names_it(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "none.txt"
    code, _, err = run("simulate", missing)
    assert code == 2
    assert err == f"error: {missing}: cannot read the workload: No such file or directory\n"


def test_inspect_prints_what_was_understood(run: Run, workloads: Path) -> None:
    code, out, err = run("inspect", workloads / "gpt_1024.txt")
    assert code == 0
    for line in (
        "job            1024 GPUs: tp 8, dp 8, pp 16, ep 1; microbatches 16",
        "layers         8 per stage",
        "to next stage  16 MiB per microbatch",
    ):
        assert line in out
    assert "the file gives no pp_comm: stepsim assumes 16777216 bytes" in err


def written(run: Run, *arguments: str | Path) -> dict[str, Any]:
    """The document of a command that warns of nothing."""
    code, out, err = run(*arguments, "--quiet", "--json", "-")
    assert (code, err) == (0, "")
    document: dict[str, Any] = json.loads(out, parse_constant=pytest.fail)
    return document


def simulated(run: Run, *arguments: str | Path) -> dict[str, Any]:
    """What a simulation found, without what was asked for."""
    document = written(run, "simulate", *arguments)
    del document["settings"]
    return document


INTERLEAVED = ("--schedule", "interleaved:2", "--microbatches", "8")


def test_chunks_stand_in_the_schedules_name_or_beside_it(run: Run, moe: Path) -> None:
    named = simulated(run, moe, *INTERLEAVED)
    assert {"schedule": "interleaved:2", "p2p": "overlap"}.items() <= named.items()
    beside = ("--schedule", "interleaved", "--chunks", "2", "--microbatches", "8")
    assert simulated(run, moe, *beside) == named
    assert simulated(run, moe, *INTERLEAVED, "--chunks", "2") == named


@pytest.mark.parametrize("option", ["--deallocate-outputs", "--warmup-flush"])
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved:2", "zb-h1"])
def test_megatrons_switches_do_nothing_where_sends_are_not_overlapped_its_way(
    run: Run, moe: Path, schedule: str, option: str
) -> None:
    arguments = ["--schedule", schedule, "-m", "8"]
    arguments += ["--p2p", "blocking"] if schedule != "zb-h1" else []
    given, plain = simulated(run, moe, *arguments, option), simulated(run, moe, *arguments)
    name = option.removeprefix("--").replace("-", "_")
    (warning,) = {*given.pop("warnings")} - {*plain.pop("warnings")}
    assert warning.startswith(f"{name} on has no effect: only interleaved schedules with p2p")
    assert given == plain


def test_get_batch_and_loss_are_the_ends_own(run: Run, moe: Path) -> None:
    """One of them per microbatch, on the stage that has it, is host time of that stage alone."""
    document = simulated(run, moe, "--get-batch", "1 ms", "--loss-time", "3 ms")
    host = [stage["breakdown_ps"]["host"] for stage in document["stages"]]
    assert host == [10**9, 0, 0, 3 * 10**9]


def test_a_linked_output_writes_the_target(run: Run, moe: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    assert run("simulate", moe, "--json", link)[0] == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["npus"] == 128


def test_a_device_is_written_into_and_stays_one(run: Run, moe: Path) -> None:
    assert run("simulate", moe, "--json", "/dev/null")[0] == 0
    assert Path("/dev/null").is_char_device()


def test_a_link_used_beyond_the_step_is_warned_about(run: Run, tmp_path: Path) -> None:
    network = tmp_path / "slow.toml"
    network.write_text(
        'name = "slow"\nsource = "test"\n[[dimension]]\nname = "line"\nkind = "line"\n'
        'size = "auto"\nbandwidth = "1 GB/s"\nlatency = "1 ns"\n'
    )
    workload = tmp_path / "dp.txt"
    workload.write_text(
        "HYBRID_TRANSFORMER model_parallel_NPU_group: 8 all_gpus: 64\n1\n"
        "x -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 1000000000 1\n"
    )
    for more, warned in (((), False), (("--contention", "none"), True)):
        code, _, err = run("simulate", workload, "--topology", network, *more)
        assert (code, "transfers do not slow each other" in err) == (0, warned)
