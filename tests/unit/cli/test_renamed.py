"""Old names of commands: the same as their new spelling, with one line of advice."""

import shlex
from pathlib import Path

import pytest
from helpers import Run

from stepsim.cli import renamed
from stepsim.cli.commands import COMMANDS

JOB = "gpt.txt -t hgx-h100 --npus 16 --pp 4 -m 4"
OLD = {
    "sweep-report": "sweep-report kept.sqlite --csv OUT",
    "sensitivity": f"sensitivity {JOB} --csv OUT",
    "check": "check plan.toml --max-step 100s --json OUT",
    "export-site": "export-site OUT gpt.txt",
    "convert": "convert interleaved OUT.csv --pp 4 --microbatches 8 --chunks 2",
}
"""A command line of each old name; OUT is what it writes."""


@pytest.fixture
def here(run: Run, tmp_path: Path, workloads: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the commands read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt.txt").symlink_to(workloads / "gpt_tp4.txt")
    kept = ("--set", "microbatches=4,8", "--db", "kept.sqlite", "--jobs", "1", "-q")
    assert run("sweep", "gpt.txt", "--npus", "16", "--pp", "4", *kept)[0] == 0
    search = ("--gpus", "8", "--global-batch", "8", "--seq", "1024", "--fix", "tp=8", "-q")
    assert run("plan", "llama-3.1-8b", *search, "--runs", "1", "--toml", "plan.toml")[0] == 0
    return tmp_path


def test_every_old_name_is_tried_and_none_is_a_command() -> None:
    assert OLD.keys() == renamed.RENAMED.keys()
    assert not OLD.keys() & COMMANDS.keys()


@pytest.mark.parametrize("name", OLD)
def test_an_old_name_is_its_new_spelling(run: Run, here: Path, name: str) -> None:
    old = OLD[name].replace("OUT", "old").split()
    code, out, err = run(*old)
    lines = err.splitlines()
    assert code == 0, err
    assert lines[0].startswith(f"advice: the name {name} goes with the next release")
    assert sum(line.startswith("advice: ") for line in lines) == 1
    given = shlex.split(lines[0].partition("the same command is: stepsim ")[2])
    assert given[0] in COMMANDS
    again = [word.replace("old", "new") for word in given]
    assert run(*again) == (0, out.replace("old/", "new/"), "".join(f"{x}\n" for x in lines[1:]))
    for path in here.glob("old*"):
        beside = here / path.name.replace("old", "new")
        assert path.is_dir() == beside.is_dir()
        if path.is_file():
            assert path.read_bytes() == beside.read_bytes()


@pytest.mark.parametrize("name", OLD)
def test_quiet_leaves_the_advice_out(run: Run, here: Path, name: str) -> None:
    for number, flag in enumerate(("-q", "--quiet")):
        words = [*OLD[name].replace("OUT", f"out{number}").split(), flag]
        code, _, err = run(*words)
        assert (code, "advice" in err) == (0, False)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("sweep-report", ""),
        ("sensitivity", ""),
        ("check", ""),
        ("check", "plan.toml"),
        ("export-site", ""),
        ("export-site", "site"),
        ("convert", "1f1b"),
        ("convert", "1f1b out.csv --pp 4"),
        ("sensitivity", "gpt.txt --trace step.json"),
        ("check", "plan.toml --max-step 1s --tp 4"),
        ("sweep-report", "kept.sqlite --npus 8"),
        ("export-site", "site gpt.txt --port 80"),
        ("convert", "1f1b out.csv --pp 4 -m 8 --tp 2"),
    ],
)
def test_what_an_old_name_refused_is_refused(run: Run, here: Path, name: str, missing: str) -> None:
    before = set(here.iterdir())
    code, out, _ = run(name, *missing.split())
    assert (code, out) == (2, "")
    assert set(here.iterdir()) == before


def test_a_plan_above_its_budget_still_ends_with_one(run: Run, here: Path) -> None:
    assert run("check", "plan.toml", "--max-step", "1us", "-q")[0] == 1
    assert run("plan", "plan.toml", "--check", "--max-step", "1us", "-q")[0] == 1
    code, _, err = run("plan", "llama-3.1-8b", "--gpus", "8", "--max-step", "1us")
    assert (code, err.count("\n")) == (2, 1)
    assert "--check" in err


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sensitivity -- -odd.txt", "simulate --sensitivity -- -odd.txt"),
        ("convert 1f1b out.csv --pp=4 -m 8", "inspect 1f1b --pp=4 -m 8 --csv out.csv"),
        ("convert --pp 4 zb-v -m 8 o.csv --vpp=2", "inspect --pp 4 zb-v:2 -m 8 --csv o.csv"),
        ("convert interleaved:2 o.csv --chunks 2", "inspect interleaved:2 --csv o.csv"),
        ("export-site site a.txt b.txt", "serve a.txt b.txt --site site"),
        ("check --help", "plan --help --check"),
        ("convert --help", "inspect --help"),
        ("simulate check", "simulate check"),
    ],
)
def test_words_are_rewritten_where_they_stand(old: str, new: str) -> None:
    assert renamed.renamed(old.split()) == new.split()


def test_a_schedule_is_printed_as_it_is_written(run: Run, tmp_path: Path) -> None:
    shape, target = ("--pp", "4", "-m", "8"), tmp_path / "order.csv"
    code, out, err = run("inspect", "zb-v", *shape)
    assert (code, err) == (0, "")
    assert run("inspect", "zb-v", *shape, "--csv", target) == (0, "", "")
    assert target.read_text() == out
