"""What a layer keeps of a microbatch, in bytes counted by hand."""

from typing import Any

import numpy as np
import pytest

from stepsim.base.structs import replace
from stepsim.files.accelerators import read_framework
from stepsim.workload.model.architecture import (
    Architecture,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    Layer,
)
from stepsim.workload.model.choices import Precision, Recompute, RecomputeModule
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.held import layer_bytes
from stepsim.workload.plan import Plan, PlanTable

MEGATRON = read_framework("megatron-core")
NANOTRON = read_framework("nanotron")
LATENT = LatentAttention(
    heads=16, query_rank=None, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128
)
EXPERTS = ExpertMlp(experts=8, top_k=2, width=1024, shared_width=512)
LAYER = Layer(attention=LATENT, mlp=EXPERTS)
PLAN = Plan.of_batch(tp=2, dp=4, global_batch=4, sequence=1024)
LOW = replace(PLAN, precision=Precision.FP8)
TOKENS = 1024


def _kept(layer: Layer, plan: Plan = PLAN, framework: Framework = MEGATRON) -> float:
    """Bytes that one layer of width 2048 keeps."""
    model = Architecture(name="one", hidden=2048, layers=(layer,), vocabulary=1000)
    return float(layer_bytes(layer, model, PlanTable([plan]), framework)[0][0])


def _working(layer: Layer, plan: Plan) -> float:
    """Bytes of that layer while it is recomputed."""
    model = Architecture(name="one", hidden=2048, layers=(layer,), vocabulary=1000)
    return float(layer_bytes(layer, model, PlanTable([plan]), MEGATRON)[1][0])


def _dropped(layer: Layer, module: RecomputeModule, plan: Plan = PLAN) -> float:
    """Bytes that recomputing a module saves, which are those that work on it takes."""
    chosen = replace(plan, recompute_modules=(module,))
    saved = _kept(layer, plan) - _kept(layer, chosen)
    assert _working(layer, chosen) == saved
    return saved


def test_plain_operators_keep_a_product_more_and_copies_of_heads() -> None:
    """A layer of nanotron by hand: tp 2 shares everything out.

    Two norms keep 4 bytes of input and output; attention the buffer of queries, keys and values
    (6), the pair of keys and values again (4) and its result (2); the MLP gate and input (4), the
    activation (2) and the product (2).
    """
    layer = Layer(
        attention=GroupedAttention(heads=16, kv_heads=16, head_dim=128), mlp=DenseMlp(width=8192)
    )
    assert _kept(layer, framework=NANOTRON) == TOKENS / 2 * (8 * 2048 + 12 * 2048 + 8 * 8192)
    assert _kept(layer) == TOKENS / 2 * (8 * 2048 + 8 * 2048 + 6 * 8192)


def test_fewer_heads_of_keys_are_not_copied() -> None:
    attention = GroupedAttention(heads=16, kv_heads=4, head_dim=128)
    layer = Layer(attention=attention, mlp=DenseMlp(width=8192))
    assert _kept(layer, framework=NANOTRON) - _kept(layer) == TOKENS / 2 * 2 * 8192


def test_recomputed_norms_drop_what_products_keep_of_them() -> None:
    assert _dropped(LAYER, RecomputeModule.NORMS) == 2 * 2 * TOKENS / 2 * 2048
    assert _dropped(LAYER, RecomputeModule.NORMS, LOW) == 0


def test_recomputed_activations_drop_the_input_of_the_second_product() -> None:
    tokens = TOKENS / 2 * 2 * PLAN.expert_degree
    assert _dropped(LAYER, RecomputeModule.ACTIVATION) == 2 * tokens * 1024 / PLAN.expert_degree
    assert (
        _dropped(Layer(attention=LATENT, mlp=DenseMlp(width=512)), RecomputeModule.ACTIVATION) == 0
    )


def test_a_recomputed_up_projection_drops_queries_keys_and_values() -> None:
    assert _dropped(LAYER, RecomputeModule.UP_PROJECTION) == 2 * TOKENS * 8 * (192 + 192 + 128)
    grouped = replace(LAYER, attention=GroupedAttention(heads=16, kv_heads=4, head_dim=128))
    assert _dropped(grouped, RecomputeModule.UP_PROJECTION) == 0


