"""From a workload to a graph, and to programs that can be run."""

from typing import Any

from gpt import GPT, TOPOLOGY, gpt
from jobs import make_batch

import stepsim
from stepsim.engine.fold import every_rank, fold
from stepsim.engine.lay_out import lay_out
from stepsim.files.asked import read_inputs
from stepsim.step.simulate import prepare


def test_graph(benchmark: Any) -> None:
    inputs = read_inputs(GPT, TOPOLOGY, {})
    job = benchmark(prepare, inputs.workload, inputs.topology, inputs.options)
    assert sum(len(program.segments) for program in job.graph.programs) == 1488
    assert len(job.graph.task_lists) == 23


def test_fold(benchmark: Any) -> None:
    job = gpt()
    assert len(benchmark(fold, job.graph, job.prices)) == 16


def test_flatten_every_rank(benchmark: Any) -> None:
    job = gpt()
    actors = every_rank(job.graph, job.prices)
    found = benchmark.pedantic(lay_out, (job.graph, actors, job.prices), rounds=1)
    assert sum(len(laid.after) for laid in found.programs) == 2_454_016


def test_batch_program(benchmark: Any) -> None:
    workload = stepsim.load_workload(GPT)
    assert len(benchmark(make_batch, workload, TOPOLOGY).passes.program) == 1008
