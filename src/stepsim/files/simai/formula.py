"""What SimAI-Analytical prints for a workload: its formulas, to compare a simulation with.

Source: SimAI v1.6/1.7, `Workload.cc` (rows), `Layer.cc` (`compute_time`, `report`) and
`calbusbw.cc` (`calculateBusBw`). With its message-size ratio tables, which are not reproduced
here (every ratio is 1), these formulas give each figure it was seen to print to the microsecond;
`tests/oracles/test_simai_formula.py` has the figures.

Each row of the file counts once and nothing overlaps: no forward runs again at a checkpoint, and
with the default options pipeline transfers cost nothing. Bandwidths are GiB/s (bytes are divided
by 2**30); a collective takes whole nanoseconds, the fraction cut off.
"""

from collections.abc import Iterable

from msgspec import Struct

from stepsim.base.errors import PlanError, WorkloadError
from stepsim.files.simai.sections import Policy
from stepsim.files.simai.text import SimaiDocument
from stepsim.parallel.ranks import ParallelPlan
from stepsim.workload.rows import CollectiveKind, CommOp, Group, Row, Work

_MIB = 1 << 20
_GIB = 1 << 30
_NS_PER_S = 1e9
SMALL_MESSAGE_US = {2: 10, 4: 12, 8: 15, 16: 66, 32: 135, 64: 200, 128: 320}
"""Microseconds of any collective of 2 bytes to 1 MiB (exclusive), by ranks of the group."""

_MIN_FORWARD_BYTES = 4096
_NO_BUBBLE_ROW = "embedding_layer"
_POLICIES = (Policy.HYBRID_TRANSFORMER, Policy.HYBRID_TRANSFORMER_FWD_IN_BCKWD)
_RATIO_KINDS = {
    Group.TP: (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL),
    Group.EP: (CollectiveKind.ALL_TO_ALL,),
}


class SimaiTotals(Struct, frozen=True, kw_only=True):
    """The line SimAI-Analytical prints, in microseconds.

    `note` says which columns differ from SimAI's because its ratio tables are not reproduced:
    `tp` and `ep` where a row has such a collective, and with them `bubble` and `total`.
    """

    compute: float
    dp: float
    dp_ep: float
    tp: float
    ep: float
    bubble: float
    total: float
    note: str


class Servers(Struct, frozen=True, kw_only=True):
    """SimAI's options `-nv`, `-nic` (GiB/s), `-n_p_s` and `-g_p_s`."""

    nvlink_gbps: float = 360.0
    nic_gbps: float = 48.5
    nics_per_server: int = 8
    npus_per_server: int = 8

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise PlanError(f"{name} is {getattr(self, name)}: expected above 0")


class GroupSpan(Struct, frozen=True, kw_only=True):
    """Ranks of a group and where SimAI places them: on `nodes` of `per_node` NPUs each."""

    ranks: int
    nodes: int
    per_node: int


class _RowTimes(Struct, frozen=True, kw_only=True):
    """One row: compute in ps; collectives in ns, with the column each is counted in."""

    name: str
    compute_ps: int
    model_ns: int
    model_column: str
    weight_ns: int
    weight_column: str
    has_ratio: bool