def test_recomputed_mlps_and_experts_drop_all_that_they_keep() -> None:
    dense, sparse = (Layer(attention=LATENT, mlp=mlp) for mlp in (DenseMlp(width=512), EXPERTS))
    nothing = replace(dense, mlp=None)
    assert _kept(dense) - _kept(nothing) == _dropped(dense, RecomputeModule.MLP)
    assert _kept(sparse) - _kept(nothing) == _dropped(sparse, RecomputeModule.EXPERTS)
    assert _dropped(sparse, RecomputeModule.MLP) == _dropped(dense, RecomputeModule.EXPERTS) == 0


def test_activations_of_experts_are_part_of_what_recomputed_experts_drop() -> None:
    both = replace(PLAN, recompute_modules=(RecomputeModule.ACTIVATION, RecomputeModule.EXPERTS))
    assert _kept(LAYER) - _kept(LAYER, both) == _dropped(LAYER, RecomputeModule.EXPERTS)


@pytest.mark.parametrize("module", list(RecomputeModule))
def test_whole_layers_that_are_recomputed_have_nothing_left_to_drop(
    module: RecomputeModule,
) -> None:
    full = replace(PLAN, recompute=Recompute.FULL)
    chosen = replace(full, recompute_modules=(module,))
    assert _kept(LAYER, chosen) == _kept(LAYER, full) == np.float64(2 * TOKENS / 2 * 2048)
    assert _working(LAYER, chosen) == _working(LAYER, full) == _kept(LAYER)


def _saved(layer: Layer, plan: Plan, **fields: Any) -> float:
    """Bytes that a layer keeps fewer where the framework has other fields."""
    return _kept(layer, plan) - _kept(layer, plan, replace(MEGATRON, **fields))


def test_outputs_of_experts_are_kept_where_weights_multiply_them() -> None:
    """Two experts a token: 2 bytes of each element that they make."""
    assert _saved(LAYER, PLAN, weighs_inside=False) == -2 * 2 * TOKENS * 2048


def test_inputs_of_experts_activations_may_be_kept_in_a_byte() -> None:
    """Two inputs of two routed experts of a token, and of the shared one: a byte each is saved."""
    assert _saved(LAYER, LOW, gate_bytes=1.0) == 2 * TOKENS * (2 * 1024 / 2 + 512 / 2)
    assert _saved(LAYER, PLAN, gate_bytes=1.0) == 0
    assert _saved(Layer(attention=LATENT, mlp=DenseMlp(width=8192)), LOW, gate_bytes=1.0) == 0


@pytest.mark.parametrize(
    "attention", [LATENT, GroupedAttention(heads=16, kv_heads=4, head_dim=128)]
)
def test_results_of_attention_may_be_kept_once(
    attention: LatentAttention | GroupedAttention,
) -> None:
    """2 bytes for attention and one for its product, or 1.5 for both."""
    layer = Layer(attention=attention, mlp=EXPERTS)
    assert _saved(layer, LOW, result_bytes=1.5) == 1.5 * TOKENS * 16 / 2 * 128
    assert _saved(layer, PLAN, result_bytes=1.5) == 0


def test_norms_that_are_recomputed_may_drop_what_was_converted_too() -> None:
    low = replace(LOW, recompute_modules=(RecomputeModule.NORMS,))
    assert _saved(LAYER, low, drops_cast_norms=True) == 2 * TOKENS / 2 * 2048


def test_latent_ranks_are_kept_before_their_norm_and_converted_after() -> None:
    """512 of keys and values: 2 bytes, and one more in 8 bits where 16 take two."""
    small, large = (
        Layer(attention=replace(LATENT, kv_rank=rank), mlp=EXPERTS) for rank in (512, 1024)
    )
    assert _kept(large) - _kept(small) == 4 * TOKENS / 2 * 512
    assert _kept(large, LOW) - _kept(small, LOW) == 3 * TOKENS / 2 * 512
