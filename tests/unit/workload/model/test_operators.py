"""Operators' flops and bytes against counts by hand."""

import numpy as np
import pytest
from unit.workload.model.small_layers import PLAN, T, check_operators, model_of, operators_of

from stepsim.base.structs import replace
from stepsim.workload.model.architecture import (
    Activation,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    Layer,
)
from stepsim.workload.model.blocks import embedding_block, head_blocks
from stepsim.workload.model.choices import AttentionKernel, Precision
from stepsim.workload.model.operators import grouped
from stepsim.workload.model.parts import Operator
from stepsim.workload.plan import Plan, PlanTable

GQA = GroupedAttention(heads=8, kv_heads=2, head_dim=16)
DENSE = Layer(attention=GQA, mlp=DenseMlp(width=256))


def operators(layer: Layer = DENSE, plan: Plan = PLAN) -> dict[str, Operator]:
    return operators_of(model_of(layer, hidden=128), plan)


def amounts(operator: Operator) -> tuple[float, ...]:
    """Flops, then bytes, of forward, input gradient and weight gradient."""
    return (*operator.flops[:, 0].tolist(), *operator.bytes_moved[:, 0].tolist())


def test_operators_of_a_dense_layer() -> None:
    found = operators()
    qkv = 2 * T * 128 * (8 + 2 * 2) * 16
    assert amounts(found["qkv"]) == (
        qkv,
        qkv,
        qkv,
        2 * (T * 128 + 128 * 192) + 2 * T * 192,
        2 * (T * 192 + 128 * 192) + 2 * T * 128,
        2 * T * (128 + 192) + 8 * 128 * 192,
    )
    products = {
        "attention out": 2 * T * 128 * 128,
        "mlp in": 2 * T * 128 * 512,
        "mlp out": 2 * T * 256 * 128,
    }
    s, h = T, 128
    layout = 4 * T * (8 + 2) * 16
    moved = {
        "attention norm": (4 * s * h, 16 * s * h),
        "mlp residual": (6 * s * h, 12 * s * h),
        "rotary embedding and layout": (layout, layout),
        "activation": (6 * T * 256, 10 * T * 256),
    }
    check_operators(found, products, moved)


def test_core_attention_is_half_of_the_square_and_two_and_a_half_backward() -> None:
    core = operators()["core attention"]
    forward = 2 * T * 64 * 8 * (16 + 16) / 2
    assert amounts(core)[:3] == (forward, 2.5 * forward, 0)


def test_a_window_limits_the_keys_of_a_token() -> None:
    attention = GroupedAttention(heads=8, kv_heads=2, head_dim=16, window=16)
    core = operators(Layer(attention=attention, mlp=None))["core attention"]
    keys = 16 - 16 * 16 / (2 * 64)  # the first 16 tokens have fewer before them
    assert amounts(core)[0] == 2 * T * keys * 8 * 32


def test_unfused_attention_does_the_whole_square_and_moves_its_scores() -> None:
    found = operators(DENSE, replace(PLAN, attention=AttentionKernel.UNFUSED))
    products = 2 * T * 64 * 8 * 32
    assert amounts(found["scores and context"])[:2] == (products, 2 * products)
    scores = T * 64 * 8
    moved = {
        "softmax": (4 * scores, 6 * scores),
        "attention dropout": (5 * scores, 5 * scores),
    }
    check_operators(found, {"core attention": 0}, moved)


def test_an_activation_without_a_gate_moves_less() -> None:
    layer = Layer(attention=None, mlp=DenseMlp(width=256, activation=Activation.GELU))
    moved = {"activation": (4 * T * 256, 8 * T * 256)}
    check_operators(operators(layer), {"mlp in": 2 * T * 128 * 256}, moved)


def test_tensor_parallelism_shares_products_and_sequence_parallelism_norms() -> None:
    plan = replace(PLAN, tp=4)
    found = operators(DENSE, plan)
    assert amounts(found["qkv"])[0] == 2 * T * 128 * (2 + 2 * 1) * 16  # kv heads are not split
    assert amounts(found["attention norm"])[3] == 4 * T / 4 * 128
    without = replace(plan, sequence_parallel=False)
    assert amounts(operators(DENSE, without)["attention norm"])[3] == 4 * T * 128


