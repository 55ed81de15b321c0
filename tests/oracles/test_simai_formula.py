"""SimAI-Analytical's formula against what SimAI v1.6/1.7 printed, and against closed forms.

The printed figures are the table in reference/workloads/README.md (`-nv 360 -nic 48.5 -n_p_s 8
-g_p_s 8`), whole microseconds; columns that use none of SimAI's ratio tables must agree to the
last digit. Those that cannot, because the tables are not reproduced here:

- seed 002 TP (all-gather and reduce-scatter of 128 MiB), and the bubble and total that hold it;
- seed 000 TP (all-gather, reduce-scatter, all-to-all), EP (all-to-all), and bubble and total.

Given the printed TP and EP, bubble and total are checked as well: they add up from them.
SimAI reads as many rows as line 2 declares: of seed 000 the first 96 of 98, so neither
`optimizer3` nor `optimizer4` (150 us of compute).
"""

import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from stepsim.base.errors import PlanError, WorkloadError
from stepsim.base.structs import replace
from stepsim.files.simai.formula import (
    SMALL_MESSAGE_US,
    GroupSpan,
    Servers,
    SimaiTotals,
    bus_bandwidth,
    collective_ns,
    group_span,
    simai_formula,
)
from stepsim.files.simai.sections import Header, Policy
from stepsim.files.simai.text import FileRow, SimaiDocument, read_simai_document
from stepsim.parallel.ranks import ParallelPlan
from stepsim.workload.rows import CollectiveKind, CommOp, Group, ParallelAxis, Work

MIB, GIB = 1 << 20, 1 << 30
SERVERS = Servers()
RING = (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.BROADCAST)
SEED_000 = {"compute": 40829, "dp": 7582, "tp": 2903, "ep": 3641, "bubble": 16934, "total": 71889}
SEED_001 = {"compute": 259211, "tp": 33117, "ep": 0, "dp_ep": 0, "bubble": 0}
SEED_002 = {"compute": 7213232, "dp": 322654, "tp": 290054, "ep": 0, "dp_ep": 0}
PLAN_000 = ParallelPlan(tp=8, dp=4, pp=4, ep=4)
PLAN_002 = ParallelPlan(tp=8, dp=8, pp=16, microbatches=16)


def printed(totals: SimaiTotals, *columns: str) -> dict[str, int]:
    """Columns as SimAI prints them: without decimals."""
    return {name: round(value) for name, value in asdict(totals).items() if name in columns}


def seed_000(workloads: Path) -> SimaiTotals:
    path = workloads / "moe_128.txt"
    declared = int(path.read_text().splitlines()[1])
    document = read_simai_document(path)
    assert (declared, len(document.rows)) == (96, 98)
    return simai_formula(document, PLAN_000, row_count=declared)


# What SimAI printed


