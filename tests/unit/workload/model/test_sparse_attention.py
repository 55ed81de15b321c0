"""Attention to what an indexer chooses: counted by hand for a small layer."""

import pytest
from unit.workload.model.small_layers import (
    PLAN,
    T,
    blocks_of,
    check_operators,
    model_of,
    operators_of,
)

from stepsim.base.axes import CollectiveKind, Group
from stepsim.base.errors import PlanError, WorkloadError
from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.workload.model.architecture import DenseMlp, LatentAttention, Layer
from stepsim.workload.model.build import build_workload
from stepsim.workload.model.choices import AttentionKernel, RecomputeModule
from stepsim.workload.model.held import check_plan, layer_bytes
from stepsim.workload.model.indexer import Indexer
from stepsim.workload.model.model import Model
from stepsim.workload.model.sparse_attention import SparseLatentAttention
from stepsim.workload.plan import PlanTable

LATENT = LatentAttention(
    heads=8, query_rank=48, kv_rank=32, nope_dim=16, rope_dim=8, value_dim=20
)  # fmt: skip
INDEXER = Indexer(heads=4, dim=12, top_k=16)
SPARSE = SparseLatentAttention(heads=8, latent=LATENT, indexer=INDEXER)
LAYER = Layer(attention=SPARSE, mlp=DenseMlp(width=256))
MODEL = model_of(LAYER)
READ = 16 - 16 * 16 / (2 * 64)  # keys that a token of PLAN reads on average


def test_the_indexer_adds_three_products_and_a_norm() -> None:
    indexer = 48 * 4 * 12 + 64 * 12 + 2 * 12 + 64 * 4
    assert SPARSE.parameters(64) == LATENT.parameters(64) + indexer
    with pytest.raises(WorkloadError, match="top_k is 0: expected a whole number of at least 1"):
        replace(INDEXER, top_k=0)


def test_a_token_reads_the_chosen_keys_or_all_before_it() -> None:
    columns = PlanTable([PLAN, replace(PLAN, sequence=8)])
    item = [sum(min(i, 16) for i in range(64)) / 64, sum(range(8)) / 8]
    assert INDEXER.read(columns).tolist() == pytest.approx(item, abs=0.5)
    assert INDEXER.read(columns).tolist() == [READ, 4]


def test_operations_of_indexer_and_attention() -> None:
    result = operators_of(MODEL)
    key, width = 32 + 8, 4 * 12
    forward = 2 * T * READ * 8 * (key + 32)
    products = {
        "core attention": forward,
        "index scores": 2 * T * 32 * width,
        "index target": 2 * T * READ * 8 * key,
        "queries to latent": 2 * T * 8 * 16 * 32,
        "values from latent": 2 * T * 8 * 32 * 20,
        "attention out": 2 * T * 8 * 20 * 64,
    }
    check_operators(result, products)
    assert result["core attention"].flops[1, 0] == 2.5 * forward
    scores = result["index scores"]
    assert scores.flops[1, 0] == 3 * 2 * T * READ * width
    assert scores.bytes_moved[0, 0] == 4 * T * 32
    for name, inner, outer in (
        ("index queries", 48, width),
        ("index keys", 64, 12),
        ("index weights", 64, 4),
    ):
        assert result[name].flops[0, 0] == 2 * T * inner * outer
        assert result[name].flops[2, 0] == 2 * T * inner * outer
        assert result[name].flops[1, 0] == 0


def test_tp_splits_heads_of_attention_and_not_the_indexer() -> None:
    whole, split = operators_of(MODEL), operators_of(MODEL, replace(PLAN, tp=2))
    for name in ("core attention", "queries up", "queries to latent", "index target"):
        assert split[name].flops[0, 0] == whole[name].flops[0, 0] / 2
    for name in ("index queries", "index keys", "index scores"):
        assert split[name].flops[0, 0] == whole[name].flops[0, 0]
    with pytest.raises(PlanError, match="heads is 8: expected a multiple of tp, 16"):
        check_plan(MODEL, replace(PLAN, tp=16))
    with pytest.raises(PlanError, match="attention is unfused"):
        check_plan(MODEL, replace(PLAN, attention=AttentionKernel.UNFUSED))


def test_ranks_of_a_sequence_gather_keys_and_ranks_of_heads_sum_the_target() -> None:
    plan = replace(PLAN, tp=2, cp=2)
    blocks = {item.name: item for item in blocks_of(MODEL, plan)}
    tokens = T // 2
    keys = 2 * tokens * 2 * (32 + 8 + 12)
    sent = [
        (item.kind, item.group, float(item.size_bytes[0]))
        for item in (
            *blocks["mixer in"].forward,
            *blocks["mixer"].forward,
            *blocks["mixer"].backward,
        )
    ]
    assert sent == [
        (CollectiveKind.ALL_GATHER, Group.CP, keys),
        (CollectiveKind.ALL_REDUCE, Group.TP, 4 * tokens * READ),
        (CollectiveKind.REDUCE_SCATTER, Group.CP, keys),
    ]


def test_a_layer_keeps_queries_on_both_widths_and_what_the_indexer_learns_from() -> None:
    framework = read_framework("megatron-core")
    modules = (RecomputeModule.UP_PROJECTION,)
    columns = PlanTable([PLAN, replace(PLAN, recompute_modules=modules)])
    attention_alone = Layer(attention=SPARSE, mlp=None, norms=0)
    (kept, less), _ = layer_bytes(attention_alone, MODEL, columns, framework)
    heads = 8 * (24 + 40 + 32) + 8 * 20
    indexer = 4 * 12 + 12 + 4
    assert kept == 2 * T * (heads + 40 + indexer) + 4 * T * (48 + 32) + 12 * T * READ
    assert kept - less == 2 * T * 8 * (24 + 40)


def test_the_model_needs_no_gradient_that_does_not_go_on_and_the_assumption_is_said() -> None:
    model = Model(source="small", architecture=MODEL)
    result = build_workload(model, PLAN, read_device("h100"), read_framework("megatron-core"))
    assert result.effort is not None
    assert result.effort.model_flops < result.effort.hardware_flops
    assert [note for note in result.warnings if "no time of sparse latent attention" in note]
    assert [note for note in result.warnings if "the error of the step is unknown" in note]
    assert result.effort.band is None
