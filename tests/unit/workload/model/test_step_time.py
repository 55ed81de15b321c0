"""The closed form of a step: what it adds up, and how fast plans are priced."""

import numpy as np
import pytest

from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.load import topology_of
from stepsim.step.model_plan import interconnect_of
from stepsim.workload.model.architecture import Architecture, DenseMlp, GroupedAttention, Layer
from stepsim.workload.model.choices import Precision, Recompute
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan, PlanTable

LAYER = Layer(
    attention=GroupedAttention(heads=32, kv_heads=8, head_dim=128), mlp=DenseMlp(width=14336)
)
LLAMA = Architecture(name="llama-8b", hidden=4096, layers=(LAYER,) * 32, vocabulary=128256)


def model(device: str = "h100") -> StepModel:
    return StepModel(
        architecture=LLAMA,
        device=read_device(device),
        framework=read_framework("megatron-core"),
        interconnect=interconnect_of(topology_of("hgx-h100")),
    )


PLAN = Plan.of_batch(tp=2, pp=4, dp=4, global_batch=128, sequence=8192)


def test_parts_add_up_and_one_stage_has_no_bubble() -> None:
    table = PlanTable([PLAN, replace(PLAN, pp=1, dp=16, microbatches=8)])
    parts = model().parts(table)
    np.testing.assert_array_equal(model().seconds(table), sum(parts))
    assert parts[1][0] > parts[1][1] == 0


def test_a_pipeline_takes_as_long_as_its_microbatches() -> None:
    once, twice = (replace(PLAN, microbatches=count) for count in (32, 64))
    pipeline, bubble, *_ = model().parts(PlanTable([once, twice]))
    assert pipeline[1] == pytest.approx(2 * pipeline[0])
    assert bubble[1] == bubble[0]


def test_chunks_divide_the_bubble() -> None:
    _, bubble, *_ = model().parts(PlanTable([PLAN, replace(PLAN, chunks=4)]))
    assert bubble[1] < 0.5 * bubble[0]


def test_full_recomputation_costs_a_third_of_the_computation() -> None:
    alone = Plan.of_batch(global_batch=8, sequence=8192)
    plain, again = model().seconds([alone, replace(alone, recompute=Recompute.FULL)])
    assert 1.25 < again / plain < 1.37


def test_plans_of_several_precisions_are_priced_together() -> None:
    plans = [PLAN, replace(PLAN, precision=Precision.FP8)]
    together = model().seconds(plans)
    assert together[1] < together[0]
    assert together[0] == model().seconds(plans[:1])[0]


def test_sums_that_no_product_makes_cost_a_kernel_per_microbatch() -> None:
    """Each weight gradient is read in 2 bytes, its sum read and written in 2 bytes each."""
    steps = model("a100-80gb")
    apart = replace(read_framework("megatron-deepspeed"), host_layer_ps=0)
    fused = replace(apart, fuses_gradient_sums=True)
    plan = Plan.of_batch(tp=2, global_batch=8, sequence=4096, precision=Precision.FP16)
    slow, fast = (replace(steps, framework=each).seconds([plan])[0] for each in (apart, fused))
    a = steps.architecture
    weights = sum(n * _matrices(layer, a.hidden) for layer, n in a.layer_counts().items())
    weights += a.vocabulary * a.hidden
    each = 6 * weights / 2 / steps.device.bytes_per_s * apart.memory_factor
    assert slow - fast == pytest.approx(8 * each, rel=0.01)


def _matrices(layer: Layer, hidden: int) -> int:
    assert isinstance(layer.attention, GroupedAttention)
    assert isinstance(layer.mlp, DenseMlp)
    attention, mlp = layer.attention, layer.mlp
    heads = 2 * attention.heads + 2 * attention.kv_heads
    inputs = 3 if mlp.activation.gated else 2
    return hidden * (heads * attention.head_dim + inputs * mlp.width)


@pytest.mark.parametrize(("dp", "pp", "tp", "more"), [(1, 2, 4, 0), (2, 2, 4, 10), (4, 1, 4, 0)])
def test_ranks_of_tp_hold_up_the_host_where_a_pipeline_leaves_its_node(
    dp: int, pp: int, tp: int, more: float
) -> None:
    steps = replace(model(), framework=read_framework("nanotron"))
    alone = replace(steps, framework=replace(steps.framework, host_tp_ps=0))
    plan = Plan.of_batch(tp=tp, pp=pp, dp=dp, global_batch=16 * dp, sequence=128)
    kinds = len(steps.architecture.layer_kinds())
    slow, fast = (each.part_seconds(PlanTable([plan]))[0, :kinds] * 1e3 for each in (steps, alone))
    assert (slow - fast).tolist() == pytest.approx([more] * kinds)


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_ranks_of_a_context_hold_the_same_parameters(zero: int) -> None:
    """Gradients are reduced, and shards owned, over dp times cp."""
    plain = replace(PLAN, pp=1, dp=8, microbatches=16, zero=zero)
    plans = [plain, replace(plain, dp=2, cp=4, microbatches=64)]
    _, _, exposed, optimizer, _ = model().parts(PlanTable(plans))
    assert optimizer[0] == optimizer[1] > 0
    assert exposed[0] == exposed[1] > 0
