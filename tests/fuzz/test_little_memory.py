"""With little memory a command gives its result, or one line and exit code 2."""

import resource
import subprocess
from functools import partial
from pathlib import Path

import pytest
from fuzz.surface import STEPSIM

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = str(ROOT / "workloads" / "gpt_tp4.txt")
COMMANDS = (
    "simulate W -q",
    "simulate W -q --plot p.png",
    "simulate W -q --report r.html --trace t.json.gz",
    "sweep W --set microbatches=1..4 -q --db s.sqlite --jobs 2",
    "sweep W --set compute_scale=1..2:8 -q --db s.sqlite --export x.csv --plot q.svg",
    "noise W -q --samples 20",
    "inspect spectrum-x-h100",
)


def with_memory(megabytes: int, command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A command in a folder of its own, with so much address space."""
    most = megabytes << 20
    return subprocess.run(
        [*STEPSIM, *command.replace("W", WORKLOAD).split(" ")],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_AS, (most, most)),
    )


def ends_well(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode in (0, 2), done.stderr
    assert done.stderr.count("\n") == (done.returncode != 0), done.stderr


@pytest.mark.parametrize("megabytes", [150, 250])
def test_a_result_or_one_line(megabytes: int, tmp_path: Path) -> None:
    ends_well(with_memory(megabytes, COMMANDS[0], tmp_path))


def test_a_small_job_fits(tmp_path: Path) -> None:
    done = with_memory(200, COMMANDS[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert " per step" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("megabytes", range(150, 501, 50))
def test_a_result_or_one_line_of_every_command(
    megabytes: int, command: str, tmp_path: Path
) -> None:
    ends_well(with_memory(megabytes, command, tmp_path))
