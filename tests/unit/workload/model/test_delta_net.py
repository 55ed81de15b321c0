"""Gated delta net and gated attention: counted by hand for a small layer."""

import pytest
from unit.workload.model import small_layers
from unit.workload.model.small_layers import PLAN, T, check_operators, model_of, operators_of, sent

from stepsim.base.errors import PlanError, WorkloadError
from stepsim.base.structs import replace
from stepsim.workload.model.architecture import Architecture, Attention, GroupedAttention, Layer
from stepsim.workload.model.delta_net import GatedDeltaNet
from stepsim.workload.model.held import check_plan
from stepsim.workload.model.parts import Operator
from stepsim.workload.plan import Plan

NET = GatedDeltaNet(heads=8, key_heads=4, key_dim=16, value_dim=32)
KEYS, VALUES = 4 * 16, 8 * 32
FIRST = 2 * KEYS + 2 * VALUES + 2 * 8


def model(attention: Attention) -> Architecture:
    return model_of(Layer(attention=attention, mlp=None, norms=1))


def operators(attention: Attention, plan: Plan = PLAN) -> dict[str, Operator]:
    return operators_of(model(attention), plan)


def kept(attention: Attention) -> float:
    return small_layers.kept(model(attention))


def test_parameters_are_those_of_the_class() -> None:
    assert NET.parameters(64) == 64 * (FIRST + VALUES) + (2 * KEYS + VALUES) * 4 + 2 * 8 + 32
    with pytest.raises(WorkloadError, match="key_heads is 3: expected a divisor of 8"):
        replace(NET, key_heads=3)


def test_operations_of_the_rule_are_those_of_chunks_of_64_tokens() -> None:
    result = operators(NET)
    c, d, v = 64, 16, 32
    solved, within, state = 2 * c * d + 2 * c * (d + v), 2 * c * (d + v), 6 * d * v
    rule = result["gated delta rule"]
    forward = solved + within + state
    assert rule.flops[1, 0] == T * 8 * (2 * forward + 2 * c * (d + v) + 4 * d * v)
    assert rule.bytes_moved[0, 0] == T * 8 * (14 * d + 12 * v + 4 * d * v / c + 12 * c)
    products = {
        "gated delta rule": T * 8 * forward,
        "mixer in": 2 * T * 64 * FIRST,
        "mixer out": 2 * T * VALUES * 64,
    }
    check_operators(result, products)
    assert result["short convolution"].bytes_moved[0, 0] == 4 * T * (2 * KEYS + VALUES)
    same = operators(replace(NET, key_heads=8, key_dim=8))  # no copies, as wide
    name = "layouts of queries, keys and values"
    copies = 2 * T * (2 * KEYS + 2 * 8 * 16)
    moved = result[name].bytes_moved[0, 0] - same[name].bytes_moved[0, 0]
    assert moved == copies


def test_tp_and_cp_split_heads_of_keys_too() -> None:
    architecture = model(NET)
    split = operators(NET, replace(PLAN, tp=2, cp=2))
    assert split["gated delta rule"].flops[0] == operators(NET)["gated delta rule"].flops[0] / 4
    with pytest.raises(PlanError, match="linear key heads is 4: expected a multiple of tp, 8"):
        check_plan(architecture, replace(PLAN, tp=8))
    with pytest.raises(PlanError, match="heads of mixers / tp is 2: expected a multiple of cp, 4"):
        check_plan(architecture, replace(PLAN, tp=2, cp=4))
    assert sent(architecture, replace(PLAN, cp=2)) == [2 * T / 2 * FIRST, 2 * T / 2 * VALUES]


def test_a_layer_keeps_what_its_kernels_take() -> None:
    norm = 4 * T * 64
    elements = (2 * KEYS + VALUES) + 2 * KEYS + 2 * 8 * 16 + 3 * VALUES + VALUES
    assert kept(NET) == norm + T * (2 * elements + 8 * (2 * 64 + 8))


def test_a_gate_of_attention_is_a_kernel_and_two_tensors_more() -> None:
    plain = GroupedAttention(heads=8, kv_heads=2, head_dim=16)
    gated = replace(plain, gated=True)
    width = 8 * 16
    assert gated.parameters(64) - plain.parameters(64) == 64 * width
    assert kept(gated) - kept(plain) == T * 4 * width
    moved = {"gate of the result": (6 * T * width, 10 * T * width)}
    check_operators(operators(gated), {}, moved)
    assert "gate of the result" not in operators(plain)
