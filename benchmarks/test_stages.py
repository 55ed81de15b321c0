"""Benchmarks of each part of the flow: `pytest benchmarks`. Event counts are asserted."""

from pathlib import Path
from typing import Any

import pytest

import stepsim

GPT = Path(__file__).resolve().parents[1] / "workloads" / "gpt_1024.txt"


def test_read(benchmark: Any) -> None:
    workload = benchmark(stepsim.load_workload, GPT)
    assert len(workload.microbatches) == 16


@pytest.mark.parametrize(("fold", "tasks"), [(True, 1488), (False, 2_454_016)])
def test_simulate(benchmark: Any, fold: bool, tasks: int) -> None:
    workload = stepsim.load_workload(GPT)
    result = benchmark.pedantic(
        stepsim.simulate, (workload, "hgx-h100"), {"fold_ranks": fold}, rounds=1 if not fold else 5
    )
    assert sum(cohort.start.size for cohort in result.timeline.cohorts) == tasks
