"""Memory of a rank against a count by hand and against real schedules."""

import numpy as np
import pytest

from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.workload.model.architecture import (
    Architecture,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    Layer,
)
from stepsim.workload.model.choices import Precision, Recompute
from stepsim.workload.model.held import plan_places
from stepsim.workload.model.memory import RankMemory, rank_memory, rank_parts
from stepsim.workload.plan import Plan

ATTENTION = GroupedAttention(heads=64, kv_heads=8, head_dim=128)
LAYER = Layer(attention=ATTENTION, mlp=DenseMlp(width=28672))
LLAMA = Architecture(name="llama-70b", hidden=8192, layers=(LAYER,) * 12, vocabulary=128256)
EXPERTS = ExpertMlp(experts=8, top_k=2, width=14336)
MOE = Architecture(
    name="moe",
    hidden=8192,
    layers=(Layer(attention=ATTENTION, mlp=EXPERTS),) * 2,
    vocabulary=32000,
)
B200, MEGATRON = read_device("b200"), read_framework("megatron-core")
PLAN = Plan.of_batch(tp=2, dp=4, global_batch=4, sequence=4096)
SHARDED = Plan.of_batch(dp=8, global_batch=8, sequence=4096, zero=3, sequence_parallel=False)
TWO_STAGES = plan_places(Plan(pp=2))


def memory(plan: Plan, architecture: Architecture = LLAMA) -> RankMemory:
    return rank_memory(architecture, B200, MEGATRON, [plan])


def test_a_rank_of_a_dense_model_by_hand() -> None:
    found = memory(PLAN)
    parameters = LLAMA.parameters() / 2
    assert found.weights[0] == 2 * parameters
    assert found.gradients[0] == 4 * parameters
    assert found.optimizer[0] == 12 * parameters / 4
    token = 4 * 2 * 8192 + 2 * (10240 + 8192) + 2 * 3 * 28672  # norms, attention, MLP
    assert found.activations[0] == 12 * 4096 * token / 2
    assert found.logits[0] == 7 * 4096 * 128256 / 2
    assert found.buffers[0] == 2 * 3 * 8192 * 28672 / 2
    assert found.total[0] == found.allocated[0] + B200.reserved_bytes


def test_full_recomputation_keeps_inputs_and_one_layer() -> None:
    full = replace(PLAN, recompute=Recompute.FULL)
    layer = memory(PLAN).activations[0] / 12
    beyond_logits = max(layer - memory(PLAN).logits[0], 0)
    assert memory(full).activations[0] == 12 * 2 * 4096 * 8192 / 2 + beyond_logits
    first = rank_parts(LLAMA, MEGATRON, [replace(full, pp=2)], TWO_STAGES)
    assert first.working[0, 0] == layer


def test_shards_of_parameters_take_sixteen_bytes_each() -> None:
    found = memory(SHARDED)
    states = found.weights[0] + found.gradients[0] + found.optimizer[0]
    assert states == 16 * LLAMA.parameters() / 8


def test_experts_are_held_once_per_group() -> None:
    routed = 2 * EXPERTS.routed_parameters(8192)
    found = memory(Plan.of_batch(dp=8, ep=4, global_batch=8, sequence=4096), MOE)
    dense = MOE.parameters() - routed
    assert found.weights[0] == 2 * (dense + routed / 4)
    assert found.optimizer[0] == 12 * (dense / 8 + routed / 4 / 2)


def test_eight_bit_inputs_of_products_take_half() -> None:
    low = replace(PLAN, precision=Precision.FP8)
    token = 2 * 3 * 8192 + 2 * (10240 + 8192) + 8192 + (2 * 2 + 1) * 28672
    assert memory(low).activations[0] == 12 * 4096 * token / 2
    assert memory(low).weights[0] == 2 * memory(PLAN).weights[0]


@pytest.mark.parametrize(
    ("precision", "whole", "alone"),
    [(Precision.BF16, 2, 2), (Precision.FP8, 4, 2), (Precision.NVFP4, 3, 3)],
)
def test_weights_in_eight_bits_may_be_all_that_ranks_hold(
    precision: Precision, whole: int, alone: int
) -> None:
    plan = replace(PLAN, precision=precision)
    frameworks = [read_framework(name) for name in ("megatron-core", "megatron-bridge")]
    found = [rank_memory(LLAMA, B200, each, [plan]) for each in frameworks]
    each = LLAMA.parameters() / 2
    assert [memory.weights[0] / each for memory in found] == [whole, alone]


def test_experts_keep_their_inputs_converted() -> None:
    plan = Plan.of_batch(dp=8, ep=8, global_batch=8, sequence=4096)
    whole, low = (
        memory(replace(plan, precision=precision), MOE).activations[0] / 2 / 4096
        for precision in (Precision.BF16, Precision.FP8)
    )
    # both norms and both inputs of the experts' products; attention's result is kept twice
    assert whole - low == 2 * 8192 + 2 * (8192 + 14336) - 8192


def test_the_policy_per_operator_keeps_every_second_product() -> None:
    plan = replace(PLAN, recompute=Recompute.OPERATORS)
    kept = 2 * 8192 + 2 * (8192 + 1024 + 8192 + 28672 + 8192)  # input; q, v, attention, gate, down
    whole = 4 * 2 * 8192 + 2 * (10240 + 8192) + 2 * 3 * 28672
    logits = 7 * 4096 * 128256 / 2
    again = max((whole - kept) * 4096 / 2 - logits, 0)
    assert memory(plan).activations[0] == 12 * kept * 4096 / 2 + again


