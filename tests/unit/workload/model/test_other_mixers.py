"""Mixers of hybrid models: parameters, operations, bytes sent and bytes kept, counted by hand."""

import pytest
from unit.workload.model import small_layers
from unit.workload.model.small_layers import PLAN, T, check_operators, model_of, operators_of

from stepsim.base.axes import Group
from stepsim.base.errors import PlanError, WorkloadError
from stepsim.base.structs import replace
from stepsim.workload.model.architecture import (
    Architecture,
    Attention,
    DenseMlp,
    GroupedAttention,
    LatentAttention,
    Layer,
)
from stepsim.workload.model.block_sparse import BlockSparseAttention
from stepsim.workload.model.held import check_plan
from stepsim.workload.model.indexer import Indexer
from stepsim.workload.model.kimi_delta import KimiDeltaAttention
from stepsim.workload.model.lightning_attention import LightningAttention
from stepsim.workload.model.mamba import Mamba2
from stepsim.workload.model.mamba1 import Mamba1
from stepsim.workload.model.parallel_mixer import ParallelMixer
from stepsim.workload.model.parts import Operator
from stepsim.workload.model.short_convolution import ShortConvolution
from stepsim.workload.model.sparse_attention import SparseLatentAttention
from stepsim.workload.plan import Plan, PlanTable

H = 64
ATTENTION = GroupedAttention(heads=8, kv_heads=2, head_dim=16)
LATENT = LatentAttention(heads=8, query_rank=16, kv_rank=32, nope_dim=16, rope_dim=8, value_dim=16)
CONVOLUTION = ShortConvolution(heads=H, length=3)
LIGHTNING = LightningAttention(heads=8, head_dim=16, block=32)
MAMBA = Mamba1(heads=128, state=16, rank=4, normed=True)
KIMI = KimiDeltaAttention(heads=8, head_dim=16, gate_rank=16)
INDEXER = Indexer(heads=2, dim=16, top_k=32)
BLOCKS = BlockSparseAttention(heads=8, attention=ATTENTION, indexer=INDEXER, block=8)
PARALLEL = ParallelMixer(
    heads=8, attention=ATTENTION, mamba=Mamba2(heads=8, head_dim=16, groups=2, state=32)
)
MIXERS: dict[str, Attention] = {
    "convolution": CONVOLUTION,
    "lightning": LIGHTNING,
    "mamba": MAMBA,
    "kimi": KIMI,
    "blocks": BLOCKS,
    "parallel": PARALLEL,
}


def model(mixer: Attention) -> Architecture:
    return model_of(Layer(attention=mixer, mlp=None, norms=1))


def operators(mixer: Attention, plan: Plan = PLAN) -> dict[str, Operator]:
    return operators_of(model(mixer), plan)


def sent(mixer: Attention, plan: Plan, group: Group = Group.CP) -> list[int]:
    return small_layers.sent(model(mixer), plan, group)


def kept(mixer: Attention, plan: Plan = PLAN) -> float:
    """Bytes that a layer keeps beside its norm's input and output."""
    return small_layers.kept(model(mixer), plan) - 4 * T * H


def test_parameters_are_those_of_the_classes() -> None:
    assert CONVOLUTION.parameters(H) == 3 * H * H + 3 * H + H * H
    assert LIGHTNING.parameters(H) == 5 * H * 128 + 128
    step = 128 * (4 + 2 * 16) + 128 * 4 + 128
    assert MAMBA.parameters(H) == 3 * H * 128 + 128 * 5 + step + 128 * 17 + (4 + 2 * 16)
    gates = 2 * (H * 16 + 16 * 128)
    assert KIMI.parameters(H) == 4 * H * 128 + H * 8 + gates + 3 * 128 * 4 + 128 + 8 + 16
    index = H * (2 * 16 + 16) + 2 * 16
    assert BLOCKS.parameters(H) == ATTENTION.parameters(H) + index
    assert PARALLEL.parameters(H) == ATTENTION.parameters(H) + PARALLEL.mamba.parameters(H)


def test_operations_and_bytes_are_counted_by_hand() -> None:
    gated = {"gated convolution": (T * H * 2 * 4, T * H * 2 * 7)}
    check_operators(operators(CONVOLUTION), {}, gated)
    lightning = {
        "lightning attention": T * 8 * (4 * 32 * 16 + 4 * 16 * 16),
        "mixer in": 2 * T * H * 4 * 128,
    }
    check_operators(operators(LIGHTNING), lightning)
    made = operators(MAMBA)
    check_operators(made, {"time step, B and C": 2 * T * 128 * (4 + 2 * 16)})
    assert made["selective scan"].bytes_moved[0, 0] == T * (8 * 128 + 2 * 36)
    kimi = {
        "kimi delta rule": T * 8 * (10 * 64 * 16 + 6 * 16 * 16),
        "gates up": 2 * T * 16 * 2 * 128,
    }
    check_operators(operators(KIMI), kimi)


def test_attention_reads_the_blocks_that_were_chosen() -> None:
    made = operators(BLOCKS)
    read = 32 - 32 * 32 / (2 * 64)  # of 64 tokens 32 are read, fewer at the beginning
    core = 2 * T * read * 8 * 32
    check_operators(made, {"core attention": core, "index scores": 2 * T * 32 * 2 * 16})
    assert made["index scores"].flops[1, 0] == 0
    assert made["index queries and keys"].flops[2, 0] == 0


