"""The batch evaluator: scenarios of bandwidths and latencies on 1,008 nodes."""

import resource
from typing import Any

import numpy as np
import pytest
from gpt import GPT, SMALL, TOPOLOGY
from jobs import make_batch
from sizes import sized

from stepsim import batches
from stepsim.explore.noise.draws import NoiseModel
from stepsim.face.steps import noise, sensitivity

CASES = [(sized(100_000, 100), False), (sized(20_000, 100), True)]


@pytest.mark.parametrize(("scenarios", "parts"), CASES)
def test_batch(benchmark: Any, scenarios: int, parts: bool) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "fabric.bandwidth": rng.uniform(1e10, 1e11, scenarios),
        "nvlink.latency": rng.integers(0, 1_000_000, scenarios),
    }
    batch = make_batch(GPT, TOPOLOGY)
    assert len(batch.flat) == 1008
    found = benchmark.pedantic(batch.evaluate, (columns,), {"parts": parts}, rounds=3)
    assert len(found.step_time_ps) == scenarios
    assert batch.evaluate({}).step_time_ps.tolist() == [14_448_339_714_007]


def test_sensitivity(benchmark: Any) -> None:
    found = benchmark(sensitivity, GPT, TOPOLOGY)
    assert len(found.slopes) == 11


def test_noise(benchmark: Any) -> None:
    options = {"model": NoiseModel(task=0.05), "samples": sized(1024, 4)}
    found = benchmark.pedantic(noise, (sized(GPT, SMALL), TOPOLOGY), options, rounds=1)
    assert len(found.step_time_ps) == options["samples"]


def test_drawn_batches(benchmark: Any) -> None:
    """Under 20 s and 2 GB: 1,000 steps of 1,024 GPUs whose documents differ, five packers."""
    options: dict[str, Any] = {
        "lengths": "lognormal(mu=6.5, sigma=1, most=8192)",
        "npus": sized(1024, 64),
        "tp": 8,
        "pp": 4,
        "sequence": 8192,
        "microbatches": sized(32, 4),
        "steps": sized(1000, 3),
    }
    found = benchmark.pedantic(batches, ("llama-3-70b", "hgx-h100"), options, rounds=1)
    assert len(found.packed) == 5
    assert all(len(steps.step_time_ps) == options["steps"] for steps in found.packed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    assert peak < 2e9
