"""Host time of layers: calls outside CUDA graphs; and what adapters and recomputed parts take."""

import numpy as np
import pytest

from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.load import read_model
from stepsim.workload.model.choices import (
    ExpertDispatch,
    GraphScope,
    Precision,
    Recompute,
    RecomputeModule,
)
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.parts import NO_NETWORK, Interconnect
from stepsim.workload.model.pricing import TimedModel
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan, PlanTable

MCORE = read_framework("megatron-core")
EXPERTS = Plan.of_batch(dp=8, ep=8, global_batch=8, precision=Precision.MXFP8)
PARTS = (GraphScope.ATTENTION, GraphScope.MAMBA, GraphScope.ROUTER, GraphScope.PREPROCESS)


def timed(
    name: str, plan: Plan, framework: Framework = MCORE, network: Interconnect = NO_NETWORK
) -> TimedModel:
    """A public model under a plan on B200."""
    return TimedModel(
        architecture=read_model(name).architecture,
        device=read_device("b200"),
        framework=framework,
        interconnect=network,
        columns=PlanTable([plan]),
    )


def host(name: str, plan: Plan, framework: Framework = MCORE) -> float:
    """Host time of the first layer of a public model, in ps."""
    model = timed(name, plan, framework)
    return float(model.layer(model.architecture.layers[0]).host_ps[0])


def seconds(name: str, plan: Plan) -> float:
    """A step of a public model on H100."""
    model = StepModel(
        architecture=read_model(name).architecture,
        device=read_device("h100"),
        framework=MCORE,
        interconnect=Interconnect(domain=8, inner=400e9, outer=40e9),
    )
    return float(model.seconds([plan])[0])


def test_layers_that_constants_were_set_on_take_them() -> None:
    assert host("llama-3-8b", Plan()) == pytest.approx(MCORE.host_layer_ps)
    assert host("qwen3-30b-a3b", EXPERTS) == pytest.approx(MCORE.host_expert_layer_ps)


def test_conversions_are_part_of_the_call_of_their_product() -> None:
    bf16, fp8 = (
        host("llama-3-8b", Plan(precision=each)) for each in (Precision.BF16, Precision.FP8)
    )
    assert fp8 == bf16


def test_a_graph_of_a_step_leaves_nothing_and_parts_leave_the_rest() -> None:
    whole = replace(EXPERTS, cuda_graph=True, graph_scopes=())
    parts = replace(whole, graph_scopes=PARTS)
    router = replace(whole, graph_scopes=(GraphScope.ROUTER,))
    times = [host("qwen3-30b-a3b", each) for each in (whole, parts, router, EXPERTS)]
    assert times[0] == 0
    assert times == sorted(times)
    assert len(set(times)) == 4


def test_a_graph_that_nobody_describes_is_that_of_the_framework() -> None:
    unsaid = replace(EXPERTS, cuda_graph=True)
    by_parts = replace(MCORE, graph_scopes=PARTS)
    said = replace(unsaid, graph_scopes=PARTS)
    assert host("qwen3-30b-a3b", unsaid, framework=by_parts) == host("qwen3-30b-a3b", said)
    assert host("qwen3-30b-a3b", unsaid) == 0


def test_a_mixer_of_many_kernels_is_many_calls_until_a_graph_holds_it() -> None:
    mamba = host("nemotron-3-super-120b-a12b", EXPERTS)
    held = replace(EXPERTS, cuda_graph=True, graph_scopes=(GraphScope.MAMBA,))
    assert mamba > MCORE.host_layer_ps
    assert host("nemotron-3-super-120b-a12b", held) == 0


def test_parts_that_are_recomputed_take_time_again() -> None:
    plan = Plan.of_batch(dp=8, ep=8, global_batch=64, cuda_graph=True)
    modules = (RecomputeModule.NORMS, RecomputeModule.ACTIVATION, RecomputeModule.EXPERTS)
    steps = [
        seconds("deepseek-v2-lite", replace(plan, recompute_modules=modules[:n])) for n in range(4)
    ]
    assert steps == sorted(steps)
    assert len(set(steps)) == 4
    up = replace(plan, recompute_modules=(RecomputeModule.UP_PROJECTION,))
    full = replace(plan, recompute=Recompute.FULL)
    assert steps[0] < seconds("deepseek-v2-lite", up) < seconds("deepseek-v2-lite", full)


def waits(plan: Plan, outer: float) -> tuple[float, float, float]:
    """Of a layer with experts: all waits, the calls after the counts, and the dispatch, in us."""
    model = timed("qwen3-30b-a3b", plan, network=Interconnect(domain=8, inner=400e9, outer=outer))
    layer = model.architecture.layers[0]
    part = model.layer(layer)
    late = [block for block in part.blocks if block.after_counts]
    waited = sum(float(each[0]) for each in part.waits_ps)
    ways = [
        each
        for block in part.blocks
        for each in block.forward
        if each.way and each.way.name == "to"
    ]
    times = [float(each.alone_s(model.columns, model.interconnect)[0]) for each in ways]
    called = float(model.called_ps(layer, late)[0])
    return waited / 1e6, called / 1e6, sum(times) * 1e6


@pytest.mark.parametrize("outer", [400e9, 40e9, 4e9])
def test_calls_after_the_counts_hide_behind_the_dispatch_alone(outer: float) -> None:
    plan = Plan.of_batch(dp=16, ep=16, global_batch=64)
    waited, called, dispatch = waits(plan, outer)
    assert waited == pytest.approx(max(called - dispatch, 0.0))


def test_two_microbatches_run_as_one_wait_for_the_map_that_hybridep_gathers() -> None:
    paired = Plan.of_batch(dp=16, ep=16, global_batch=1600, zero=1, expert_overlap=True)
    hybrid = replace(paired, dispatch=ExpertDispatch.HYBRIDEP)
    assert waits(paired, 40e9)[0] < 0.02 * waits(replace(paired, expert_overlap=False), 40e9)[0]
    gathered = 4096 * 128 * 16 * 15 / 16 / 320e9 * 1e6  # a byte for each token and expert
    both = [waits(each, 40e9)[0] for each in (paired, hybrid)]
    assert gathered < both[1] - both[0] < 3 * gathered


def test_adapters_leave_out_gradients_of_weights_and_what_is_done_with_them() -> None:
    plan = Plan.of_batch(dp=8, global_batch=64, sequence=4096, zero=1)
    whole, adapted = (seconds("llama-3-8b", replace(plan, adapters=each)) for each in (False, True))
    assert 0.55 < adapted / whole < 0.75


def test_packed_samples_attend_within_themselves() -> None:
    plan = Plan(sequence=32768)
    steps = [seconds("llama-3-8b", replace(plan, packed=each)) for each in (None, 65536, 4096)]
    assert steps[0] == steps[1] > steps[2]
    assert np.isfinite(steps[2])
