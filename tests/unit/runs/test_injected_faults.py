"""A fault put into a simulated job is found again in its log: the cause, and how large it is."""

import random
from pathlib import Path
from typing import Any

import pytest
from helpers import few

from stepsim.base.structs import replace
from stepsim.files.asked import read_inputs
from stepsim.runs.explained import LogExplanation, explained_log
from stepsim.runs.suspects import LogEvidence
from stepsim.step.prepared import prepare

SHARED = {
    "recompute": "none",
    "framework": "megatron-core",
    "dp_overlap": True,
    "zero": 1,
    "microbatch_size": 2,
    "sequence": 4096,
}
JOBS: dict[str, dict[str, Any]] = {
    "llama-3-8b": {"npus": 64, "tp": 1, "pp": 1, "global_batch": 256},
    "mixtral-8x7b": {"npus": 64, "tp": 2, "pp": 2, "ep": 8, "chunks": 1, "global_batch": 512},
}
SIZES = {
    "slow-fabric": (8, 40),
    "slow-gpu": (1.15, 1.8),
    "experts-uneven": (1.3, 2.5),
    "slow-clocks": (1.08, 1.4),
    "host-bound": (3, 12),
}
"""Causes that have a size, and between which bounds a seed draws it."""
SETTINGS: dict[str, dict[str, Any]] = {
    "attention-unfused": {"attention": "unfused"},
    "recompute-full": {"recompute": "full"},
    "microbatch-half": {"microbatch_size": 1},
}
"""Causes that have none; a log holds evidence of them in its memory."""
STEPS = 20


def injected(model: str, name: str, size: float, folder: Path) -> LogExplanation:
    """What is said of the log of a job with a fault, by who knows the job without it."""
    job = SHARED | JOBS[model]
    given = job | SETTINGS.get(name, {})
    if name == "slow-gpu":
        given["slow"] = f"0:{size}"
    elif name == "experts-uneven":
        given["expert_load"] = f"skew:{size:.6g}"
    elif name == "slow-clocks":
        given["compute_scale"] = size
    inputs = read_inputs(model, "hgx-h100", given)
    if name == "slow-fabric":
        rate = inputs.topology.link_classes[-1].bandwidth / size
        inputs = read_inputs(model, "hgx-h100", given, numbers={"fabric.bandwidth": rate})
    options = inputs.options
    if name == "host-bound":
        framework = options.framework
        assert framework
        slower = {
            each: round(getattr(framework, each) * size)
            for each in ("host_layer_ps", "host_expert_layer_ps")
        }
        options = replace(options, framework=replace(framework, **slower))
    report = prepare(replace(inputs, options=options)).simulated().report
    path = folder / "train.log"
    memory = max(stage.memory.total_bytes for stage in report.stages if stage.memory)
    path.write_text(log(report.step_time_ps / 1e9, memory))
    return explained_log(path, job, config=model, topology="hgx-h100")


def log(milliseconds: float, memory: int) -> str:
    """Lines of Megatron-LM whose steps spread by 0.4 %, the first of them warming up."""
    draw = random.Random(7)
    lines = [
        f" iteration {n:8}/      50 | consumed samples: {n * 128:12} | elapsed time per iteration "
        f"(ms): {milliseconds * (1 + draw.gauss(0, 0.004)) * (3 if n == 1 else 1):.1f} |"
        for n in range(1, STEPS + 1)
    ]
    told = f"[Rank 0] memory (MB) | allocated: 100.0 | max allocated: {memory / 2**20:.1f} |"
    return "\n".join([*lines[:2], told, *lines[2:]])


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("model", few(JOBS, "llama-3-8b"))
def test_the_size_of_a_fault_is_found_within_a_quarter(
    model: str, name: str, tmp_path: Path
) -> None:
    if name == "experts-uneven" and "ep" not in JOBS[model]:
        pytest.skip("the job has no experts")
    size = random.Random(f"{model} {name}").uniform(*SIZES[name])
    found = {each.name: each for each in injected(model, name, size, tmp_path).suspects}
    assert name in found
    solved, explains = found[name].factor, found[name].explains
    if solved is None:  # not even the largest explains it
        assert explains is not None
        assert explains < 0.9
    else:
        assert (solved - 1) / (size - 1) == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("model", few(JOBS, "llama-3-8b"))
def test_a_setting_that_memory_tells_is_first(model: str, name: str, tmp_path: Path) -> None:
    first = injected(model, name, 1.0, tmp_path).suspects[0]
    assert (first.name, first.evidence) == (name, LogEvidence.FOR)
