"""Bytes of every exchange of a layer, counted by hand where tp, cp, ep and etp are above 1.

A rank of `tokens` t, of which s with sequence parallelism are its own, hidden 128, 2 bytes an
element. Each count stands with its factors, so that one of them that is left out is seen.
"""

from typing import Any

import pytest

from stepsim.base.axes import CollectiveKind, Group
from stepsim.files.accelerators import read_device, read_framework
from stepsim.workload.model.architecture import (
    Architecture,
    Attention,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    Layer,
)
from stepsim.workload.model.blocks import embedding_block, head_blocks, layer_blocks
from stepsim.workload.model.build import build_workload
from stepsim.workload.model.choices import ContextParallelKind
from stepsim.workload.model.model import Model
from stepsim.workload.model.parts import Block, Exchange
from stepsim.workload.plan import Plan, PlanTable
from stepsim.workload.rows import Workload

MESSAGE = CollectiveKind.SEND_RECV
GATHER, SCATTER, SUM, TURN = (
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_TO_ALL,
)
GQA = GroupedAttention(heads=8, kv_heads=4, head_dim=16)
MLA = LatentAttention(
    heads=8, query_rank=32, kv_rank=32, nope_dim=16, rope_dim=8, value_dim=16
)  # fmt: skip
DENSE, EXPERTS = DenseMlp(width=256), ExpertMlp(experts=8, top_k=2, width=64)
PLAIN = Layer(attention=GQA, mlp=DENSE)
SHARED = ExpertMlp(experts=8, top_k=2, width=64, shared_width=64)

Sent = list[tuple[str, CollectiveKind, int]]


def model(layer: Layer) -> Architecture:
    return Architecture(name="small", hidden=128, layers=(layer,) * 4, vocabulary=1000)


def sent(blocks: tuple[Block, ...], group: Group) -> tuple[Sent, Sent]:
    """Block, collective and bytes of every exchange of a group: forward, then backward."""

    def of(block: Block, exchanges: tuple[Exchange, ...]) -> Sent:
        return [
            (block.name, exchange.kind, round(float(exchange.size_bytes[0])))
            for exchange in exchanges
            if exchange.group is group and exchange.size_bytes[0]
        ]

    forward = [each for block in blocks for each in of(block, block.forward)]
    backward = [each for block in blocks for each in of(block, block.backward)]
    return forward, backward


def of_layer(layer: Layer, plan: Plan, group: Group) -> tuple[Sent, Sent]:
    return sent(layer_blocks(layer, model(layer), PlanTable([plan])), group)


def plan(context: str = "ring", **degrees: Any) -> Plan:
    """Two samples of 256 tokens on each of the ranks of cp."""
    size, kind = 2 * degrees.get("dp", 1), ContextParallelKind(context)
    return Plan.of_batch(
        microbatch_size=2, global_batch=size, sequence=256, context=kind, **degrees
    )