def test_a_layer_is_recomputed_once_the_logits_are_gone() -> None:
    full = Plan.of_batch(pp=2, dp=2, global_batch=4, sequence=4096, recompute=Recompute.FULL)
    words = replace(LLAMA, vocabulary=1 << 20)
    parts = rank_parts(words, MEGATRON, [full], TWO_STAGES)
    first, last = parts.working[0]
    assert first > last == max(first - parts.logits[0, 1, 0], 0)


def test_the_ends_of_a_sharded_model_stay_gathered() -> None:
    layer = LAYER.parameters(8192, LLAMA.norm)
    ends = 2 * 128256 * 8192
    mlp = 3 * 8192 * 28672
    assert memory(SHARDED).buffers[0] == 2 * (mlp + 2 * layer + ends)
    assert memory(SHARDED, replace(LLAMA, tied=True)).buffers[0] == 2 * (mlp + 2 * layer + ends / 2)


def test_deepspeed_takes_norms_in_double_precision_and_keeps_outputs() -> None:
    plan = Plan.of_batch(tp=8, pp=2, dp=4, global_batch=32, sequence=2048, recompute=Recompute.FULL)
    framework = read_framework("megatron-deepspeed")
    plain = replace(framework, norm_bytes=0, bucket_bytes=0, keeps_outputs=False)
    with_them, without = (
        rank_parts(LLAMA, each, [plan], TWO_STAGES) for each in (framework, plain)
    )
    own = without.optimizer[0] / framework.optimizer_bytes
    largest = np.minimum(128256 * 8192 / 8, own)
    assert with_them.buffers[0] - without.buffers[0] == pytest.approx(1e9 + 8 * largest)
    more = with_them.activations[0, :, 0] - without.activations[0, :, 0]
    assert more == pytest.approx([framework.fragmentation * 2 * 2048 * 8192 / 8, 0])


def test_a_split_vocabulary_takes_other_bytes_an_entry_of_the_logits() -> None:
    """DTensor's loss holds four fp32 tensors beside log-softmax, a whole one two; both 2 bytes."""
    framework = read_framework("torch-fsdp-compiled-2024")
    plans = [Plan.of_batch(tp=tp, global_batch=8, sequence=4096, zero=3) for tp in (1, 2)]
    found = rank_memory(LLAMA, read_device("h100"), framework, plans)
    entries = 4096 * 128256
    assert found.logits.tolist() == [(3 * 4 + 2) * entries, (5 * 4 + 2) * entries / 2]


def test_gradients_in_sixteen_bits_wait_to_be_added_up() -> None:
    """nanotron's are all there when a backward ends; a workspace stands beside them."""
    framework = read_framework("nanotron")
    plain = replace(framework, unsummed_bytes=0, workspace_bytes=0)
    with_them, without = (
        rank_memory(LLAMA, read_device("h100"), each, [PLAN]).buffers[0]
        for each in (framework, plain)
    )
    assert with_them - without == 2 * LLAMA.parameters() / 2 + framework.workspace_bytes


def test_shards_of_gradients_take_what_the_framework_reduces_them_in() -> None:
    plan = Plan.of_batch(dp=8, global_batch=8, sequence=4096, zero=3)
    found = rank_memory(LLAMA, B200, read_framework("megatron-bridge"), [plan])
    assert found.gradients[0] == 2 * LLAMA.parameters() / 8


@pytest.mark.parametrize(("layers", "left"), [(0, 12), (5, 7), (12, 0), (20, 0)])
def test_activations_of_offloaded_layers_are_elsewhere(layers: int, left: int) -> None:
    layer = memory(PLAN).activations[0] / 12
    assert memory(replace(PLAN, offload_layers=layers)).activations[0] == pytest.approx(
        left * layer
    )


def test_every_stage_offloads_its_own_layers() -> None:
    plan = Plan.of_batch(pp=2, global_batch=4, sequence=4096)
    some, whole = (
        rank_parts(LLAMA, MEGATRON, [replace(plan, offload_layers=layers)], TWO_STAGES)
        for layers in (3, 0)
    )
    assert some.activations[0, :, 0] == pytest.approx(whole.activations[0, :, 0] / 2)


def test_pipelines_of_fsdp_hold_whole_parameters_and_gradients() -> None:
    """Two bytes of gathered weights and four of gradients a parameter, beside 16 of its shard."""
    plan = Plan.of_batch(pp=2, dp=4, global_batch=8, sequence=4096, zero=3, sequence_parallel=False)
    dropped, kept = (
        rank_parts(LLAMA, MEGATRON, [replace(plan, reshard=reshard)], TWO_STAGES)
        for reshard in (True, False)
    )
    whole = kept.optimizer[0] / 12 * 4
    layer, words = LAYER.parameters(8192, LLAMA.norm), 128256 * 8192
    gathered = 2 * (2 * layer + words)
    assert kept.buffers[0] - dropped.buffers[0] == pytest.approx(6 * whole - gathered)
    once = replace(plan, reshard=False, microbatches=1)
    assert rank_parts(LLAMA, MEGATRON, [once], TWO_STAGES).buffers[0] == pytest.approx(
        kept.buffers[0] - 4 * whole
    )


def test_torch_collects_the_logits_of_a_pipeline() -> None:
    """Of four microbatches three more than the one in work, in 2 bytes an entry."""
    framework = read_framework("torch-fsdp-compiled-2024")
    plan = Plan.of_batch(pp=2, tp=2, global_batch=4, sequence=4096, zero=3)
    entries = 4096 * 128256 / 2
    logits = rank_parts(LLAMA, framework, [plan], TWO_STAGES).logits[0, :, 0]
    assert logits.tolist() == [0, (22 + 3 * 2) * entries]
