"""A sweep killed at random moments and resumed gives the table of an undisturbed one."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import Run
from sweeps import SMALL

STEPSIM = [sys.executable, "-c", "from stepsim.cli import main; main()"]
AXES = ["fabric.bandwidth=100..800 Gbps:4", "schedule=1f1b,gpipe,zb-h1", "compute_scale=0.5,1"]


def command(folder: Path, name: str, jobs: int, points: int) -> list[str]:
    sets = [
        word for axis in (*AXES, f"nvlink.latency=0..90 ns:{points}") for word in ("--set", axis)
    ]
    job = ["--npus", "16", "--pp", "2", "--microbatches", "2", "--jobs", str(jobs)]
    files = ["--db", str(folder / f"{name}.sqlite"), "--export", str(folder / f"{name}.csv")]
    return ["sweep", str(SMALL), "-q", *sets, *job, *files]


def kill_at_random(arguments: list[str], chance: random.Random, longest_s: float) -> None:
    """Start a sweep in a group of its own and kill it, workers and all or only itself."""
    process = subprocess.Popen(
        [*STEPSIM, *arguments, "--resume"], start_new_session=True, stdout=subprocess.DEVNULL
    )
    time.sleep(chance.uniform(0.2, longest_s))
    if chance.random() < 0.5:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "jobs", "points"), [(3, 1, 3), (20, 1, 20), (20, 2, 40)])
def test_killed_at_random_moments_nothing_is_lost(
    run: Run, tmp_path: Path, rounds: int, jobs: int, points: int
) -> None:
    began = time.monotonic()
    assert run(*command(tmp_path, "whole", jobs, points))[0] == 0
    longest_s = max(1.5, 2 * (time.monotonic() - began) / rounds)
    killed = command(tmp_path, "killed", jobs, points)
    chance = random.Random(rounds * 100 + jobs)
    for _ in range(rounds):
        kill_at_random(killed, chance, longest_s)
    assert run(*killed, "--resume")[0] == 0
    assert (tmp_path / "killed.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert len((tmp_path / "killed.csv").read_text().splitlines()) == 24 * points + 1
