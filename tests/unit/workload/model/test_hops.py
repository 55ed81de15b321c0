"""Attention of ranks that share a sequence: counts by hand, what hides, and the graph beside it."""

import numpy as np
import pytest

from stepsim.base.axes import CollectiveKind, Group
from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.asked import StepInputs
from stepsim.files.load import read_model, topology_of, with_numbers
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.step.model_plan import interconnect_of
from stepsim.step.prepared import prepare
from stepsim.workload.model.architecture import Architecture, DenseMlp, GroupedAttention, Layer
from stepsim.workload.model.blocks import layer_blocks
from stepsim.workload.model.build import build_workload
from stepsim.workload.model.choices import ContextParallelKind
from stepsim.workload.model.context import (
    ContextParallel,
    kernel_shares,
    launch_ps,
    mask_share,
    merge_operator,
    merge_shares,
    runs_by_hop,
)
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.model import Model
from stepsim.workload.model.parts import Block, Exchange, OperatorKind
from stepsim.workload.model.pricing import Pricer
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan, PlanTable

GQA = GroupedAttention(heads=32, kv_heads=8, head_dim=128)
LAYER = Layer(attention=GQA, mlp=DenseMlp(width=14336))
LLAMA = Architecture(name="llama-8b", hidden=4096, layers=(LAYER,) * 32, vocabulary=128256)
TORCH = ContextParallel(
    exchange=ContextParallelKind.ALL_GATHER,
    gathers_by_hop=True,
    hides=False,
    kernels_at_once=1,
    repeats_heads=True,
    gradient_bytes=4,
    returns_gradients=True,
)
UNBALANCED = ContextParallel(balanced=False)
BY_HEAD = ContextParallel(balanced=False, gathers_by_head=True)
S = 65536


def of_cp(cp: int, kind: ContextParallelKind = ContextParallelKind.RING) -> Plan:
    return Plan.of_batch(cp=cp, global_batch=1, sequence=S, context=kind)


def columns(*cps: int) -> PlanTable:
    return PlanTable([of_cp(cp) for cp in cps])


def blocks_of(plan: Plan, context: ContextParallel) -> tuple[Block, ...]:
    return layer_blocks(LAYER, LLAMA, PlanTable([plan]), context)


def core_flops(plan: Plan, context: ContextParallel) -> tuple[float, float]:
    """Operations of core attention on the busiest rank, forward and backward."""
    found = [
        operator
        for block in blocks_of(plan, context)
        for operator in block.operators
        if operator.kind is OperatorKind.ATTENTION
    ]
    return (
        sum(float(each.flops[0, 0]) for each in found),
        sum(float(each.flops[1, 0]) for each in found),
    )


def sent(plan: Plan, context: ContextParallel, kind: CollectiveKind, phase: str) -> float:
    """Bytes of all exchanges of a kind along cp in a phase of a layer."""
    exchanges: list[Exchange] = [
        each for block in blocks_of(plan, context) for each in getattr(block, phase)
    ]
    along = [each for each in exchanges if each.group is Group.CP and each.kind is kind]
    return sum(float(each.size_bytes[0]) for each in along)


# counts


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_an_unbalanced_ring_waits_for_a_whole_block_on_every_hop_but_the_first(cp: int) -> None:
    """It takes cp - 1/2 blocks of (s / cp)^2, a balanced one cp / 2."""
    block = 4 * (S / cp) ** 2 * 32 * 128
    forward, backward = core_flops(of_cp(cp), ContextParallel())
    assert forward == pytest.approx(cp / 2 * block)
    assert backward == pytest.approx(2.5 * forward)
    forward, backward = core_flops(of_cp(cp), UNBALANCED)
    assert forward == pytest.approx((cp - 0.5) * block)
    assert backward == pytest.approx(2.5 * forward)
    assert mask_share(columns(cp), UNBALANCED) == pytest.approx((2 * cp - 1) / cp)


