"""Ranks of a job: how many along each parallel axis, who talks to whom, and who sits where.

Rank order is Megatron's: tp fastest, then cp, dp, pp slowest,
`rank = tp + TP * (cp + CP * (dp + DP * pp))`. NPUs are taken in the same order, or in another one
(`RankOrder`), in which cp stays beside dp.

`place` says which NPUs of a network a job takes. NVLink domains and nodes are innermost blocks:
switches that join some NPUs faster than the network outside joins the blocks. A job that needs more
than one of them takes so many NPUs of each that no group crosses a block's edge that need not. Of
72 it takes 64 where groups are 8, 16, 32 or 64.

`plan_job` makes a parallel plan of a workload, a topology and what the user asks for.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import gcd, lcm, prod
from types import MappingProxyType
from typing import Any, TypeGuard

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.base.units import npu_word
from stepsim.network.topology import Dimension, DimensionKind, NestedTopology, Topology
from stepsim.network.topology.network import MAX_NPUS
from stepsim.parallel.modes import EpLayout, JobPlacement, RankOrder
from stepsim.workload.rows import Group, ParallelAxis, Workload

Ranks = NDArray[np.int64]


class ParallelPlan(Struct, frozen=True, kw_only=True):
    """Degrees of a job of `tp * cp * dp * pp` NPUs and the microbatches of each pipeline per step.

    `expert_tp` consecutive ranks of a stage share an expert, and an expert-parallel group steps
    over these: with None they are the tp ranks, and a group is `ep` consecutive cp and dp indices;
    with 1 it is `ep` consecutive ranks (parallel folding). Parameters are in `fsdp` shards, over
    consecutive cp and dp indices. `rank_order` says which NPU each rank is.
    """

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    expert_tp: int | None = None
    fsdp: int = 1
    microbatches: int = 1
    rank_order: RankOrder = RankOrder.TP_DP_PP

    def __post_init__(self) -> None:
        for name, value in (*self.degrees().items(), ("microbatches", self.microbatches)):
            if value < 1:
                raise PlanError(f"{name} is {value}: it must be at least 1")
        self._check_experts()
        if self.replicas % self.fsdp:
            raise PlanError(
                f"fsdp is {self.fsdp}: it must divide {self._replicas_shown} ({self.replicas})"
            )

    def _check_experts(self) -> None:
        """Raise PlanError where experts cannot be spread as asked."""
        if self.expert_degree >= 1 and self.stage_ranks % (self.expert_degree * self.ep) == 0:
            return
        if self.expert_tp is not None:
            raise PlanError(
                f"expert_tp * ep is {self.expert_tp} * {self.ep}: it must divide the "
                f"{self.stage_ranks} ranks of a stage"
            )
        shown = f"{self._replicas_shown} ({self.replicas})"
        fits = self.stage_ranks % self.ep == 0
        other = ", or be folded over tp (--ep-layout folded)" if fits else ""
        raise PlanError(f"ep is {self.ep}: expert groups must divide {shown}{other}")

    @property
    def _replicas_shown(self) -> str:
        return "dp" if self.cp == 1 else "cp*dp"

    def degrees(self) -> dict[ParallelAxis, int]:
        """The degree of every axis: those that split the NPUs, the fastest first, then others."""
        axes = sorted(ParallelAxis, key=lambda axis: not axis.splits)
        return {axis: getattr(self, axis) for axis in axes}

    @property
    def words(self) -> str:
        """Its size and degrees, e.g. `64 NPUs (tp 4, dp 4, pp 4)`, as figures are titled."""
        named = (ParallelAxis.TP, ParallelAxis.DP, ParallelAxis.PP)
        shown = [f"{a} {size}" for a, size in self.degrees().items() if size > 1 or a in named]
        return f"{self.npus:,} NPUs ({', '.join(shown)})"

    @property
    def npus(self) -> int:
        """NPUs of the job."""
        return self.stage_ranks * self.pp

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters unless these are sharded: over cp and dp."""
        return self.cp * self.dp

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline stage."""
        return self.tp * self.replicas

    @property
    def expert_degree(self) -> int:
        """Ranks that share an expert."""
        return self.tp if self.expert_tp is None else self.expert_tp

    @property
    def ep_layout(self) -> EpLayout:
        """Whether expert groups lie inside cp and dp, or are folded over tp too."""
        return EpLayout.FOLDED if self.expert_degree % self.tp else EpLayout.DP

    def stage_of(self, rank: int) -> int:
        """Pipeline stage (pp index) of a rank."""
        return rank // self.stage_ranks

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """(tp, cp and dp, pp) indices of a rank; raises PlanError for a rank beyond the job."""
        if not 0 <= rank < self.npus:
            raise PlanError(f"rank is {rank}: the job has ranks 0 to {self.npus - 1}")
        return rank % self.tp, rank // self.tp % self.replicas, self.stage_of(rank)

    def npus_of(self, ranks: Ranks) -> Ranks:
        """Number in the network of the NPU that each rank is."""
        number = np.zeros_like(ranks)
        for (low, high), stride in self._strides.items():
            number += ranks % high // low * stride
        return number

    def npu_digit(self, low: int, high: int) -> tuple[int, int]:
        """A digit of rank numbers, `rank % high // low`, as one of the numbers of their NPUs.

        It must lie within the tp ranks, the replicas or the stages.
        """
        for (first, end), stride in self._strides.items():
            if first <= low and high <= end:
                return low // first * stride, high // first * stride
        raise ValueError(f"{low} to {high} is no digit of one axis")

    def npu_block(self, group: Group) -> int:
        """NPUs of aligned blocks of NPU numbers, of which each holds whole groups of a kind.

        E.g. 16 for groups of 8 every second NPU. Groups that begin or end inside tp groups need
        room for whole ones where the NPUs of tp and dp are apart.
        """
        low, high = self.span(group)
        strides = self._strides
        inner, outer = strides[1, self.tp], strides[self.tp, self.stage_ranks]
        if outer == self.tp and (inner == 1 or self.tp == 1):
            return high if high > low else 1
        low = gcd(low, self.tp) if low % self.tp else low
        high = lcm(high, self.tp) if self.tp % high else high
        ends = [
            min(high, end) // first * stride
            for (first, end), stride in strides.items()
            if max(low, first) < min(high, end)
        ]
        return max(ends, default=1)

    def rank_bound(self, bound: int) -> int:
        """Where a digit of NPU numbers that begins at `bound` begins in those of ranks, or 0."""
        for (first, end), stride in self._strides.items():
            size, rest = divmod(bound, stride)
            if not rest and 1 <= size <= end // first:
                return first * size
        return 0

    @property
    def _strides(self) -> dict[tuple[int, int], int]:
        """Digits of rank numbers for tp, replicas and stages, and each one's stride in NPUs."""
        spans = {
            "tp": (1, self.tp),
            "dp": (self.tp, self.stage_ranks),
            "pp": (self.stage_ranks, self.npus),
        }
        strides, stride = {}, 1
        for axis in self.rank_order.split("-"):
            low, high = spans[axis]
            strides[axis] = stride
            stride *= high // low
        return {span: strides[axis] for axis, span in spans.items()}

    def span(self, group: Group) -> tuple[int, int]:
        """Digit of rank numbers, `rank % high // low`, that tells members of a group apart."""
        expert, stage = self.expert_degree, self.stage_ranks
        spans = {
            Group.TP: (1, self.tp),
            Group.INNER: (1, self.tp),
            Group.CP: (self.tp, self.tp * self.cp),
            Group.DP: (self.tp * self.cp, stage),
            Group.DP_CP: (self.tp, stage),
            Group.OUTER: (self.tp, stage),
            Group.EP: (expert, expert * self.ep),
            Group.DP_EP: (expert * self.ep, stage),
            Group.ETP: (1, expert),
            Group.FSDP: (self.tp, self.tp * self.fsdp),
            Group.DP_FSDP: (self.tp * self.fsdp, stage),
            Group.PP: (stage, self.npus),
            Group.STAGE: (1, stage),
        }
        return spans[group]

    def groups(self, group: Group, ranks: int | None = None) -> Ranks:
        """All groups of a kind, an array of shape (groups, ranks of a group), members ascending.

        Groups inside a stage are listed stage by stage; of so many `ranks` only, where given.
        """
        low, high = self.span(group)
        grid = np.arange(ranks or self.npus, dtype=np.int64).reshape(-1, high // low, low)
        return grid.transpose(0, 2, 1).reshape(-1, high // low)

    @property
    def alone(self) -> frozenset[Group]:
        """Kinds of groups in which every rank is by itself."""
        return frozenset(group for group in Group if self.group_size(group) == 1)

    def group_size(self, group: Group) -> int:
        """Ranks of each group of a kind."""
        low, high = self.span(group)
        return high // low


KEPT_WHOLE = (Group.TP, Group.CP, Group.EP, Group.ETP)
"""Groups whose exchanges are waited for in every layer: they should not leave a block."""

SIZES_OF_GROUPS: Mapping[Group, str] = MappingProxyType(
    {Group.TP: "tp", Group.CP: "cp", Group.EP: "ep", Group.ETP: "expert_tp"}
)
"""Options that say how large these groups are."""


def place(topology: Topology, plan: ParallelPlan, placement: JobPlacement) -> Topology:
    """The network as a job lies in it; raises TopologyError if it is too small."""
    if not _has_blocks(topology) or plan.npus <= topology.dimensions[0].whole:
        return topology.fit(plan.npus)
    inside, *outside = topology.dimensions
    if placement is JobPlacement.PACKED:
        return topology.fit_blocks(plan.npus, inside.whole)
    shared = lcm(*(dimension.ports.npus_per_nic for dimension in outside))
    return topology.fit_blocks(plan.npus, _aligned(plan, inside, shared))


def _has_blocks(topology: Topology) -> TypeGuard[NestedTopology]:
    """Whether jobs may leave NPUs idle: the network outside must not know who is beside whom."""
    if not isinstance(topology, NestedTopology):
        return False
    inside, *outside = topology.dimensions
    free = (DimensionKind.SWITCH, DimensionKind.RAIL)
    plain = all(each.kind in free or each.rails for each in outside)
    return inside.kind is DimensionKind.SWITCH and bool(outside) and plain


def _aligned(plan: ParallelPlan, inside: Dimension, shared: int) -> int:
    """NPUs of a block so that its groups are whole: as many as is usual, or fewer.

    They are a multiple of `shared`, the NPUs that have a NIC together. Groups that no block can
    hold, or not together with smaller ones, are left out.
    """
    unit = shared
    for block in sorted(plan.npu_block(group) for group in KEPT_WHOLE):
        joint = lcm(unit, block)
        if joint <= inside.whole:
            unit = joint
    usual = inside.used or inside.whole
    return (usual // unit or inside.whole // unit) * unit or inside.whole


def crossing(plan: ParallelPlan, network: Topology) -> tuple[Group, ...]:
    """Groups kept whole where they can be, of which some lie in more than one fast block."""
    if not _has_fast_blocks(network) or plan.npus <= network.node_size:
        return ()
    same = plan.span(Group.ETP) == plan.span(Group.TP)
    groups = (group for group in KEPT_WHOLE if not (same and group is Group.ETP))
    return tuple(group for group in groups if _crosses(plan, group, network.node_size))


def _has_fast_blocks(network: Topology) -> bool:
    """Whether innermost blocks have faster links than those between them."""
    if not isinstance(network, NestedTopology) or len(network.dimensions) == 1:
        return False
    inside, outside, *_ = network.dimensions
    return inside.link.bandwidth > outside.link.bandwidth


def _crosses(plan: ParallelPlan, group: Group, size: int) -> bool:
    if plan.group_size(group) == 1 or size % plan.npu_block(group) == 0:
        return False
    blocks = plan.npus_of(plan.groups(group)) // size
    return bool((blocks.min(axis=1) < blocks.max(axis=1)).any())


class Crossing(Struct, frozen=True, kw_only=True):
    """Groups of a job that lie in more than one block, and how a job is placed that avoids it.

    Where no placement does, the other one is the job's own.
    """

    groups: tuple[Group, ...]
    block: int
    device: str
    links: str
    placement: JobPlacement
    rank_order: RankOrder
    other_placement: JobPlacement
    other_order: RankOrder

    @property
    def is_avoidable(self) -> bool:
        """Whether another placement or order of ranks has fewer groups cross."""
        now = self.placement, self.rank_order
        return (self.other_placement, self.other_order) != now

    @property
    def text(self) -> str:
        """Which groups cross what, and under which options they would not."""
        names = " and ".join(dict.fromkeys(str(group.value) for group in self.groups))
        npus = npu_word(self.device, self.block)
        where = f"{names} groups lie in several {self.links} blocks of {self.block} {npus}"
        if not self.is_avoidable:
            return where
        now, then = [], []
        if self.other_placement is not self.placement:
            now.append(f"placement {self.placement}")
            then.append(f"--placement {self.other_placement}")
        if self.other_order is not self.rank_order:
            now.append(f"rank_order {self.rank_order}")
            then.append(f"--rank-order {self.other_order}")
        return f"{' and '.join(now)}: {where}, with {' '.join(then)} in one"


def find_crossing(
    topology: Topology, network: Topology, plan: ParallelPlan, placement: JobPlacement
) -> Crossing | None:
    """Groups that cross blocks of `network` under a placement, and under which other they do not.

    The others are aligned blocks, with the job's order of ranks and with the usual one.
    """
    now = crossing(plan, network)
    if not now:
        return None
    others = [
        (JobPlacement.ALIGNED, order)
        for order in dict.fromkeys((plan.rank_order, RankOrder.TP_DP_PP))
    ]
    better = (
        (aligned, order)
        for aligned, order in others
        for other in [replace(plan, rank_order=order)]
        if set(crossing(other, place(topology, other, aligned))) < set(now)
    )
    other_placement, other_order = next(better, (placement, plan.rank_order))
    return Crossing(
        groups=now,
        block=network.node_size,
        device=topology.device,
        links=network.link_classes[0].name,
        placement=placement,
        rank_order=plan.rank_order,
        other_placement=other_placement,
        other_order=other_order,
    )


def whole_degrees(
    topology: Topology, plan: ParallelPlan, placement: JobPlacement, group: Group
) -> Iterator[int]:
    """Smaller degrees of a job's groups of a kind that lie in one block each, the largest first.

    The NPUs that tp or cp give up go to dp.
    """
    degree, name = plan.group_size(group), SIZES_OF_GROUPS[group]
    for smaller in (each for each in range(degree - 1, 0, -1) if degree % each == 0):
        changed: dict[str, Any] = {name: smaller}
        if group in (Group.TP, Group.CP):
            changed["dp"] = plan.dp * degree // smaller
        with suppress(PlanError):
            other = replace(plan, **changed)
            if group not in crossing(other, place(topology, other, placement)):
                yield smaller


def idle_npus(network: Topology) -> tuple[str, ...]:
    """That a job leaves NPUs of each block idle, as a sentence, or nothing."""
    if not isinstance(network, NestedTopology) or not network.dimensions[0].built:
        return ()
    inside = network.dimensions[0]
    every = f"{inside.built} {npu_word(network.device, inside.built)}"
    return (
        f"the job takes {inside.size} of the {every} of each {inside.link.name} block "
        "(--placement packed takes all)",
    )


_MAX_MICROBATCHES = 1 << 20


def plan_job(
    workload: Workload,
    topology: Topology,
    *,
    npus: int | None = None,
    pp: int | None = None,
    microbatches: int | None = None,
    global_batch: int | None = None,
    microbatch_size: int = 1,
    ep_layout: EpLayout | None = None,
) -> tuple[ParallelPlan, list[str]]:
    """Plan of a job, and the assumptions made.

    `npus` scales dp and keeps the microbatches of a pipeline (weak scaling) unless `global_batch`,
    in samples of which a microbatch holds `microbatch_size`, is given. `pp` re-splits the layers.
    Raises PlanError when the numbers contradict each other.
    """
    _check_range("npus", npus, MAX_NPUS)
    _check_range("pp", pp, MAX_NPUS)
    _check_range("microbatches", microbatches, _MAX_MICROBATCHES)
    _check_range("global_batch", global_batch, MAX_NPUS * _MAX_MICROBATCHES)
    _check_range("microbatch_size", microbatch_size, _MAX_MICROBATCHES)
    warnings: list[str] = []
    stages = pp or workload.made_for.pp
    degrees = workload.made_for.degrees() | {ParallelAxis.PP: stages}
    expert_tp = _expert_tp(workload, ep_layout)
    size, origin = _job_size(workload, topology, npus, degrees, expert_tp, warnings)
    if size > MAX_NPUS:
        raise PlanError(f"{size} NPUs ({origin}): expected at most {MAX_NPUS}")
    degrees[ParallelAxis.TP] = _inner_size(workload, topology, size)
    split = {axis: degree for axis, degree in degrees.items() if axis.splits}
    replica = prod(split.values())
    if size % replica:
        named = {a: n for a, n in split.items() if n > 1 or a in (ParallelAxis.TP, ParallelAxis.PP)}
        shown = f"{'*'.join(named)} = {'*'.join(map(str, named.values()))} = {replica}"
        raise PlanError(f"{size} NPUs ({origin}): not divisible by {shown}")
    chosen: dict[str, Any] = {str(axis): degree for axis, degree in degrees.items()}
    plan = ParallelPlan(**chosen, dp=size // replica, expert_tp=expert_tp)
    count = microbatches or workload.made_for.microbatches or len(workload.microbatches)
    if global_batch is not None:
        if microbatches is not None:
            raise PlanError("global_batch and microbatches contradict each other: give one of them")
        count = _microbatches(plan, global_batch, microbatch_size)
    return replace(plan, microbatches=count), warnings


def check_held_degrees(plan: ParallelPlan, workload: Workload) -> None:
    """Raise PlanError when a plan changes a degree that the file's numbers already hold.

    Those are all but dp and pp: a job may have any number of replicas, and of stages.
    """
    if _has_dimension_groups(workload):
        return
    asked = plan.degrees()
    for axis, own in workload.made_for.degrees().items():
        if axis is not ParallelAxis.PP and own != asked[axis]:
            raise PlanError(
                f"{axis} is {asked[axis]}: {workload.source} was made for {axis} {own}, and its "
                "compute times and sizes hold for that alone"
            )


def _expert_tp(workload: Workload, ep_layout: EpLayout | None) -> int | None:
    """Ranks that share an expert in the layout asked for, else in the file's; None: as many as tp.

    Raises PlanError where a file was made for another layout.
    """
    own = workload.made_for.expert_tp
    if ep_layout is None:
        return own
    asked = 1 if ep_layout is EpLayout.FOLDED else None
    if own not in (None, asked or workload.made_for.tp):
        raise PlanError(
            f"ep_layout is {ep_layout}: in {workload.source} {own} ranks share an expert, and its "
            "compute times and sizes hold for that alone"
        )
    return asked


def _has_dimension_groups(workload: Workload) -> bool:
    """Whether the policy speaks of topology dimensions instead of tp and dp."""
    return any(op.group in (Group.INNER, Group.OUTER) for op in workload.comms())


def _check_range(name: str, value: int | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        raise PlanError(f"{name} is {value}: expected 1 to {most}")


def _job_size(
    workload: Workload,
    topology: Topology,
    npus: int | None,
    degrees: Mapping[ParallelAxis, int],
    expert_tp: int | None,
    warnings: list[str],
) -> tuple[int, str]:
    """NPUs of the job and where the number comes from."""
    if npus is not None:
        return npus, "npus asked for"
    if workload.made_for.npus is not None:
        return workload.made_for.npus, "all_gpus in the file"
    size, pp = topology.default_npus, degrees[ParallelAxis.PP]
    split = prod(degree for axis, degree in degrees.items() if axis.splits)
    tp, shards = degrees[ParallelAxis.TP], degrees.get(ParallelAxis.FSDP, 1)
    unit = pp * lcm(split // pp, (expert_tp or tp) * degrees[ParallelAxis.EP], tp * shards)
    if not topology.grows:
        return size, f"the size of topology {topology.name}"
    rounded = -(-size // unit) * unit
    warnings.append(f"the file gives no all_gpus: stepsim assumes {rounded} NPUs (--npus sets it)")
    return rounded, "assumed"


def _inner_size(workload: Workload, topology: Topology, npus: int) -> int:
    """Tp, or the innermost dimension's size where the policy speaks of dimensions."""
    if _has_dimension_groups(workload):
        return min(topology.node_size, npus)
    return workload.made_for.tp


def _microbatches(plan: ParallelPlan, global_batch: int, microbatch_size: int) -> int:
    """Microbatches of a pipeline so that all pipelines together process the global batch."""
    per_round = plan.dp * microbatch_size
    if global_batch % per_round:
        raise PlanError(
            f"global_batch is {global_batch}: expected a multiple of dp * microbatch_size = "
            f"{plan.dp} * {microbatch_size} = {per_round}"
        )
    return global_batch // per_round
