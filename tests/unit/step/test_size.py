"""The size of a step before it is built: its tasks as the run has them, and what a command says."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import Run

from stepsim.cli import simulate as command
from stepsim.core import timeline
from stepsim.files.asked import read_inputs
from stepsim.network.topology.network import MAX_NPUS
from stepsim.step import prepared
from stepsim.step.job import job_of
from stepsim.step.size import StepSize, size_of as size_of_job

HALF = {"npus": 16, "pp": 2, "chunks": 1, "microbatch_size": 1}
CASES: list[tuple[str, dict[str, object], float]] = [
    ("gpt_tp4.txt", {"microbatches": 40}, 0.03),
    ("gpt_tp4.txt", {"microbatches": 7, "schedule": "gpipe"}, 0.1),
    ("moe_128.txt", {"microbatches": 24, "schedule": "interleaved:4"}, 0.03),
    ("moe_128.txt", {"microbatches": 24, "schedule": "zb-h1"}, 0.2),
    ("moe_128.txt", {"microbatches": 4, "contention": "fair"}, 0.5),
    ("llama-3.2-1b", {"npus": 16, "pp": 2, "microbatches": 8, "chunks": 1}, 0.15),
    ("llama-3.2-1b", {**HALF, "tp": 2, "contention": "fair"}, 0.5),
]


def size_of(work: str | Path, **asked: Any) -> StepSize:
    job = read_inputs(work, "hgx-h100", asked)
    return size_of_job(job_of(job))


@pytest.mark.parametrize(("work", "asked", "error"), CASES)
def test_tasks_are_those_of_the_run(
    work: str, asked: dict[str, object], error: float, workloads: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    counted: list[int] = []

    def said(_: str, text: str, *values: Any) -> None:
        if "tasks laid out" in text:
            counted.append(values[0])

    monkeypatch.setattr(timeline, "said", said)
    path = workloads / work
    job = read_inputs(path if path.exists() else work, "hgx-h100", asked)
    prepared.prepare(job).simulated()
    size = size_of_job(job_of(job))
    assert size.tasks == pytest.approx(counted[0], rel=error)


@pytest.mark.parametrize("contention", ["siblings", "fair"])
def test_more_microbatches_never_take_less(contention: str, workloads: Path) -> None:
    path = workloads / "gpt_tp4.txt"
    counts = (1, 10, 1000, 100_000, 1_000_000)
    found = [size_of(path, microbatches=count, contention=contention) for count in counts]
    for fewer, more in itertools.pairwise(found):
        assert more.tasks > fewer.tasks
        assert more.size_bytes > fewer.size_bytes


def test_a_step_beyond_the_machine_is_refused_before_it_is_built(
    run: Run, workloads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("simulate", workloads / "gpt_tp4.txt", "-m", 4, "-q")
    monkeypatch.setattr("os.sysconf", lambda _: 100)
    code, out, err = run(*map(str, words))
    assert (code, out) == (2, "")
    assert err.startswith("error: this step needs about 8 tasks ")
    assert err.endswith("expected fewer microbatches or ranks, or --force\n")
    assert run(*map(str, words), "--force")[0] == 0


@pytest.mark.parametrize("contention", ["siblings", "fair"])
def test_every_npu_takes_memory(contention: str, workloads: Path) -> None:
    """The graph of a larger job is the same: what grows are columns with a line per NPU.

    Each member of the largest group, here a fourth of the NPUs, takes 4,000 bytes besides.
    """
    path = workloads / "gpt_tp4.txt"
    few, many = (size_of(path, npus=npus, contention=contention) for npus in (16, MAX_NPUS))
    assert many.tasks == few.tasks
    of_npu = (many.size_bytes - few.size_bytes) // (MAX_NPUS - 16)
    assert of_npu == (2400 if contention == "fair" else 50 + 4000 // 4)


@pytest.mark.slow
def test_sixteen_million_npus_run_as_a_million_do(run: Run, workloads: Path) -> None:
    """Replicas of more NPUs compute the same: a step is longer only by what gradients take."""
    steps = []
    for npus in (1 << 20, MAX_NPUS):
        job = ("simulate", workloads / "gpt_1024.txt", "--npus", npus, "-q", "--json", "-")
        code, out, err = run(*map(str, job))
        assert code == 0, err
        steps.append(json.loads(out))
    few, many = steps
    assert few["breakdown_ps"]["compute"] == many["breakdown_ps"]["compute"]
    assert few["step_time_ps"] < many["step_time_ps"]


def test_one_group_of_all_npus_takes_more_than_many() -> None:
    """Ranks of a group are priced one by one: 4 million replicas need 17 GB."""
    one, many = (
        size_of(name, npus=MAX_NPUS, microbatch_size=1, tp=tp, pp=pp).size_bytes
        for name, tp, pp in (("gpt2", 1, 1), ("llama-3.1-405b", 8, 16))
    )
    assert one > 15e9
    assert many < 4e9


def test_more_npus_than_the_largest_job_are_refused(run: Run, workloads: Path) -> None:
    code, out, err = run("simulate", str(workloads / "gpt_tp4.txt"), "--npus", str(MAX_NPUS + 16))
    assert (code, out) == (2, "")
    assert err == f"error: npus is {MAX_NPUS + 16}: expected 1 to {MAX_NPUS}\n"


def test_a_long_run_is_told_of_before_it_begins(
    run: Run, workloads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_MANY_TASKS", 0)
    job = ("simulate", workloads / "gpt_tp4.txt", "-m", "2")
    assert "simulating about 4 tasks " in run(*job)[2]
    assert "simulating" not in run(*job, "-q")[2]


def test_a_size_needs_no_schedule_that_fits(workloads: Path) -> None:
    """A schedule that is refused later is refused there, in words of its own."""
    assert size_of(workloads / "gpt_tp4.txt", schedule="dualpipe").tasks > 0