def test_a_window_balances_a_sequence_in_pieces() -> None:
    for window in (4096, S // 2):
        assert mask_share(columns(4), UNBALANCED, window=window) == pytest.approx(1)


@pytest.mark.parametrize("context", [ContextParallel(), UNBALANCED, TORCH, BY_HEAD])
@pytest.mark.parametrize("cp", [1, 2, 4, 8])
def test_shares_of_hops_are_a_whole(cp: int, context: ContextParallel) -> None:
    for shares in (kernel_shares(GQA, columns(cp), context), merge_shares(columns(cp), context)):
        parts = [float(share[0]) for share in shares]
        some = runs_by_hop(columns(cp), context)[0] or parts[0]
        assert sum(parts) == pytest.approx(1.0 if some else 0.0)
        assert min(parts) >= 0


def test_every_hop_but_the_first_merges_an_output() -> None:
    """A rank of 4 has 16,384 tokens with 32 x 128 values each, and 3 merges of 10 bytes."""
    context = replace(TORCH, merge_bytes=10, sum_bytes=6)
    merges = merge_operator(GQA, columns(1, 4), context)
    gathered = PlanTable([of_cp(4, ContextParallelKind.ALL_GATHER)])
    assert merges.bytes_moved[0, 0] == 0
    assert merge_operator(GQA, gathered, context).bytes_moved[0, 0] == (3 * 10 * 16384 * 32 * 128)
    assert merges.bytes_moved[1, 1] == 3 * 6 * 16384 * (32 + 2 * 32) * 128
    own = merge_operator(GQA, columns(4), ContextParallel(sum_bytes=6))
    assert own.bytes_moved[1, 0] == 3 * 6 * 16384 * (32 + 2 * 8) * 128


@pytest.mark.parametrize("kind", [ContextParallelKind.ALL_TO_ALL, ContextParallelKind.ALL_GATHER])
def test_whole_kernels_merge_nothing(kind: ContextParallelKind) -> None:
    merges = merge_operator(GQA, PlanTable([of_cp(4, kind)]), ContextParallel())
    assert merges.bytes_moved[0, 0] == merges.bytes_moved[1, 0] == 0
    assert launch_ps(LAYER, PlanTable([of_cp(4, kind)]), ContextParallel(hop_ps=5))[0] == 0


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_hops_of_a_ring_carry_what_one_gather_would(cp: int) -> None:
    whole = 2 * S * 2 * 8 * 128
    gather, scatter = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER
    message = CollectiveKind.SEND_RECV
    plain = ContextParallel()
    passed = whole * (cp - 1) / cp
    if cp == 2:  # an all-gather of two ranks is what each of them sends the other
        for kind, phase in ((gather, "forward"), (gather, "backward"), (scatter, "backward")):
            assert sent(of_cp(cp), plain, kind, phase) == pytest.approx(whole)
    else:
        assert sent(of_cp(cp), plain, message, "forward") == pytest.approx(passed)
        assert sent(of_cp(cp), plain, message, "backward") == pytest.approx(2 * passed)
    plan = of_cp(cp, ContextParallelKind.ALL_GATHER)
    assert sent(plan, TORCH, gather, "forward") == pytest.approx(4 * whole)
    rounds = cp / (cp - 1)
    scattered = sent(plan, TORCH, scatter, "backward") * (cp - 1) / cp
    scattered += sent(plan, TORCH, message, "backward")
    assert scattered == pytest.approx(8 * passed * rounds)


@pytest.mark.parametrize("kind", [ContextParallelKind.RING, ContextParallelKind.ALL_GATHER])
def test_a_gather_head_by_head_hides_all_keys_but_those_of_the_first(
    kind: ContextParallelKind,
) -> None:
    """Of 8 heads, seven are gathered beside kernels; no gradient is."""
    whole = 2 * S * 2 * 8 * 128
    blocks = blocks_of(of_cp(4, kind), BY_HEAD)
    seen = {"forward": 0.0, "backward": 0.0}
    for phase, block in ((phase, block) for phase in seen for block in blocks):
        for exchange in getattr(block, phase):
            if exchange.group is Group.CP:
                size = float(exchange.size_bytes[0])
                seen[phase] += size * (1 - float(np.atleast_1d(exchange.beside)[0]))
    assert seen == pytest.approx({"forward": whole / 8, "backward": whole / 8 + whole})
    gathered = sent(of_cp(4, kind), BY_HEAD, CollectiveKind.ALL_GATHER, "forward")
    assert gathered == pytest.approx(whole)


def test_a_ring_over_nodes_is_as_fast_as_one_network_interface() -> None:
    """A gather over two nodes of 8 enters through all of their interfaces."""

    def exposed(kind: ContextParallelKind) -> float:
        plan = Plan.of_batch(cp=16, global_batch=1, sequence=16384, zero=0, context=kind)
        slow, fast = (
            graph_s(
                read_framework("megatron-core"),
                plan,
                with_numbers(topology_of("hgx-h100"), {"fabric.bandwidth": bandwidth}),
            )
            for bandwidth in ("2 GB/s", "2000 GB/s")
        )
        return slow - fast

    ring, gather = map(exposed, (ContextParallelKind.RING, ContextParallelKind.ALL_GATHER))
    assert ring > 2 * gather  # both hold the sum of gradients


def test_the_host_launches_every_hop_three_times() -> None:
    found = launch_ps(LAYER, columns(1, 2, 8), ContextParallel(hop_ps=100))
    assert found.tolist() == [0, 300, 2100]
    linear = replace(LAYER, attention=None)
    assert launch_ps(linear, columns(8), ContextParallel(hop_ps=100))[0] == 0


@pytest.mark.parametrize(
    ("device", "balanced", "forward", "both"),
    [
        ("h800", True, 0.852, 0.902),
        ("h800", False, 0.521, 0.539),
        ("a100-80gb", True, 0.817, 0.898),
        ("a100-80gb", False, 0.514, 0.525),
    ],
)
def test_hops_reach_what_rings_of_flash_attention_reach(
    device: str, balanced: bool, forward: float, both: float
) -> None:
    """Share of the speed of a kernel of 8,192 tokens, by 8 GPUs with as many tokens each.

    Measured with a plain ring and one in zigzag: README of zhuzilin/ring-flash-attention, its batch
    API, attention of Llama 3.1 8B. Its merges are one kernel that reads a block's output in 2 bytes
    and the sum in 4, which it writes.
    """
    context = ContextParallel(
        balanced=balanced, kernels_at_once=1, merge_bytes=10, sum_bytes=10, gradient_bytes=4
    )

    def core_s(plan: Plan) -> tuple[float, float]:
        pricer = Pricer(
            device=read_device(device),
            framework=read_framework("torch-fsdp-compiled"),
            columns=PlanTable([plan]),
        )
        price = pricer.together(
            map(
                pricer.price_one,
                [o for b in blocks_of(plan, context) for o in b.operators if o.core],
            )
        )
        return float(price.forward[0]), float(price.forward[0] + price.input_grad[0])

    alone, ring = core_s(Plan.of_batch(global_batch=1, sequence=S // 8)), core_s(of_cp(8))
    assert 8 * alone[0] / ring[0] == pytest.approx(forward, abs=0.09)
    assert 8 * alone[1] / ring[1] == pytest.approx(both, abs=0.05)


# what hides


def model(framework: Framework) -> StepModel:
    return StepModel(
        architecture=LLAMA,
        device=read_device("h100"),
        framework=framework,
        interconnect=interconnect_of(topology_of("hgx-h100")),
    )


def priced(framework: Framework, bandwidth: float, cp: int = 8) -> float:
    """A layer's time on a network of some bandwidth, where nothing else is sent."""
    steps = model(replace(framework, host_layer_ps=0, skew=0.0))
    network = replace(
        steps.interconnect, domain=8, inner=bandwidth, launch_ps=0, inner_ps=0, outer_ps=0
    )
    steps = replace(steps, interconnect=network)
    plan = replace(of_cp(cp), zero=0)
    return float(steps.part_seconds(PlanTable([plan]))[0, 0])


def test_messages_are_free_until_they_are_longer_than_a_kernel() -> None:
    framework = replace(read_framework("megatron-core"), context=ContextParallel())
    fastest, fast, slow, slower = (priced(framework, rate) for rate in (1e14, 1e12, 1e9, 0.5e9))
    assert fast == pytest.approx(fastest, rel=1e-3)
    assert slower > 1.8 * slow > 3.6 * fast


def test_messages_that_hide_behind_nothing_cost_what_they_take() -> None:
    plain = read_framework("megatron-core")
    hidden, seen = (
        [
            priced(replace(plain, context=ContextParallel(hides=hides)), rate)
            for rate in (1e14, 1e11)
        ]
        for hides in (True, False)
    )
    hop = 2 * S / 8 * 2 * 8 * 128
    assert seen[0] == pytest.approx(hidden[0], rel=1e-3)
    assert seen[1] - seen[0] == pytest.approx(3 * 7 * hop / 1e11, rel=0.01)


def test_a_gap_row_does_not_end_a_hop() -> None:
    """Messages wait for the kernel after a row of hidden collectives, not for that row."""
    plan = Plan.of_batch(tp=2, cp=4, global_batch=1, sequence=S, tp_comm_overlap=True)
    steps = model(read_framework("megatron-core"))
    workload = build_workload(
        Model(source="x", architecture=LLAMA), plan, steps.device, steps.framework
    )
    rows = workload.microbatches[0].layers[0]
    names = [row.name for row in rows]
    start = names.index("qkv")
    assert rows[start + rows[start].forward_lag].name == "first_hop"
    ring = names.index("ring")
    assert rows[ring - rows[ring].backward_lag].name == "last_hop"


# steps


def graph_s(framework: Framework, plan: Plan, topology: Topology | None = None) -> float:
    asked = StepOptions(
        npus=plan.npus,
        cp=plan.cp,
        cp_comm=plan.context,
        global_batch=plan.global_batch,
        microbatch_size=1,
        sequence=plan.sequence,
        zero=0,
        dp_overlap=False,
        device=read_device("h100"),
        framework=framework,
    )
    source, network = read_model("llama-3-8b"), topology or topology_of("hgx-h100")
    return prepare(StepInputs(source, network, asked), quick=True).step_time_ps() / 1e12


@pytest.mark.parametrize("kind", list(ContextParallelKind))
@pytest.mark.parametrize("name", ["megatron-core", "torch-fsdp-compiled", "torch-fsdp-eager"])
@pytest.mark.parametrize("cp", [2, 8])
def test_the_graph_says_what_the_closed_form_says(
    name: str, kind: ContextParallelKind, cp: int
) -> None:
    framework = read_framework(name)
    plan = Plan.of_batch(cp=cp, dp=8 // cp, global_batch=8 // cp, sequence=S, zero=0, context=kind)
    closed = float(model(framework).seconds([plan])[0])
    assert graph_s(framework, plan) == pytest.approx(closed, rel=0.03)


@pytest.mark.parametrize("name", ["megatron-core", "torch-fsdp-compiled"])
def test_no_balance_is_never_faster(name: str) -> None:
    framework = read_framework(name)
    pieces = replace(framework, context=replace(framework.context, balanced=False))
    kinds = [ContextParallelKind.RING, ContextParallelKind.ALL_GATHER]
    plans = [of_cp(cp, kind) for cp in (2, 4, 8) for kind in kinds]
    balanced, unbalanced = (model(each).seconds(plans) for each in (framework, pieces))
    assert (unbalanced > balanced).all()
    turned = [of_cp(cp, ContextParallelKind.ALL_TO_ALL) for cp in (2, 4, 8)]
    np.testing.assert_array_equal(model(framework).seconds(turned), model(pieces).seconds(turned))


def test_a_share_of_a_longer_sequence_costs_more_with_every_rank() -> None:
    """As many tokens on a rank: each more reads more keys, and a ring adds hops to that."""
    for name in ("megatron-core", "torch-fsdp-compiled"):
        plans = [replace(of_cp(cp), sequence=8192 * cp) for cp in (1, 2, 4, 8)]
        found = model(read_framework(name)).seconds(plans)
        assert (np.diff(found) > 0).all()
