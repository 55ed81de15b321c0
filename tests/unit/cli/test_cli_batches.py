"""`simulate --lengths` and `compare --lengths`: the answer first, and what goes with it."""

import json
from pathlib import Path

import pytest
from helpers import Run, answers_of
from unit.cli.test_cli import written

from stepsim.cli.options import USUAL_NAMES
from stepsim.explore.batches.draws import USUAL_PACKERS

JOB = ("--npus", "16", "--tp", "2", "--sequence", "8192", "--microbatches", "4")
LAW = "lognormal(mu=6.5, sigma=1, most=8192)"
OF_LAW = ("--lengths", LAW)
FIRST_FIT = ("--set", "packer=first-fit")


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_the_best_packer_is_said_first(command: str, run: Run) -> None:
    code, out, _ = run(command, "llama-3-8b", *JOB, "--lengths", LAW, "--steps", "20")
    assert code == 0
    first = out.splitlines()[0]
    assert " per step with packer " in first
    assert "tokens/s net of padding" in first
    rows = [
        line for line in out.splitlines() if line.startswith(("padded", "first-fit", "balanced"))
    ]
    assert len(rows) == 6  # of two tables


def test_json_csv_and_a_picture(run: Run, tmp_path: Path) -> None:
    written = {name: tmp_path / f"batches.{name}" for name in ("json", "csv", "png")}
    code, _, _ = run(
        *("simulate", "llama-3-8b", *JOB, "--lengths", LAW, "--steps", "10"),
        *("--packers", "padded,balanced", "--seed", "3"),
        *("--json", written["json"], "--csv", written["csv"], "--plot", written["png"]),
    )
    assert code == 0
    document = json.loads(written["json"].read_text())
    assert [entry["packer"] for entry in document["packers"]] == ["padded", "balanced"]
    assert [len(entry["step_time_ps"]) for entry in document["packers"]] == [10, 10]
    assert document["seed"] == 3
    assert document["lengths"] == LAW
    assert written["csv"].read_text().startswith("packer,mean_ps")
    assert written["png"].stat().st_size > 10_000


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_a_page_of_steps(command: str, run: Run, tmp_path: Path) -> None:
    page = tmp_path / "batches.html"
    code, _, _ = run(
        *(command, "llama-3-8b", *JOB, "--lengths", LAW, "--steps", "10", "--packers", "first-fit"),
        *("--report", page),
    )
    assert code == 0
    shown = answers_of(page.read_bytes())["shown"]
    words = json.dumps([shown["heading"], shown["said"], shown["tables"]])
    for said in (" per step with packer first-fit", LAW, "where the mean step goes"):
        assert said in words
    assert len(shown["figures"]) == 1


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [
        (
            "simulate",
            ("--packers", "padded"),
            "without --lengths there are no documents to pack: leave out --packers",
        ),
        ("simulate", (*OF_LAW, "--packers", "best"), "packer is 'best': expected one of sequence"),
        ("simulate", (*OF_LAW, "--full"), "--lengths: these options do nothing: leave out --full"),
        (
            "simulate",
            ("--lengths", "missing.txt"),
            "missing.txt: cannot read the lengths of documents",
        ),
        ("sweep", FIRST_FIT, "a sweep of packers needs lengths of documents"),
        ("sweep", (*OF_LAW, "--set", "lengths.mode=2"), "lognormal: unknown key 'mode': expected"),
        ("sweep", (*OF_LAW, *FIRST_FIT, "--packers", "padded"), "give one of them"),
        ("sweep", (*OF_LAW, *FIRST_FIT, "--db", "a.db"), "leave out --db"),
    ],
)
def test_what_cannot_be_is_one_line(
    command: str, arguments: tuple[str, ...], said: str, run: Run
) -> None:
    code, out, err = run(command, "llama-3-8b", *JOB, *arguments)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]


def test_workload_files_do_not_say_what_is_attention(run: Run, workloads: Path) -> None:
    code, _, err = run("simulate", workloads / "moe_128.txt", "--lengths", LAW)
    assert code == 2
    assert "lengths need a model" in err


def test_packers_are_the_same_from_the_shell_and_from_python() -> None:
    assert tuple(USUAL_NAMES.split(",")) == USUAL_PACKERS


def test_a_sweep_of_packers_and_laws(run: Run, tmp_path: Path) -> None:
    written = tmp_path / "sweep.json", tmp_path / "sweep.csv"
    code, out, _ = run(
        *("sweep", "llama-3-8b", *JOB, "--lengths", LAW, "--steps", "10"),
        *("--set", "packer=padded,first-fit", "--set", "lengths.sigma=0.5,1"),
        *("--json", written[0], "--csv", written[1]),
    )
    assert code == 0
    assert out.startswith("packer=first-fit, lengths.sigma=")
    scenarios = json.loads(written[0].read_text())["scenarios"]
    assert [tuple(entry["settings"].values()) for entry in scenarios] == [
        ("padded", "0.5"),
        ("padded", "1"),
        ("first-fit", "0.5"),
        ("first-fit", "1"),
    ]
    for entry in scenarios:
        parts = [entry[f"{part}_ps"] for part in ("work", "padding", "waiting")]
        assert sum(parts) == entry["mean_ps"]
    assert len(written[1].read_text().splitlines()) == 5


def test_a_scenario_of_a_sweep_is_the_study_of_its_options(run: Run) -> None:
    law = "fixed(length=3000)"
    asked = ("llama-3-8b", *JOB, "--steps", "4")
    sets = ("--set", "packer=first-fit", "--set", "tp=1,2")
    swept = written(run, "sweep", *asked, *sets, "--set", f"lengths=fixed(length=9);{law}")
    last = swept["scenarios"][-1]
    assert last["settings"] == {"packer": "first-fit", "tp": "2", "lengths": law}
    alone = written(run, "simulate", *asked, "--lengths", law, "--packers", "first-fit")
    assert last["mean_ps"] == alone["packers"][0]["mean_ps"]


@pytest.mark.parametrize("model", ["deepseek-v3.2", "deepseek-v4-flash", "glm-5"])
def test_documents_of_models_with_sparse_attention(run: Run, model: str) -> None:
    """Attention's share of a batch is what shorter documents save: never below zero."""
    job = ("--gpus", "64", "--tp", "8", "--pp", "2", "--vpp", "1", "--mbs", "1", "--seq", "8192")
    asked = ("--global-batch", "16", "--lengths", "fixed(length=2048)", "--steps", "1")
    code, out, err = run("simulate", model, *job, *asked, "--packers", "padded")
    assert code == 0, err
    assert " per step with packer " in out
