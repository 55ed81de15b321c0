"""Reading a workload: `pytest benchmarks`."""

from typing import Any

from gpt import GPT

import stepsim


def test_parse(benchmark: Any) -> None:
    workload = benchmark(stepsim.load_workload, GPT)
    assert len(workload.microbatches) == 16
    assert sum(1 for block in workload.microbatches for _ in block.rows()) == 544
