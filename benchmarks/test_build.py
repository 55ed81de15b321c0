"""From a workload to a graph, and to programs that can be run."""

from typing import Any

from jobs import make_batch
from shapes import GPT, TOPOLOGY

import stepsim
from stepsim.engine.fold import every_rank, fold
from stepsim.engine.lay_out import lay_out
from stepsim.step.simulate import prepare


def test_graph(benchmark: Any) -> None:
    workload = stepsim.load_workload(GPT)
    job = benchmark(prepare, workload, TOPOLOGY)
    assert sum(len(program.segments) for program in job.graph.programs) == 1488
    assert len(job.graph.task_lists) == 23


def test_fold(benchmark: Any) -> None:
    job = prepare(GPT, TOPOLOGY)
    assert len(benchmark(fold, job.graph, job.prices)) == 16


def test_flatten_every_rank(benchmark: Any) -> None:
    job = prepare(GPT, TOPOLOGY)
    actors = every_rank(job.graph, job.prices)
    found = benchmark.pedantic(lay_out, (job.graph, actors, job.prices), rounds=1)
    assert sum(len(laid.after) for laid in found.programs) == 2_454_016


def test_batch_program(benchmark: Any) -> None:
    workload = stepsim.load_workload(GPT)
    assert len(benchmark(make_batch, workload, TOPOLOGY).passes.program) == 1008
