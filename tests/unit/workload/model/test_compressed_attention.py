"""Attention to pooled keys and hyper-connections: counted by hand for a small layer."""

from unit.workload.model.small_layers import (
    PLAN,
    T,
    blocks_of,
    check_operators,
    kept,
    model_of,
    operators_of,
)

from stepsim.base.axes import CollectiveKind, Group
from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.workload.model.architecture import Architecture, DenseMlp, Layer
from stepsim.workload.model.build import build_workload
from stepsim.workload.model.choices import Recompute
from stepsim.workload.model.compressed_attention import CompressedAttention
from stepsim.workload.model.indexer import Indexer
from stepsim.workload.model.model import Model
from stepsim.workload.plan import PlanTable

NEAR = CompressedAttention(
    heads=8, head_dim=16, query_rank=24, output_groups=4, output_rank=12, window=8
)
POOLED = replace(NEAR, ratio=16)
CHOSEN = replace(NEAR, ratio=4, indexer=Indexer(heads=4, dim=6, top_k=8, ratio=4))


def model(attention: CompressedAttention, streams: int = 1) -> Architecture:
    return model_of(Layer(attention=attention, mlp=DenseMlp(width=256), streams=streams))


def test_parameters_are_those_of_the_classes() -> None:
    projections = 64 * 24 + 24 + 24 * 128 + 64 * 16 + 16 + 8
    result = 128 * 12 + 4 * 12 * 64
    assert NEAR.parameters(64) == projections + result
    pooled = 2 * 64 * 16 + 16 * 16 + 16
    assert POOLED.parameters(64) == NEAR.parameters(64) + pooled
    two = 2 * (2 * 64 * 16 + 4 * 16) + 16
    indexer = 2 * (2 * 64 * 6 + 4 * 6) + 6 + 24 * 4 * 6 + 64 * 4
    assert CHOSEN.parameters(64) == NEAR.parameters(64) + two + indexer


def test_a_token_reads_its_window_and_pooled_keys() -> None:
    columns = PlanTable([PLAN])
    near = 8 - 8 * 8 / (2 * 64)
    assert NEAR.read(columns).tolist() == [near]
    assert POOLED.read(columns).tolist() == [near + 64 / 16 / 2]
    assert CHOSEN.read(columns).tolist() == [near + 8 - 8 * 8 / (2 * 16)]  # of 16 pooled keys


def test_operations_of_attention_pooling_and_indexer() -> None:
    result = operators_of(model(CHOSEN))
    products = {
        "core attention": 2 * T * 13.5 * 8 * (16 + 16),
        "pooled keys": 2 * T * 64 * 4 * 16,
        "index scores": 2 * T * 64 / 4 / 2 * 4 * 6,
        "index target": 2 * T * 6 * 8 * 16,
        "index keys": 2 * T * 64 * 4 * 6,
        "result down": 2 * T * 128 * 12,
        "result up": 2 * T * 4 * 12 * 64,
    }
    check_operators(result, products)
    split = operators_of(model(CHOSEN), replace(PLAN, tp=2))
    for name in ("core attention", "result down", "result up", "queries up"):
        assert split[name].flops[0, 0] == result[name].flops[0, 0] / 2
    assert split["index scores"].flops[0, 0] == result["index scores"].flops[0, 0]
    assert "pooled keys" not in operators_of(model(NEAR))


def test_ranks_of_a_sequence_gather_keys_and_pooled_keys() -> None:
    result = model(CHOSEN)
    sent = [
        (item.kind, float(item.size_bytes[0]))
        for block in blocks_of(result, replace(PLAN, cp=2))
        for item in (*block.forward, *block.backward)
        if item.group is Group.CP
    ]
    size = 2 * T / 2 * 2 * (16 + 16 / 4 + 6 / 4)
    assert sent == [(CollectiveKind.ALL_GATHER, size), (CollectiveKind.REDUCE_SCATTER, size)]


def test_a_layer_keeps_queries_keys_and_results() -> None:
    plain = 4 * T * 2 * 64 + 2 * T * 3 * 256  # norms and the MLP
    attention = 2 * T * (4 * 128 + 16) + 2 * T * 48 + 4 * T * 24 + 4 * T * 16
    assert kept(model(NEAR)) == plain + attention
    assert kept(model(POOLED)) == plain + attention + 4 * T * 16
    indexer = T * (2 * (4 * 6 + 4) + 12 * 6)
    assert kept(model(CHOSEN)) == plain + attention + 4 * T * 2 * (16 + 6) + indexer


def test_streams_are_read_and_written_around_each_part() -> None:
    one, four = model(NEAR), model(NEAR, streams=4)
    weights = 4 * 6 * (4 * 64 + 1) + 3
    layer = four.layers[0].parameters(64, four.norm) - one.layers[0].parameters(64, one.norm)
    assert layer == 2 * weights
    assert four.head_parameters - one.head_parameters == 4 * (4 * 64 + 1) + 1
    result = operators_of(four)
    assert result["streams to one"].bytes_moved[0, 0] == 2 * T * 64 * (4 + 1)
    moved = (2 * T * 64 * (2 * 4 + 1), 2 * T * 64 * (3 * 4 + 2))
    streams = {"attention streams": moved, "mlp streams": moved}
    check_operators(result, {"stream weights": 2 * T * 4 * 64 * 24}, streams)
    assert "mlp residual" not in result
    assert kept(four) - kept(one) == 2 * 2 * T * 64 * (4 + 1)
    full = replace(PLAN, recompute=Recompute.FULL)
    assert kept(four, full) == 4 * kept(one, full) == 4 * 2 * T * 64


def test_messages_of_a_pipeline_carry_all_streams_and_the_assumption_is_said() -> None:
    plan = replace(PLAN, pp=2)
    one, four = (
        build_workload(
            Model(source="small", architecture=model(NEAR, streams)),
            plan,
            read_device("h100"),
            read_framework("megatron-core"),
        )
        for streams in (1, 4)
    )
    assert four.pp_comm_bytes == 4 * one.pp_comm_bytes
    assert [note for note in four.warnings if "no time of compressed attention" in note]
