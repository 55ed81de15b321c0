"""Memory of a rank against a count by hand and against real schedules."""

import pytest

from stepsim.files.accelerators import read_device, read_framework
from stepsim.parallel.memory import peak_live
from stepsim.parallel.schedules import build
from stepsim.workload.model.architecture import (
    Architecture,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    Layer,
)
from stepsim.workload.model.memory import RankMemory, kept_by_1f1b, rank_memory
from stepsim.workload.model.plan import ModelPlan, Precision, Recompute

ATTENTION = GroupedAttention(heads=64, kv_heads=8, head_dim=128)
LAYER = Layer(attention=ATTENTION, mlp=DenseMlp(width=28672))
LLAMA = Architecture(name="llama-70b", hidden=8192, layers=(LAYER,) * 12, vocabulary=128256)


def memory(plan: ModelPlan, architecture: Architecture = LLAMA) -> RankMemory:
    return rank_memory(architecture, read_device("b200"), read_framework("megatron-core"), [plan])


def test_a_rank_of_a_dense_model_by_hand() -> None:
    found = memory(ModelPlan(tp=2, dp=4, global_batch=4, sequence=4096))
    parameters = LLAMA.parameters() / 2
    assert found.weights[0] == 2 * parameters
    assert found.gradients[0] == 4 * parameters
    assert found.optimizer[0] == 12 * parameters / 4
    token = 4 * 2 * 8192 + 2 * (10240 + 8192) + 2 * 3 * 28672  # norms, attention, MLP
    assert found.activations[0] == 12 * 4096 * token / 2
    assert found.logits[0] == 7 * 4096 * 128256 / 2
    assert found.buffers[0] == 2 * 3 * 8192 * 28672 / 2
    assert found.total[0] == found.allocated[0] + read_device("b200").reserved_bytes


@pytest.mark.parametrize(("pp", "chunks", "microbatches"), [(4, 1, 8), (8, 1, 3), (4, 3, 12)])
def test_a_rank_keeps_what_its_schedule_keeps(pp: int, chunks: int, microbatches: int) -> None:
    name = "1f1b" if chunks == 1 else f"interleaved:{chunks}"
    schedule = build(name, ranks=pp, microbatches=microbatches)
    peaks = [peak.freed_at_b for peak in peak_live(schedule)]
    assert [sum(kept) for kept in kept_by_1f1b(pp, chunks, microbatches)] == peaks


def test_full_recomputation_keeps_inputs_and_one_layer() -> None:
    plain = ModelPlan(tp=2, dp=4, global_batch=4, sequence=4096)
    full = ModelPlan(tp=2, dp=4, global_batch=4, sequence=4096, recompute=Recompute.FULL)
    layer = memory(plain).activations[0] / 12
    assert memory(full).activations[0] == 12 * 2 * 4096 * 8192 / 2 + layer


def test_shards_of_parameters_take_sixteen_bytes_each() -> None:
    plan = ModelPlan(dp=8, global_batch=8, sequence=4096, zero=3, sequence_parallel=False)
    found = memory(plan)
    states = found.weights[0] + found.gradients[0] + found.optimizer[0]
    assert states == 16 * LLAMA.parameters() / 8


def test_experts_are_held_once_per_group() -> None:
    mlp = ExpertMlp(experts=8, top_k=2, width=14336)
    layer = Layer(attention=ATTENTION, mlp=mlp)
    sparse = Architecture(name="moe", hidden=8192, layers=(layer,) * 2, vocabulary=32000)
    routed = 2 * mlp.routed_parameters(8192)
    plan = ModelPlan(dp=8, ep=4, global_batch=8, sequence=4096)
    found = memory(plan, sparse)
    dense = sparse.parameters() - routed
    assert found.weights[0] == 2 * (dense + routed / 4)
    assert found.optimizer[0] == 12 * (dense / 8 + routed / 4 / 2)


def test_a_plan_that_is_full_says_so() -> None:
    device = read_device("b200")
    found = memory(ModelPlan(tp=1, pp=1, dp=1, global_batch=1, sequence=4096))
    assert found.share_of(device)[0] > 1
    assert found.is_tight(device)[0] == 1


def test_eight_bit_inputs_of_products_take_half() -> None:
    plain = ModelPlan(tp=2, dp=4, global_batch=4, sequence=4096)
    low = ModelPlan(tp=2, dp=4, global_batch=4, sequence=4096, precision=Precision.FP8)
    token = 2 * 3 * 8192 + 2 * (10240 + 8192) + 8192 + (2 * 2 + 1) * 28672
    assert memory(low).activations[0] == 12 * 4096 * token / 2
    assert memory(low).weights[0] == 2 * memory(plain).weights[0]
