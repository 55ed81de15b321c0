"""From a workload to a graph, and to programs that can be run."""

from itertools import product
from typing import Any

from gpt import GPT, TOPOLOGY, gpt
from jobs import make_batch
from sizes import sized

import stepsim
from stepsim.core.flat import lay_out
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.asked import read_inputs
from stepsim.files.load import read_model, topology_of
from stepsim.network.fold import every_rank, fold
from stepsim.step.model_plan import interconnect_of
from stepsim.step.prepared import prepare
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan


def test_graph(benchmark: Any) -> None:
    inputs = read_inputs(GPT, TOPOLOGY, {})
    job = benchmark(prepare, inputs)
    assert sum(len(program) for program in job.graph.programs) == 1488
    assert len(job.graph.task_lists) == 9


def test_plans_priced_together(benchmark: Any) -> None:
    degrees = sized((1, 2, 4, 8), (1, 2))
    plans = [
        Plan.of_batch(tp=tp, pp=pp, dp=4, global_batch=4 * batch, sequence=8192)
        for tp, pp, batch in product(degrees, degrees, range(8, 73))
    ]
    model = StepModel(
        architecture=read_model("llama-3.1-8b").architecture,
        device=read_device("h100"),
        framework=read_framework("megatron-core"),
        interconnect=interconnect_of(topology_of(TOPOLOGY)),
    )
    assert len(benchmark(model.seconds, plans)) == len(plans)


def test_fold(benchmark: Any) -> None:
    job = gpt()
    assert len(benchmark(fold, job.prices, job.graph.uses)) == 16


def test_flatten_every_rank(benchmark: Any) -> None:
    job = gpt()
    actors = every_rank(job.prices)
    found = benchmark.pedantic(lay_out, (job.graph, actors, job.prices), rounds=1)
    assert sum(len(laid.after) for laid in found[0]) == 2_454_016


def test_batch_program(benchmark: Any) -> None:
    workload = stepsim.load_workload(GPT)
    assert len(benchmark(make_batch, workload, TOPOLOGY).flat) == 1008
