"""Bytes between experts: copies that leave a rank, by dispatcher, by groups of experts, by hand."""

from math import inf
from pathlib import Path

import numpy as np
import pytest
from dispatch_times import NODES, SETTING, constants, read_cases

from stepsim.base.axes import Group
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.load import read_model, topology_of
from stepsim.step.model_plan import interconnect_of
from stepsim.workload.model.architecture import ExpertMlp, Layer
from stepsim.workload.model.blocks import layer_blocks
from stepsim.workload.model.build import build_workload
from stepsim.workload.model.choices import ExpertDispatch
from stepsim.workload.model.dispatch import ExpertWay, kernel_of, map_bytes, permuted_bytes, reached
from stepsim.workload.plan import Plan, PlanTable
from stepsim.workload.rows import CommOp

MLP = ExpertMlp(experts=64, top_k=8, width=64)
GROUPED = ExpertMlp(experts=64, top_k=8, width=64, groups=8, token_groups=4)


@pytest.mark.parametrize("dispatch", ExpertDispatch)
def test_hybridep_alone_gathers_a_byte_for_each_token_and_expert(dispatch: ExpertDispatch) -> None:
    hybrid = dispatch in (ExpertDispatch.HYBRIDEP, ExpertDispatch.HYBRIDEP_FP8)
    for ep in (1, 8):
        columns = PlanTable([plan(dispatch, ep)])
        expected = columns.tokens[0] * 64 * 8 if hybrid and ep > 1 else 0
        assert map_bytes(MLP, columns)[0] == expected


def plan(dispatch: ExpertDispatch, ep: int) -> Plan:
    return Plan.of_batch(dp=ep, ep=ep, expert_tp=1, global_batch=ep, dispatch=dispatch)


def missed(experts: int, own: int, top_k: int) -> float:
    """Probability that none of `top_k` of so many experts is one of `own`, drawn one by one."""
    found = 1.0
    for drawn in range(top_k):
        found *= (experts - own - drawn) / (experts - drawn)
    return found


@pytest.mark.parametrize(
    ("mlp", "dispatch", "ep", "domain", "share"),
    [
        (MLP, ExpertDispatch.ALL_TO_ALL, 64, 8, 1.0),
        # 8 nodes with 8 of 64 experts: 8 x (1 - 0.321) = 5.43 of 8 copies
        (MLP, ExpertDispatch.DEEPEP, 64, 8, 1 - missed(64, 8, 8)),
        # a domain of 64 ranks: each has one expert, so that no copy is left out
        (MLP, ExpertDispatch.HYBRIDEP, 64, 64, 1.0),
        # 4 of 8 nodes at most, with 8 of the 32 experts that are left
        (GROUPED, ExpertDispatch.DEEPEP, 64, 8, 4 / 8 * (1 - missed(32, 8, 8))),
        # 16 nodes for 8 groups: 4 groups lie on 8 of them
        (GROUPED, ExpertDispatch.DEEPEP, 64, 4, 8 / 8 * (1 - missed(32, 4, 8))),
    ],
)
def test_a_token_goes_to_a_node_once(
    mlp: ExpertMlp, dispatch: ExpertDispatch, ep: int, domain: int, share: float
) -> None:
    columns = PlanTable([plan(dispatch, ep)])
    sent, *_ = ExpertWay(routing=mlp).asks(np.ones(1), columns, domain, inf)
    assert sent[0] == pytest.approx(share)


