"""`simulate --lengths` and `compare --lengths`: the answer first, and what goes with it."""

import json
from pathlib import Path

import pytest
from helpers import Run

from stepsim.cli.batches import USUAL_NAMES
from stepsim.explore.batches.draws import USUAL_PACKERS

JOB = ("--npus", "16", "--tp", "2", "--sequence", "8192", "--microbatches", "4")
LAW = "lognormal(mu=6.5, sigma=1, most=8192)"


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_the_best_packer_is_said_first(command: str, run: Run) -> None:
    code, out, _ = run(command, "llama-3-8b", *JOB, "--lengths", LAW, "--steps", "20")
    assert code == 0
    first = out.splitlines()[0]
    assert " per step with packer " in first
    assert "tokens/s net of padding" in first
    rows = [line for line in out.splitlines() if line.startswith(("padded", "greedy", "balanced"))]
    assert len(rows) == 6  # of two tables


def test_json_csv_and_a_picture(run: Run, tmp_path: Path) -> None:
    written = {name: tmp_path / f"batches.{name}" for name in ("json", "csv", "png")}
    code, _, _ = run(
        *("simulate", "llama-3-8b", *JOB, "--lengths", LAW, "--steps", "10"),
        *("--packers", "padded,padded+swap", "--seed", "3"),
        *("--json", written["json"], "--csv", written["csv"], "--plot", written["png"]),
    )
    assert code == 0
    document = json.loads(written["json"].read_text())
    assert [entry["packer"] for entry in document["packers"]] == ["padded", "padded+swap"]
    assert [len(entry["step_time_ps"]) for entry in document["packers"]] == [10, 10]
    assert document["seed"] == 3
    assert document["lengths"] == LAW
    assert written["csv"].read_text().startswith("packer,mean_ps")
    assert written["png"].stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--packers", "padded"), "--packers: without --lengths there are no documents to pack"),
        (("--lengths", LAW, "--packers", "best"), "packer is 'best': expected one of sequence"),
        (("--lengths", LAW, "--full"), "--lengths: these options do nothing: leave out --full"),
        (("--lengths", "missing.txt"), "missing.txt: cannot read the lengths of documents"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: tuple[str, ...], said: str, run: Run) -> None:
    code, out, err = run("simulate", "llama-3-8b", *JOB, *arguments)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]


def test_workload_files_do_not_say_what_is_attention(run: Run, workloads: Path) -> None:
    code, _, err = run("simulate", workloads / "moe_128.txt", "--lengths", LAW)
    assert code == 2
    assert "lengths need a model" in err


def test_packers_are_the_same_from_the_shell_and_from_python() -> None:
    assert tuple(USUAL_NAMES.split(",")) == USUAL_PACKERS