def test_latent_attention_goes_through_its_ranks() -> None:
    """Without one of queries, that of keys alone has a norm."""
    attention = LatentAttention(
        heads=8, query_rank=48, kv_rank=32, nope_dim=16, rope_dim=8, value_dim=16
    )
    products = {
        "queries down": 2 * T * 128 * 48,
        "queries up": 2 * T * 48 * 8 * 24,
        "keys down": 2 * T * 128 * (32 + 8),
        "keys up": 2 * T * 32 * 8 * 32,
        "attention out": 2 * T * 8 * 16 * 128,
        "core attention": T * 64 * 8 * (24 + 16),
    }
    ranks, layout = T * (48 + 32), 4 * T * (8 + 8) * 24
    moved = {
        "norms of ranks": (4 * ranks, 16 * ranks),
        "rotary embedding and layout": (layout, layout),
    }
    check_operators(operators(Layer(attention=attention, mlp=None)), products, moved)
    without = Layer(attention=replace(attention, query_rank=None), mlp=None)
    moved = {"norms of ranks": (4 * T * 32, 16 * T * 32)}
    check_operators(operators(without), {"queries": 2 * T * 128 * 8 * 24}, moved)


def test_experts_get_their_tokens_and_read_their_weights() -> None:
    mlp = ExpertMlp(experts=8, top_k=2, width=64, shared_width=96)
    layer = Layer(attention=None, mlp=mlp)
    found = operators(layer, replace(PLAN, dp=4, ep=4))
    into = 2 * T * 2 * 128 * 128
    assert amounts(found["experts in"])[:3] == (into, into, into)
    weights = 2 * 128 * 128  # two local experts
    read, made = 2 * T * 2 * 128, 2 * T * 2 * 128  # T k rows of 128, in and out
    assert amounts(found["experts in"])[3] == 2 * weights + read + made
    assert amounts(found["experts in"])[5] == 8 * weights + read + made
    choice = found["choice of experts"]
    assert (choice.launches[0, 0], choice.launches[1, 0]) == (13, 4)
    # read once, written for two experts, these read and written again
    layout = 2 * T * 128 * (1 + 2 + 4)
    moved = {
        "choice of experts": (12 * T * 8, 12 * T * 8),
        "layout of tokens": (layout, layout),
        "return of tokens": (layout, layout),
    }
    shared = 2 * T * 128 * 192
    check_operators(found, {"router": 2 * T * 128 * 8, "mlp in": shared}, moved)


def test_fp8_converts_inputs_and_gradients_in_four_bytes_an_element() -> None:
    found = operators(DENSE, replace(PLAN, precision=Precision.FP8))
    assert amounts(found["casts of qkv"])[3:5] == (4 * T * 128, 4 * T * 192)
    assert amounts(found["qkv"])[3] == T * 128 + 128 * 192 + 2 * T * 192


def test_embedding_and_head() -> None:
    columns = PlanTable([PLAN])
    model = model_of(DENSE, hidden=128)
    embedding = embedding_block(model, columns).operators[0]
    assert amounts(embedding)[3:5] == (6 * T * 128, 6 * T * 128)
    norm, head = head_blocks(model, columns, fused_loss=True)
    assert amounts(norm.operators[0])[3] == 4 * T * 128
    product, loss = head.operators
    assert amounts(product)[0] == 2 * T * 128 * 1000
    assert amounts(loss)[3:5] == (14 * T * 1000, 8 * T * 1000)
    eager = head_blocks(model, columns, fused_loss=False)[1].operators[1]
    assert amounts(eager)[3:5] == (22 * T * 1000, 12 * T * 1000)


def test_clamps_and_biases_of_experts_by_hand() -> None:
    """32 tokens of two experts each, 64 wide of 128: 2 bytes an element, kernel by kernel."""
    plain = ExpertMlp(experts=8, top_k=2, width=64)
    plan = Plan(sequence=32)
    found = operators(Layer(attention=GQA, mlp=replace(plain, clamped=True, bias=True)), plan)
    moved = {
        "clamps of experts": (16.0 * 64 * 64, 20.0 * 64 * 64),
        "biases of experts": (12.0 * 64 * 128, 16.0 * 64 * 128),
    }
    check_operators(found, {}, moved)
    assert not moved.keys() & operators(Layer(attention=GQA, mlp=plain), plan).keys()


@pytest.mark.parametrize(("precision", "element"), [(Precision.BF16, 2), (Precision.FP8, 1)])
def test_grouped_products_read_operands_and_write_results(
    precision: Precision, element: int
) -> None:
    """4 experts, 100 rows in all, 8 to 24 wide: weights of 768, inputs of 800, results of 2,400."""
    columns = PlanTable([replace(PLAN, precision=precision)])
    found = grouped("product", columns, np.array([100.0]), np.array([4.0]), 8.0, 24.0)
    assert amounts(found) == (
        *(2 * 100 * 8 * 24,) * 3,
        element * (768 + 800) + 2 * 2400,
        element * (768 + 2400) + 2 * 800,
        element * (800 + 2400) + 8 * 768,
    )
