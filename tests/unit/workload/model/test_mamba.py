"""Mamba-2: parameters, operations, bytes, exchanges and what is kept, counted by hand."""

import pytest
from unit.workload.model.small_layers import (
    PLAN,
    T,
    blocks_of,
    check_operators,
    kept,
    model_of,
    operators_of,
    sent,
)

from stepsim.base.axes import Group
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.workload.model.architecture import ExpertMlp, Layer
from stepsim.workload.model.held import check_plan
from stepsim.workload.model.mamba import Mamba2
from stepsim.workload.model.parts import Exchange
from stepsim.workload.plan import Plan

MAMBA = Mamba2(heads=8, head_dim=16, groups=2, state=32, chunk=16)
LAYER = Layer(attention=MAMBA, mlp=None, norms=1)
MODEL = model_of(LAYER)
INNER, JOINT = 8 * 16, 2 * 2 * 32  # width of x, of B and C
FIRST = 2 * INNER + JOINT + 8


def turned(plan: Plan) -> list[tuple[str, int, int]]:
    """Block, bytes forward and bytes backward of what is sent along cp."""

    def size(exchanges: tuple[Exchange, ...]) -> int:
        return sum(int(each.size_bytes[0]) for each in exchanges if each.group is Group.CP)

    blocks = blocks_of(MODEL, plan)
    return [(block.name, size(block.forward), size(block.backward)) for block in blocks]


def test_parameters_are_those_of_the_class() -> None:
    projections = 64 * (FIRST + INNER)
    convolution = (INNER + JOINT) * (4 + 1)
    assert MAMBA.parameters(64) == projections + convolution + 3 * 8 + INNER
    assert LAYER.parameters(64, MODEL.norm) == MAMBA.parameters(64) + 64


def test_operations_of_a_scan_are_those_of_its_chunks() -> None:
    result = operators_of(MODEL)
    pairs, mixed, states = 2 * 16 * 32 * 2, 2 * 16 * INNER, 2 * 32 * INNER
    scan = result["selective scan"]
    assert scan.flops[1, 0] == T * (2 * (pairs + mixed + 2 * states) + pairs + states)
    products = {
        "selective scan": T * (pairs + mixed + 2 * states),
        "mixer in": 2 * T * 64 * FIRST,
    }
    check_operators(result, products)
    assert result["mixer out"].flops[2, 0] == 2 * T * INNER * 64
    chunk_states, scores = INNER * 32 / 16, 16 * 2
    moved = 6 * INNER + 8 * 32 * 2 + 12 * chunk_states + 8 * scores
    assert scan.bytes_moved[0, 0] == T * moved
    assert result["short convolution"].bytes_moved[0, 0] == 4 * T * (INNER + JOINT)


def test_tp_and_cp_take_their_share_of_heads() -> None:
    whole, split = operators_of(MODEL), operators_of(MODEL, replace(PLAN, tp=2))
    shared = operators_of(MODEL, replace(PLAN, cp=2))
    for name in ("mixer in", "selective scan", "short convolution", "gated norm", "mixer out"):
        assert split[name].flops[0, 0] == whole[name].flops[0, 0] / 2
        assert shared[name].flops[0, 0] == whole[name].flops[0, 0] / 2
        moved = whole[name].bytes_moved[1, 0]
        assert split[name].bytes_moved[1, 0] <= moved
    with pytest.raises(PlanError, match="mamba groups is 2: expected a multiple of tp, 4"):
        check_plan(MODEL, replace(PLAN, tp=4))
    with pytest.raises(PlanError, match="heads of mixers / tp is 4: expected a multiple of cp, 8"):
        check_plan(MODEL, replace(PLAN, tp=2, cp=8))


def test_ranks_of_a_sequence_turn_tokens_against_heads_and_back() -> None:
    tokens = T // 2
    into, back = 2 * tokens * FIRST, 2 * tokens * INNER
    assert turned(replace(PLAN, cp=2)) == [
        ("attention norm", 0, 0),
        ("mixer in", into, 0),
        ("mixer", back, into),
        ("mixer out", 0, back),
    ]
    copied = 2 * (T // 4) * (FIRST + JOINT)  # two groups for four ranks: B and C twice
    assert turned(replace(PLAN, cp=4))[1] == ("mixer in", copied, 0)
    assert turned(PLAN) == [(name, 0, 0) for name, _, _ in turned(replace(PLAN, cp=2))]


def test_a_layer_keeps_no_states() -> None:
    norm = 4 * T * 64
    mixer = 2 * T * (FIRST + INNER + INNER)
    assert kept(MODEL) == 2 * kept(MODEL, replace(PLAN, tp=2)) == norm + mixer


def test_latent_experts_send_and_compute_tokens_of_their_width() -> None:
    mlp = ExpertMlp(experts=8, top_k=2, width=48, latent=16)
    layer = Layer(attention=None, mlp=mlp, norms=1)
    assert mlp.parameters(64) == 8 * 64 + 8 * 3 * 16 * 48 + 2 * 64 * 16
    products = {
        "experts in": 2 * T * 2 * 16 * 2 * 48,
        "latent in": 2 * T * 64 * 16,
        "latent out": 2 * T * 16 * 64,
        "router": 2 * T * 64 * 8,
    }
    check_operators(operators_of(model_of(layer)), products)
    plan = replace(PLAN, dp=4, ep=4)
    assert sent(model_of(layer), plan, Group.EP) == [2 * T * 2 * 16] * 2