@pytest.mark.parametrize("mlp", [MLP, GROUPED, ExpertMlp(experts=60, top_k=4, width=8)])
@pytest.mark.parametrize("places", [2, 4, 6, 12])
def test_places_reached_are_those_of_experts_drawn_at_random(mlp: ExpertMlp, places: int) -> None:
    """Experts are drawn without repeats, of groups that are drawn before them."""
    if mlp.experts % places or (mlp.groups > 1 and mlp.groups % places):
        pytest.skip("experts or groups are not shared out evenly")
    random = np.random.default_rng(7)
    own, of_group = mlp.experts // places, mlp.experts // mlp.groups
    found = []
    for _ in range(4000):
        groups = random.permutation(mlp.groups)[: mlp.token_groups if mlp.groups > 1 else 1]
        able = (groups[:, None] * of_group + np.arange(of_group)).ravel()
        experts = random.permutation(able)[: mlp.top_k]
        found.append(len(np.unique(experts // own)))
    deviation = np.std(found) / len(found) ** 0.5
    assert reached(mlp, np.array([places]))[0] == pytest.approx(np.mean(found), abs=4 * deviation)


def test_eight_bits_are_on_the_way_to_the_experts_alone() -> None:
    architecture = read_model("mixtral-8x7b").architecture
    layer: Layer = architecture.layers[0]
    sizes = {}
    for dispatch in (ExpertDispatch.DEEPEP, ExpertDispatch.DEEPEP_FP8):
        columns = PlanTable([plan(dispatch, 8)])
        exchanges = [
            [exchange.size_bytes[0] for exchange in way if exchange.way]
            for block in layer_blocks(layer, architecture, columns)
            for way in (block.forward, block.backward)
        ]
        sizes[dispatch] = np.concatenate([each for each in exchanges if each])
    sixteen, eight = sizes.values()
    assert len(sixteen) == 4
    assert (sixteen == 2 * 2048 * 2 * 4096).all()
    assert eight[0] == sixteen[0] * (1 + 4 / 128) / 2
    assert (eight[1:] == sixteen[1:]).all()


def test_tokens_are_laid_out_by_expert_as_often_as_the_dispatcher_needs() -> None:
    """Of 100 tokens of 32 elements with 8 experts each, in 2 bytes.

    Before an all-to-all one is read and written 8 times, then 8 are read and written; a rank alone
    does the same, for it has more than one expert. DeepEP brings 5.43 copies to 8 ranks.
    """

    def moved(dispatch: ExpertDispatch, ep: int) -> float:
        own = Plan.of_batch(dp=ep, ep=ep, global_batch=ep, sequence=100, dispatch=dispatch)
        return float(permuted_bytes(MLP, PlanTable([own]), 32)[0])

    assert moved(ExpertDispatch.ALL_TO_ALL, 8) == 2 * 100 * 32 * (1 + 8 + 8 + 8)
    assert moved(ExpertDispatch.ALL_TO_ALL, 64) == 2 * 100 * 32 * (1 + 8)
    assert moved(ExpertDispatch.DEEPEP, 1) == moved(ExpertDispatch.ALL_TO_ALL, 1)
    copies = 8 * (1 - missed(64, 8, 8))
    assert moved(ExpertDispatch.DEEPEP, 8) == pytest.approx(2 * 100 * 32 * (copies + 8))


def exchanges(dispatch: ExpertDispatch) -> list[CommOp]:
    """Collectives between experts of a layer on 8 H100, forward and then backward."""
    network = interconnect_of(topology_of("hgx-h100").fit(8))
    source, device = read_model("mixtral-8x7b"), read_device("h100")
    framework = read_framework("megatron-core")
    work = build_workload(source, plan(dispatch, 8), device, framework, network)
    rows = work.microbatches[0].layers[0]
    found = [op for row in rows for op in row.forward.comms]
    found += [op for row in reversed(rows) for op in row.input_grad.comms]
    return [op for op in found if op.group is Group.EP]


def test_kernels_of_a_dispatcher_take_their_time_whatever_the_network() -> None:
    launch = topology_of("hgx-h100").launch_latency_ps
    plain = exchanges(ExpertDispatch.ALL_TO_ALL)
    assert [op.least_ps for op in plain] == [0, 0, 0, 0]
    assert [op.process_ps for op in plain] == [2 * launch, 0, 0, launch]
    sent = exchanges(ExpertDispatch.DEEPEP)
    assert [op.process_ps for op in sent] == [2 * launch, 0, 0, 0]
    copies = 8 * (1 - missed(8, 1, 2)) * 4096 * 2
    to, back = (
        own.start_ps + 2048 * (own.token_ps + copies * own.byte_ps)
        for own in (kernel_of(ExpertDispatch.DEEPEP, way) for way in ("to", "back"))
    )
    assert [op.least_ps for op in sent] == pytest.approx([to, back, to, back])


def test_nodes_hand_tokens_on_while_they_arrive() -> None:
    """With 64 ranks of 8 a node, 5.43 copies cross NVLink to 7 of 8 ranks, however slow it is."""
    columns = PlanTable([plan(ExpertDispatch.DEEPEP, 64)])
    size = np.array([8 * 1e6])
    slow, fast = (
        ExpertWay(routing=MLP).asks(size, columns, 8, inner)[1][0] for inner in (1e9, inf)
    )
    assert slow == pytest.approx(8e6 * 7 / 8 / 1e9)  # an expert for each rank: 8 copies
    own = kernel_of(ExpertDispatch.DEEPEP, "to")
    ps = own.start_ps + own.token_ps * 2048 + own.byte_ps * size[0]
    assert fast == pytest.approx(ps / 1e12)


@pytest.mark.parametrize(("way", "most"), [("to", 0.18), ("back", 0.18)])
def test_times_of_deepep_are_near_measured_ones(way: str, most: float, shared: Path) -> None:
    """Constants are those of H100 and H200; half of the rows of others are within `most`."""
    cases = [
        case
        for case in read_cases(shared / "reference/kernels/moe_dispatch.csv")
        if case.way == way
    ]
    own = kernel_of(ExpertDispatch.DEEPEP, way)
    found = constants([case for case in cases if case.gpu in SETTING])
    assert [own.start_ps, own.token_ps, own.byte_ps] == pytest.approx(found.tolist(), rel=5e-3)
    for gpu in set(NODES) - {*SETTING}:
        errors = [abs(c.predicted() / c.seconds - 1) for c in cases if c.gpu == gpu]
        assert np.median(errors) < most
