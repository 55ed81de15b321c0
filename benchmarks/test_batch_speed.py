"""The batch evaluator: scenarios of bandwidths and latencies on 1,008 nodes."""

from typing import Any

import numpy as np
import pytest
from gpt import GPT, SMALL, TOPOLOGY
from jobs import make_batch
from sizes import sized

from stepsim.explore.noise.draws import NoiseModel
from stepsim.face import noise, sensitivity

CASES = [(sized(100_000, 100), False), (sized(20_000, 100), True)]


@pytest.mark.parametrize(("scenarios", "parts"), CASES)
def test_batch(benchmark: Any, scenarios: int, parts: bool) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "fabric.bandwidth": rng.uniform(1e10, 1e11, scenarios),
        "nvlink.latency": rng.integers(0, 1_000_000, scenarios),
    }
    batch = make_batch(GPT, TOPOLOGY)
    assert len(batch.passes.program) == 1008
    found = benchmark.pedantic(batch.evaluate, (columns,), {"parts": parts}, rounds=3)
    assert len(found.step_time_ps) == scenarios
    assert batch.evaluate({}).step_time_ps.tolist() == [14_448_297_714_007]


def test_sensitivity(benchmark: Any) -> None:
    found = benchmark(sensitivity, GPT, TOPOLOGY)
    assert len(found.slopes) == 11


def test_noise(benchmark: Any) -> None:
    options = {"model": NoiseModel(task=0.05), "samples": sized(1024, 4)}
    found = benchmark.pedantic(noise, (sized(GPT, SMALL), TOPOLOGY), options, rounds=1)
    assert len(found.step_time_ps) == options["samples"]