def simai_formula(
    document: SimaiDocument,
    plan: ParallelPlan,
    *,
    vpp: int | None = None,
    nvlink_gbps: float = 360.0,
    nic_gbps: float = 48.5,
    nics_per_server: int = 8,
    npus_per_server: int = 8,
    row_count: int | None = None,
) -> SimaiTotals:
    """SimAI-Analytical's totals for a workload file on `plan.npus` NPUs.

    Degrees are the plan's; GA and, without `vpp`, VPP are the header's (missing: 1), and the rows
    the file's, whatever the plan's microbatches. SimAI reads as many rows as line 2 declares: give
    that as `row_count` where the file has more (96 for the 98 rows of seed 000). Columns that rely
    on the ratio tables, so that they cannot match where they are not 0: TP, EP, and the bubble and
    total that contain them, see the note; of seed 000, compute, DP and DP_EP match.
    Raises WorkloadError for a policy other than HYBRID_TRANSFORMER*, for which SimAI reads no
    degrees, and PlanError for numbers out of range.
    """
    header = document.header
    if header.policy not in _POLICIES:
        raise WorkloadError(
            f"{document.source}: policy is {header.policy}: "
            f"SimAI's formula is defined for {' and '.join(_POLICIES)} only"
        )
    vpp = header.vpp if vpp is None else vpp
    for name, value in (("vpp", vpp), ("row_count", row_count)):
        if value is not None and value < 1:
            raise PlanError(f"{name} is {value}: expected at least 1")
    servers = Servers(
        nvlink_gbps=nvlink_gbps,
        nic_gbps=nic_gbps,
        nics_per_server=nics_per_server,
        npus_per_server=npus_per_server,
    )
    times = [_row_times(row, plan, servers) for row in document.rows[:row_count]]
    return _totals(times, (plan.pp - 1) / ((header.ga or 1) * vpp))


def _totals(times: list[_RowTimes], bubble_factor: float) -> SimaiTotals:
    """Columns from rows (`Layer::report`).

    M = sum of compute, F and I over the rows not named exactly `embedding_layer`,
    bubble = M * (PP - 1) / (GA * VPP), total = the sum of all columns.
    """
    compute = sum(row.compute_ps for row in times) / 1e6
    columns = {name: _column_ns(times, name) / 1e3 for name in ("dp", "dp_ep", "tp", "ep")}
    piped = [row for row in times if row.name != _NO_BUBBLE_ROW]
    stage = sum(row.compute_ps for row in piped) / 1e6 + sum(row.model_ns for row in piped) / 1e3
    bubble = stage * bubble_factor
    return SimaiTotals(
        compute=compute,
        **columns,
        bubble=bubble,
        total=compute + sum(columns.values()) + bubble,
        note=_note(times, bubble_factor > 0 and any(row.has_ratio for row in piped)),
    )


def _column_ns(times: Iterable[_RowTimes], column: str) -> int:
    return sum(
        row.model_ns * (row.model_column == column) + row.weight_ns * (row.weight_column == column)
        for row in times
    )


def _note(times: Iterable[_RowTimes], bubble: bool) -> str:
    """Columns that SimAI's ratio tables change."""
    touched = {row.model_column for row in times if row.has_ratio}
    if not touched:
        return "no column relies on SimAI's ratio tables"
    affected = {"tp": "tp" in touched, "ep": "ep" in touched, "bubble": bubble, "total": True}
    columns = [name for name, is_affected in affected.items() if is_affected]
    return (
        f"{', '.join(columns)}: without SimAI's message-size ratio tables (TP all-gather and "
        "reduce-scatter, TP and EP all-to-all), which are not reproduced: every ratio is 1"
    )


def _row_times(row: Row, plan: ParallelPlan, servers: Servers) -> _RowTimes:
    """Times of a row; F and I count as EP where the forward collective does, else as TP."""
    forward = _work_ns(row.forward, plan, servers, least=_MIN_FORWARD_BYTES)
    model_ns = forward + _work_ns(row.input_grad, plan, servers)
    model = (*row.forward.comms, *row.input_grad.comms)
    return _RowTimes(
        name=row.name,
        compute_ps=sum(work.compute_ps for _, work in row.works()),
        model_ns=model_ns,
        model_column="ep" if _uses(row.forward, Group.EP) else "tp",
        weight_ns=_work_ns(row.weight_grad, plan, servers),
        weight_column="dp_ep" if _uses(row.weight_grad, Group.DP_EP) else "dp",
        has_ratio=any(_has_ratio(comm, plan) for comm in model),
    )


def _uses(work: Work, group: Group) -> bool:
    return any(comm.group is group for comm in work.comms)