@pytest.mark.parametrize("cp", [1, 2, 4])
@pytest.mark.parametrize("tp", [2, 4])
def test_tensor_parallelism_gathers_and_scatters_every_token_of_the_rank(tp: int, cp: int) -> None:
    forward, backward = of_layer(PLAIN, plan(tp=tp, cp=cp), Group.TP)
    size = 2 * (2 * 256 // cp) * 128
    for found, product in ((forward, "attention"), (backward, "qkv")):
        assert found == [
            ("attention norm", GATHER, size),
            (product, SCATTER, size),
            ("mlp norm", GATHER, size),
            ("mlp", SCATTER, size),
        ]


def test_without_sequence_parallelism_products_are_summed() -> None:
    own = plan(tp=2, cp=4, sequence_parallel=False)
    forward, backward = of_layer(PLAIN, own, Group.TP)
    size = 2 * 128 * 128
    assert forward == [("attention", SUM, size), ("mlp", SUM, size)]
    assert backward == [("qkv", SUM, size), ("mlp", SUM, size)]


@pytest.mark.parametrize("context", ["ring", "all_gather"])
@pytest.mark.parametrize(
    ("attention", "tp", "cp", "whole"),
    [
        (GQA, 1, 2, 2 * 256 * 2 * 4 * (16 + 16)),  # 2 bytes, 256 tokens, 2 ranks, 4 heads
        (GQA, 2, 4, 2 * 128 * 4 * 2 * (16 + 16)),  # 4 heads over 2 ranks
        (GQA, 8, 4, 2 * 128 * 4 * 1 * (16 + 16)),  # a head is not split
        (MLA, 2, 4, 2 * 128 * 4 * 4 * (16 + 8 + 16)),  # keys of 16 + 8, values of 16, 8 heads
    ],
)
def test_context_parallelism_gathers_keys_and_values_of_the_sequence(
    context: str, attention: Attention, tp: int, cp: int, whole: int
) -> None:
    layer = Layer(attention=attention, mlp=DENSE)
    forward, backward = of_layer(layer, plan(context, tp=tp, cp=cp), Group.CP)
    if context == "all_gather":
        assert forward == [("qkv", GATHER, whole)]
        assert backward == [("first hop", SCATTER, whole), ("ring", GATHER, whole)]
        return
    if cp == 2:  # what two ranks send each other is an all-gather
        assert forward == [("qkv", GATHER, whole)]
        assert backward == [("hops between", SCATTER, whole), ("ring", GATHER, whole)]
        return
    hop, others = whole // cp, whole // cp * (cp - 2)
    assert forward == [("qkv", MESSAGE, hop), ("first hop", MESSAGE, others)]
    between = [("last hop", MESSAGE, others)] * 2
    assert backward == [("hops between", MESSAGE, hop), *between, ("ring", MESSAGE, hop)]


@pytest.mark.parametrize(
    ("attention", "tp", "cp", "turned", "back"),
    [
        (GQA, 1, 2, 2 * 256 * (8 * 16 + 4 * 32), 2 * 256 * 8 * 16),
        (GQA, 2, 4, 2 * 128 * (4 * 16 + 2 * 32), 2 * 128 * 4 * 16),
        (MLA, 2, 4, 2 * 128 * (4 * 24 + 4 * 40), 2 * 128 * 4 * 16),
    ],
)
def test_ulysses_turns_heads_against_tokens_and_outputs_back(
    attention: Attention, tp: int, cp: int, turned: int, back: int
) -> None:
    layer = Layer(attention=attention, mlp=DENSE)
    forward, backward = of_layer(layer, plan("all_to_all", tp=tp, cp=cp), Group.CP)
    assert forward == [("qkv", TURN, turned), ("first hop", TURN, back)]
    assert backward == [("first hop", TURN, turned), ("ring", TURN, back)]


@pytest.mark.parametrize("mlp", [EXPERTS, SHARED])
@pytest.mark.parametrize(
    ("degrees", "tokens", "etp"),
    [
        ({"tp": 2, "cp": 2, "dp": 4, "ep": 4, "expert_tp": 2}, 2 * 256 // 2 // 2, 2),
        ({"tp": 4, "cp": 2, "dp": 2, "ep": 2, "expert_tp": 4}, 2 * 256 // 2 // 4, 4),
        ({"tp": 4, "dp": 2, "ep": 8, "expert_tp": 1}, 2 * 256 // 4, 1),
    ],
)
def test_experts_exchange_two_bytes_of_every_choice(
    mlp: ExpertMlp, degrees: dict[str, Any], tokens: int, etp: int
) -> None:
    layer, own = Layer(attention=None, mlp=mlp), plan(**degrees)
    size = 2 * tokens * 2 * 128  # bytes, tokens, experts of each, hidden
    names = [("router", "experts"), ("experts", "combination")]
    for found, (first, second) in zip(of_layer(layer, own, Group.EP), names, strict=True):
        assert found == [(first, TURN, size), (second, TURN, size)]
    forward, backward = of_layer(layer, own, Group.ETP)
    if etp == 1:
        assert (forward, backward) == ([], [])
        return
    assert forward == [("router", GATHER, size * etp), ("experts", SCATTER, size * etp)]
    assert backward == [("experts", SCATTER, size * etp), ("combination", GATHER, size * etp)]


def test_shared_experts_are_split_like_a_dense_layer() -> None:
    own = plan(tp=2, cp=2, dp=4, ep=4, expert_tp=2)
    size = 2 * 256 * 128
    for found in of_layer(Layer(attention=None, mlp=SHARED), own, Group.TP):
        assert found == [("shared experts", GATHER, size), ("shared experts", SCATTER, size)]
    for found in of_layer(Layer(attention=None, mlp=EXPERTS), own, Group.TP):
        assert found == []


def test_embedding_and_head_exchange_every_token() -> None:
    small = model(PLAIN)
    columns, size = PlanTable([plan(tp=2, cp=4)]), 2 * 128 * 128
    forward, backward = sent((embedding_block(small, columns),), Group.TP)
    assert (forward, backward) == (
        [("embedding", SCATTER, size)],
        [("embedding", GATHER, size)],
    )
    forward, backward = sent(head_blocks(small, columns, fused_loss=True), Group.TP)
    assert forward == [("final norm", GATHER, size)]
    assert backward == [("final norm", GATHER, size), ("head", SCATTER, size)]


@pytest.mark.parametrize("group", [Group.TP, Group.CP, Group.EP])
def test_a_rank_alone_exchanges_nothing(group: Group) -> None:
    assert of_layer(Layer(attention=GQA, mlp=EXPERTS), plan(), group) == ([], [])


def built(own: Plan) -> Workload:
    dense = Model(source="small", architecture=model(PLAIN))
    return build_workload(dense, own, read_device("h100"), read_framework("megatron-core"))


@pytest.mark.parametrize("cp", [1, 2, 4])
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_stages_send_the_tokens_of_a_rank(tp: int, cp: int) -> None:
    assert built(plan(tp=tp, cp=cp, pp=2)).pp_comm_bytes == 2 * (2 * 256 // cp) * 128 // tp


@pytest.mark.parametrize(
    ("zero", "ends"),
    [
        (0, {"gradients": SUM}),
        (1, {"gradients": SCATTER, "parameters": GATHER}),
        (2, {}),  # layer by layer
        (3, {}),
    ],
)
def test_parameters_are_exchanged_once_a_step_below_zero_2(
    zero: int, ends: dict[str, CollectiveKind]
) -> None:
    items = built(plan(tp=2, cp=2, dp=4, zero=zero)).per_parameter
    own = {each.name: each.kind for each in items if each.kind and not each.experts}
    assert own == ends


def test_every_exchange_of_an_embedding_is_waited_for() -> None:
    block = built(plan(tp=2, cp=4)).microbatches[0]
    lags = [(row.forward_lag, row.backward_lag) for row in block.embedding]
    assert lags == [(0, 0)] * len(block.embedding)