def test_bytes_kept_are_counted_by_hand() -> None:
    assert kept(CONVOLUTION) == T * H * (3 * 2 + 2 + 2)
    assert kept(LIGHTNING) == T * 128 * (4 * 2 + 3 * 2 + 2 + 2)
    assert kept(MAMBA) == T * 128 * (5 * 2 + 2) + T * 36 * 4
    heads = 8 * (2 * 64 + 4)
    assert kept(KIMI) == T * (128 * (9 * 2 + 4 + 2) + 2 * 2 * 16 + heads)
    assert kept(BLOCKS) == T * (2 * (128 + 64) + 4 * 128 + 4 * 2 * 4)
    mamba = PARALLEL.mamba.held(PlanTable([PLAN]), PlanTable([PLAN]).element_bytes).kept
    assert kept(PARALLEL) == float(mamba[0]) + T * (2 * (128 + 64) + 4 * 128)


@pytest.mark.parametrize("name", MIXERS)
def test_tp_takes_its_share(name: str) -> None:
    mixer = MIXERS[name]
    whole, split = operators(mixer), operators(mixer, replace(PLAN, tp=2))
    indexed = ("index scores", "index queries and keys")
    for key, item in whole.items():
        if item.flops[0, 0] and key not in indexed and key != "gates down":
            assert split[key].flops[0, 0] == pytest.approx(item.flops[0, 0] / 2), key
    assert kept(mixer, replace(PLAN, tp=2)) < kept(mixer)
    with pytest.raises(PlanError, match="expected a multiple of tp, 3"):
        check_plan(model(mixer), replace(PLAN, tp=3))


def test_ranks_of_a_sequence_turn_tokens_or_gather_keys() -> None:
    shared = replace(PLAN, cp=2)
    own = T // 2
    assert sent(CONVOLUTION, shared) == [2 * own * 3 * H, 2 * own * H]
    assert sent(LIGHTNING, shared) == [2 * own * 4 * 128, 2 * own * 128]
    assert sent(KIMI, shared) == [2 * own * (5 * 128 + 8), 2 * own * 128]
    assert sent(BLOCKS, shared) == [2 * T * (2 * 32 + 16)]
    assert sent(PARALLEL, shared)[0] == 2 * T * 2 * 32
    assert 2 * T * 36 in sent(MAMBA, replace(PLAN, tp=2), Group.TP)


def test_what_is_turned_is_read_and_written_on_both_sides() -> None:
    """Before and after its exchange, as heads of attention are: four times what is sent."""
    shared = replace(PLAN, cp=2)
    for mixer in (CONVOLUTION, LIGHTNING, KIMI):
        moved = operators(mixer, shared)["layouts of heads"].bytes_moved[0, 0]
        assert moved == 4 * sum(sent(mixer, shared))


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(WorkloadError, match="is 0: expected a whole number of at least 1"):
        Mamba1(heads=8, state=0, rank=1)


def grown(more: Attention, mixer: Attention, name: str) -> float:
    """Operations of a forward that a mixer has more than another."""
    return float(operators(more)[name].flops[0, 0] - operators(mixer)[name].flops[0, 0])


def test_gates_of_heads_are_a_number_of_each() -> None:
    gated = replace(ATTENTION, head_gates=True)
    assert gated.parameters(H) - ATTENTION.parameters(H) == 8 * H
    assert grown(gated, ATTENTION, "qkv") == 2 * T * H * 8
    latent = replace(LATENT, query_rank=None, head_gates=True)
    assert latent.parameters(H) - replace(latent, head_gates=False).parameters(H) == 8 * H
    check_operators(operators(latent), {"gates of heads": 2 * T * H * 8})


def test_borrowed_keys_are_neither_made_nor_kept() -> None:
    borrowed = replace(ATTENTION, borrows=True)
    assert ATTENTION.parameters(H) - borrowed.parameters(H) == H * 2 * 32
    assert grown(ATTENTION, borrowed, "qkv") == 2 * T * H * 2 * 32
    assert grown(ATTENTION, borrowed, "core attention") == 0
    assert kept(ATTENTION) - kept(borrowed) == 2 * T * 2 * 32


def test_narrow_queries_are_two_products() -> None:
    narrow = replace(ATTENTION, query_rank=16)
    assert narrow.parameters(H) == 16 * (H + 128 + 1) + H * 64 + 128 * H
    products = {
        "queries down": 2 * T * H * 16,
        "queries up": 2 * T * 16 * 128,
        "kv": 2 * T * H * 64,
    }
    check_operators(operators(narrow), products)


def test_a_layer_that_does_not_choose_has_no_indexer() -> None:
    chooses = SparseLatentAttention(heads=8, latent=LATENT, indexer=INDEXER)
    reads = replace(chooses, chooses=False)
    assert reads.parameters(H) == LATENT.parameters(H)
    assert chooses.parameters(H) - reads.parameters(H) == 16 * 32 + H * 18 + 2 * 16
    assert not [name for name in operators(reads) if "index" in name]
    assert kept(reads) < kept(chooses)


def test_inputs_of_layers_are_counted() -> None:
    plain = Layer(attention=ATTENTION, mlp=DenseMlp(width=128))
    own = replace(plain, input_width=16, norms=3)
    simple, architecture = model_of(plain), replace(model_of(own), input_vocabulary=500)
    more = architecture.parameters() - simple.parameters()
    assert more == 4 * (2 * H * 16 + H) + 4 * 16 * (500 + H) + 16
    product = 2 * T * H * 16
    check_operators(
        operators_of(architecture), {"gate of the input": product, "input out": product}
    )
    assert small_layers.kept(architecture) - small_layers.kept(simple) == T * 16 * 8 + 4 * T * H
