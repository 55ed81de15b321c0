"""A run that is stopped, or killed while it writes, leaves whole files or none."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from fuzz import seeds
from fuzz.surface import STEPSIM
from helpers import few
from quick_stepsim import quick_stepsim

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = ROOT / "workloads" / "gpt_1024.txt"
KILLED = [
    sys.executable,
    "-c",
    "import os, signal, sys\n"
    "def replace(*names): os.kill(os.getpid(), signal.SIGKILL)\n"
    "os.replace = replace\n"
    "from stepsim.cli import main\n"
    "main()",
]
OLD = b"what was there before"

INTERRUPTED = """
import os, signal, sys
from stepsim.cli import main
from {module} import {name} as real
calls = int(sys.argv.pop(1))
def interrupted(*given, **more):
    global calls
    calls -= 1
    if not calls:
        os.kill(os.getpid(), signal.SIGINT)
    return real(*given, **more)
import {module} as module
module.{name} = interrupted
main()
"""
"""A command that is interrupted in a call of a function, the first argument says which."""
STEP = INTERRUPTED.format(module="stepsim.step.prepared", name="write_graph")
SCENARIO = INTERRUPTED.format(module="stepsim.explore.sweep.study", name="prepare")
COMPUTING = {
    "simulate": ("simulate", WORKLOAD),
    "compare": ("compare", WORKLOAD, "--schedules", "1f1b,gpipe"),
    "noise": ("noise", WORKLOAD, "--samples", "2"),
}


@pytest.mark.parametrize("name", COMPUTING)
def test_interrupt(name: str, tmp_path: Path) -> None:
    json = tmp_path / "out.json"
    json.write_bytes(OLD)
    words = [*map(str, COMPUTING[name]), "-q", "--json", str(json)]
    ended = run([sys.executable, "-c", STEP, "1", *words], tmp_path)
    assert ended.returncode == 130, ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert os.listdir(tmp_path) == ["out.json"]
    assert json.read_bytes() == OLD


def test_interrupted_sweep_goes_on(tmp_path: Path) -> None:
    words = ["sweep", str(ROOT / "workloads" / "gpt_tp4.txt"), "--db", "sweep.sqlite"]
    words += ["--set", "microbatches=1..4", "--set", "npus=16,32", "-q", "--jobs", "1"]
    ended = run([sys.executable, "-c", SCENARIO, "3", *words], tmp_path)
    assert ended.returncode == 130, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "--resume continues" in ended.stderr
    again = run([*STEPSIM, *words, "--resume"], tmp_path)
    assert again.returncode == 0, again.stderr


SWEEP = "sweep W --set microbatches=1,2 -q --jobs 1 --db DB"
WRITERS = {
    "result.json": "simulate W -q --json OUT",
    "step.png": "simulate W -q --plot OUT",
    "step.svg": "simulate W -q --plot OUT",
    "spans.csv": "simulate W -q --csv OUT",
    "compare.json": "compare W --schedules 1f1b,gpipe -q --json OUT",
    "schedule.csv": "inspect gpipe --csv OUT --pp 2 --microbatches 2",
    "probe.pdf": "collective --kind all_reduce --size 1..1MiB --plot OUT",
    "sweep.csv": f"{SWEEP} --export OUT",
    "sweep.png": f"{SWEEP} --plot OUT",
    "topology.json": "inspect ring --json OUT",
    "fit.json": "calibrate nccl TABLE --json OUT",
}


QUICK = ("result.json", "step.png", "spans.csv", "sweep.csv", "topology.json")


@pytest.mark.parametrize("name", few(WRITERS, *QUICK))
def test_killed_while_writing(name: str, tmp_path: Path) -> None:
    files = {"W": "w.txt", "TABLE": "nccl.csv", "DB": "sweep.sqlite", "OUT": name}
    (tmp_path / "w.txt").write_text(seeds.SMALL_WORKLOAD)
    (tmp_path / "nccl.csv").write_text(seeds.COMM_TABLE)
    arguments = [files.get(word, word) for word in WRITERS[name].split(" ")]
    target = tmp_path / name
    target.write_bytes(OLD)
    killed = run([*KILLED, *arguments], tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert target.read_bytes() == OLD
    (tmp_path / "sweep.sqlite").unlink(missing_ok=True)
    whole = run([str(quick_stepsim() / "stepsim"), *arguments], tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert target.read_bytes() != OLD


def run(command: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