@pytest.mark.parametrize(("npus", "dp", "total"), [(16, 94747, 387075), (128, 122382, 414710)])
def test_seed_001_matches_in_full(workloads: Path, npus: int, dp: int, total: int) -> None:
    document = read_simai_document(workloads / "gpt_tp4.txt")
    totals = simai_formula(document, ParallelPlan(tp=4, dp=npus // 4))
    wanted = SEED_001 | {"dp": dp, "total": total}
    assert printed(totals, *wanted) == wanted
    assert totals.note == "no column relies on SimAI's ratio tables"


@pytest.mark.parametrize(
    ("vpp", "bubble", "total"), [(1, 6946315, 14772256), (4, 1736579, 9562519)]
)
def test_seed_002_matches_but_for_the_ratio_tables(
    workloads: Path, vpp: int, bubble: int, total: int
) -> None:
    document = read_simai_document(workloads / "gpt_1024.txt")
    totals = simai_formula(document, PLAN_002, vpp=vpp)
    wanted = SEED_002 | {"tp": 248629}
    assert printed(totals, *wanted) == wanted
    assert totals.note.startswith("tp, bubble, total: without SimAI's message-size ratio tables")
    missing = SEED_002["tp"] - totals.tp  # what the tables add to TP
    in_bubble = missing * 15 / (16 * vpp)
    assert totals.bubble + in_bubble == pytest.approx(bubble, abs=1)
    assert totals.total + missing + in_bubble == pytest.approx(total, abs=1.5)


def test_header_vpp_is_the_default(workloads: Path) -> None:
    document = read_simai_document(workloads / "gpt_1024.txt")
    interleaved = replace(document, header=replace(document.header, vpp=4))
    assert simai_formula(interleaved, PLAN_002) == simai_formula(document, PLAN_002, vpp=4)
    assert simai_formula(interleaved, PLAN_002, vpp=1) == simai_formula(document, PLAN_002)


def test_seed_000_matches_where_no_ratio_is_used(workloads: Path) -> None:
    totals = seed_000(workloads)
    assert printed(totals, "compute", "dp", "dp_ep") == {"compute": 40829, "dp": 7582, "dp_ep": 0}
    assert totals.note.startswith("tp, ep, bubble, total: without SimAI's")
    assert totals.tp < SEED_000["tp"]  # a ratio below 1 makes a collective slower
    assert totals.ep < SEED_000["ep"]


def test_seed_000_bubble_and_total_follow_from_the_printed_tp_and_ep(workloads: Path) -> None:
    totals = seed_000(workloads)
    missing = SEED_000["tp"] - totals.tp + SEED_000["ep"] - totals.ep
    in_bubble = missing * 3 / 8  # (PP - 1) / (GA * VPP)
    assert totals.bubble + in_bubble == pytest.approx(SEED_000["bubble"], abs=1)
    assert totals.total + missing + in_bubble == pytest.approx(SEED_000["total"], abs=1.5)


def test_seed_000_with_all_rows_is_two_optimizer_rows_more(workloads: Path) -> None:
    every = simai_formula(read_simai_document(workloads / "moe_128.txt"), PLAN_000)
    read = seed_000(workloads)
    assert every.compute - read.compute == pytest.approx(2 * 3 * 25)
    assert every.tp - read.tp == pytest.approx(2 * SMALL_MESSAGE_US[8])
    assert (every.dp, every.ep) == (read.dp, read.ep)


# Bus bandwidth


@pytest.mark.parametrize("kind", CollectiveKind)
def test_busbw_of_one_node_is_nvlink(kind: CollectiveKind) -> None:
    assert bus_bandwidth(kind, GroupSpan(ranks=8, nodes=1, per_node=8), SERVERS) == 360


@pytest.mark.parametrize("kind", [*RING, CollectiveKind.ALL_REDUCE])
@pytest.mark.parametrize(
    ("nodes", "per_node", "wanted"),
    [
        (4, 1, 48.5),  # one NPU per node: its NIC
        (4, 2, 97.0),  # two NICs are slower than NVLink
        (2, 4, 194.0),
        (2, 8, 388.0),  # eight are faster: min(360 * 8/7, 388)
    ],
)
def test_busbw_across_nodes(kind: CollectiveKind, nodes: int, per_node: int, wanted: float) -> None:
    span = GroupSpan(ranks=nodes * per_node, nodes=nodes, per_node=per_node)
    assert bus_bandwidth(kind, span, SERVERS) == wanted


def test_busbw_across_nodes_is_bounded_by_nvlink() -> None:
    span = GroupSpan(ranks=16, nodes=2, per_node=8)
    servers = replace(SERVERS, nvlink_gbps=200.0)
    assert bus_bandwidth(CollectiveKind.ALL_REDUCE, span, servers) == pytest.approx(200 * 8 / 7)


@pytest.mark.parametrize("nics", [1, 4, 8])
def test_busbw_of_one_npu_per_node_is_its_share_of_the_nics(nics: int) -> None:
    span = GroupSpan(ranks=4, nodes=4, per_node=1)
    servers = replace(SERVERS, nics_per_server=nics)
    assert bus_bandwidth(CollectiveKind.ALL_GATHER, span, servers) == 48.5 * nics / 8


@pytest.mark.parametrize(
    ("nodes", "per_node", "wanted"), [(4, 1, 48.5), (2, 8, 48.5 * 15 / 8), (4, 2, 48.5 * 7 / 6)]
)
def test_busbw_of_all_to_all_across_nodes(nodes: int, per_node: int, wanted: float) -> None:
    span = GroupSpan(ranks=nodes * per_node, nodes=nodes, per_node=per_node)
    assert bus_bandwidth(CollectiveKind.ALL_TO_ALL, span, SERVERS) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("group", "plan", "ranks", "nodes", "per_node"),
    [
        (Group.TP, ParallelPlan(tp=4), 4, 1, 4),
        (Group.TP, ParallelPlan(tp=16), 16, 2, 8),
        (Group.EP, ParallelPlan(tp=2, dp=4, ep=4), 4, 1, 4),
        (Group.EP, ParallelPlan(tp=2, dp=8, ep=8), 8, 2, 4),
        (Group.EP, ParallelPlan(tp=8, dp=4, ep=4), 4, 4, 1),
        (Group.DP, ParallelPlan(tp=4, dp=4), 4, 4, 2),
        (Group.DP, ParallelPlan(tp=4, dp=2), 2, 2, 2),  # inside one server all the same
        (Group.DP, ParallelPlan(tp=16, dp=4), 4, 4, 1),
        (Group.DP_EP, ParallelPlan(tp=2, dp=8, ep=2), 4, 4, 2),
        (Group.DP_EP, ParallelPlan(tp=8, dp=8, ep=4), 2, 2, 1),
    ],
)
def test_span_of_groups(
    group: Group, plan: ParallelPlan, ranks: int, nodes: int, per_node: int
) -> None:
    wanted = GroupSpan(ranks=ranks, nodes=nodes, per_node=per_node)
    assert group_span(group, plan, SERVERS) == wanted


# Collective times


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_times_of_large_messages(ranks: int) -> None:
    span = GroupSpan(ranks=ranks, nodes=1, per_node=ranks)
    once = GIB / GIB / 360 * (ranks - 1) / ranks * 1e9
    for kind in (*RING, CollectiveKind.ALL_TO_ALL):
        assert collective_ns(kind, GIB, span, SERVERS) == math.floor(once)
    assert collective_ns(CollectiveKind.ALL_REDUCE, GIB, span, SERVERS) == math.floor(2 * once)


@pytest.mark.parametrize(
    ("ranks", "microseconds"),
    [(2, 10), (4, 12), (8, 15), (16, 66), (32, 135), (64, 200), (128, 320), (3, 0), (256, 0)],
)
def test_times_of_small_messages(ranks: int, microseconds: int) -> None:
    span = GroupSpan(ranks=ranks, nodes=ranks, per_node=1)
    for kind in CollectiveKind:
        for size in (2, 4096, MIB - 1):
            assert collective_ns(kind, size, span, SERVERS) == microseconds * 1_000
        assert collective_ns(kind, 1, span, SERVERS) == 0
        assert collective_ns(kind, MIB, span, SERVERS) > 1_000


@pytest.mark.parametrize("size", [0, 1, 4096, GIB])
def test_a_group_of_one_takes_no_time(size: int) -> None:
    span = GroupSpan(ranks=1, nodes=1, per_node=8)
    assert collective_ns(CollectiveKind.ALL_REDUCE, size, span, SERVERS) == 0


# Columns


def comm(group: Group, size: int, kind: CollectiveKind = CollectiveKind.ALL_REDUCE) -> CommOp:
    axis = (
        ParallelAxis.EP
        if group is Group.EP
        else ParallelAxis.TP
        if group is Group.TP
        else ParallelAxis.DP
    )
    return CommOp(kind=kind, group=group, axis=axis, size_bytes=size)


def one_row(
    name: str = "attention",
    *,
    forward: tuple[CommOp, ...] = (),
    input_grad: tuple[CommOp, ...] = (),
    weight_grad: tuple[CommOp, ...] = (),
    policy: Policy = Policy.HYBRID_TRANSFORMER,
) -> SimaiDocument:
    """A row of 1, 2 and 4 us of compute, PP 3, GA 2, VPP 5."""
    row = FileRow(
        name=name,
        line=3,
        forward=Work(compute_ps=1_000_000, comms=forward),
        input_grad=Work(compute_ps=2_000_000, comms=input_grad),
        weight_grad=Work(compute_ps=4_000_000, comms=weight_grad),
    )
    header = Header(policy=policy, ga=2, vpp=5)
    return SimaiDocument(source="one row", header=header, declared_rows=1, rows=(row,), warnings=())


PLAN = ParallelPlan(tp=8, dp=8, pp=3, ep=4, microbatches=7)


def test_columns_by_the_forward_and_the_weight_suffix() -> None:
    small_tp, small_ep = comm(Group.TP, 8192), comm(Group.EP, 8192)
    totals = simai_formula(one_row(forward=(small_ep,), input_grad=(small_tp,)), PLAN)
    assert (totals.tp, totals.ep) == (0, 12 + 15)
    totals = simai_formula(one_row(forward=(small_tp,), input_grad=(small_ep,)), PLAN)
    assert (totals.tp, totals.ep) == (15 + 12, 0)
    totals = simai_formula(one_row(weight_grad=(comm(Group.DP, 8192),)), PLAN)
    assert (totals.dp, totals.dp_ep) == (15, 0)
    totals = simai_formula(one_row(weight_grad=(comm(Group.DP_EP, 8192),)), PLAN)
    assert (totals.dp, totals.dp_ep) == (0, 10)


def test_bubble_has_compute_and_model_collectives_of_all_but_embedding_layer() -> None:
    def totals_of(name: str) -> SimaiTotals:
        forward, weight_grad = (comm(Group.TP, 8192),), (comm(Group.DP, 8192),)
        return simai_formula(one_row(name, forward=forward, weight_grad=weight_grad), PLAN)

    totals = totals_of("attention")
    assert totals.compute == 7
    assert totals.bubble == pytest.approx((7 + 15) * (3 - 1) / (2 * 5))
    assert totals.total == pytest.approx(7 + 15 + 15 + totals.bubble)
    assert totals_of("embedding_layer").bubble == 0
    assert totals_of("embedding_layer_1").bubble == totals.bubble


def test_only_forward_sizes_are_at_least_4096() -> None:
    one_byte = (comm(Group.TP, 1),)
    assert simai_formula(one_row(forward=one_byte), PLAN).tp == SMALL_MESSAGE_US[8]
    assert simai_formula(one_row(input_grad=one_byte), PLAN).tp == 0


def test_more_experts_than_data_ranks_leave_no_expert_gradient() -> None:
    plan = ParallelPlan(tp=8, dp=2, ep=16, expert_tp=1)
    totals = simai_formula(one_row(weight_grad=(comm(Group.DP_EP, GIB),)), plan)
    assert totals.dp_ep == 0


@pytest.mark.parametrize(
    ("group", "kind", "size", "columns"),
    [
        (Group.TP, CollectiveKind.ALL_GATHER, MIB, "tp, bubble, total"),
        (Group.TP, CollectiveKind.ALL_TO_ALL, MIB, "tp, bubble, total"),
        (Group.EP, CollectiveKind.ALL_TO_ALL, MIB, "ep, bubble, total"),
        (Group.TP, CollectiveKind.ALL_GATHER, MIB - 1, "no column relies on"),
        (Group.TP, CollectiveKind.ALL_REDUCE, MIB, "no column relies on"),
        (Group.EP, CollectiveKind.ALL_GATHER, MIB, "no column relies on"),
    ],
)
def test_note_names_the_columns_with_ratios(
    group: Group, kind: CollectiveKind, size: int, columns: str
) -> None:
    totals = simai_formula(one_row(forward=(comm(group, size, kind),)), PLAN)
    assert totals.note.startswith(columns)


def test_note_leaves_out_a_bubble_without_ratios() -> None:
    gather = (comm(Group.TP, MIB, CollectiveKind.ALL_GATHER),)
    assert simai_formula(one_row(forward=gather), ParallelPlan(tp=8)).note.startswith("tp, total:")
    outside = simai_formula(one_row("embedding_layer", forward=gather), PLAN)
    assert outside.note.startswith("tp, total:")


# Refusals


def test_other_policies_are_refused() -> None:
    with pytest.raises(WorkloadError, match="one row: policy is MICRO: SimAI's formula is defined"):
        simai_formula(one_row(policy=Policy.MICRO), PLAN)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vpp", 0),
        ("row_count", 0),
        ("nvlink_gbps", 0.0),
        ("nic_gbps", math.nan),
        ("nics_per_server", 0),
        ("npus_per_server", -8),
    ],
)
def test_numbers_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(PlanError, match=f"{name} is {value}: expected"):
        simai_formula(one_row(), PLAN, **{name: value})
