"""Reading a workload: `pytest benchmarks`."""

from typing import Any

from shapes import GPT

import stepsim


def test_parse(benchmark: Any) -> None:
    workload = benchmark(stepsim.load_workload, GPT)
    assert len(workload.microbatches) == 16
    assert sum(len(block.rows()) for block in workload.microbatches) == 656