def _work_ns(work: Work, plan: ParallelPlan, servers: Servers, *, least: int = 1) -> int:
    """Nanoseconds of a phase's collectives; a size from 1 to `least` counts as `least`."""
    return sum(
        collective_ns(
            comm.kind,
            max(comm.size_bytes, least) if comm.size_bytes else 0,
            group_span(comm.group, plan, servers),
            servers,
        )
        for comm in work.comms
    )


def _has_ratio(comm: CommOp, plan: ParallelPlan) -> bool:
    """Whether SimAI divides by a table value (`Layer::cal_ratio`); small messages return before."""
    ranks = plan.ep if comm.group is Group.EP else plan.tp
    return comm.kind in _RATIO_KINDS.get(comm.group, ()) and ranks > 1 and comm.size_bytes >= _MIB


def collective_ns(kind: CollectiveKind, size_bytes: int, span: GroupSpan, servers: Servers) -> int:
    """Whole nanoseconds of one collective (`Layer::compute_time`), the fraction cut off.

    1 < S < 1 MiB: by the size of the group, other sizes 0; else S / 2**30 / busbw * (n-1)/n
    seconds, twice that for an all-reduce. A group of one takes no time (SimAI: undefined for TP).
    """
    if span.ranks < 2:
        return 0
    if 1 < size_bytes < _MIB:
        return SMALL_MESSAGE_US.get(span.ranks, 0) * 1_000
    passes = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    busbw = bus_bandwidth(kind, span, servers)
    return int(size_bytes / _GIB / busbw * _NS_PER_S * passes * (span.ranks - 1) / span.ranks)


def bus_bandwidth(kind: CollectiveKind, span: GroupSpan, servers: Servers) -> float:
    """Bus bandwidth of a group in GiB/s (`calculateBusBw`, ring algorithm).

    One node: NVLink. All-to-all across nodes: nic*nics/g * (N-1)/((nodes-1)*g). One NPU per node:
    nic*nics. Else min(nv, nic*nics), or min(nv*g/(g-1), nic*nics) where nic*nics > nv. `nics` is
    the share of a server's NICs that the group's NPUs on a node have, N = nodes*g. (SimAI divides
    NICs by TP in integers: the same where that leaves no rest.)
    """
    g, nodes, nvlink = span.per_node, span.nodes, servers.nvlink_gbps
    if nodes == 1:
        return nvlink
    network = servers.nic_gbps * servers.nics_per_server * g / servers.npus_per_server
    if kind is CollectiveKind.ALL_TO_ALL:
        return network / g * (nodes * g - 1) / ((nodes - 1) * g)
    if g == 1:
        return network
    return min(nvlink * g / (g - 1), network) if network > nvlink else network


def group_span(group: Group, plan: ParallelPlan, servers: Servers) -> GroupSpan:
    """Nodes SimAI prices a group on (`Layer::compute_time`).

    TP ranks and TP*EP ranks fill servers. DP and DP_EP count as many nodes as they have ranks,
    even inside one server, and the NPUs per node that TP (TP*EP) leaves, at least one.
    """
    if group is Group.TP:
        nodes = _nodes(plan.tp, servers)
        return GroupSpan(ranks=plan.tp, nodes=nodes, per_node=min(plan.tp, servers.npus_per_server))
    if group is Group.EP:
        nodes = _nodes(plan.tp * plan.ep, servers)
        return GroupSpan(
            ranks=plan.ep, nodes=nodes, per_node=max(servers.npus_per_server // plan.tp, 1)
        )
    inner = plan.tp * (plan.ep if group is Group.DP_EP else 1)
    ranks = plan.dp // (plan.ep if group is Group.DP_EP else 1)
    return GroupSpan(
        ranks=ranks, nodes=max(ranks, 1), per_node=max(servers.npus_per_server // inner, 1)
    )


def _nodes(npus: int, servers: Servers) -> int:
    return max(npus // servers.npus_per_server, 1)
