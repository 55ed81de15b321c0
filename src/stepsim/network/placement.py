"""Which NPUs of a network a job takes, and whose groups cross the edges of fast blocks.

NVLink domains and nodes are innermost blocks: switches that join some NPUs faster than the network
outside joins the blocks. A job that needs more than one of them takes so many NPUs of each that no
group crosses a block's edge that need not. Of 72 it takes 64 where groups are 8, 16, 32 or 64.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import lcm

from stepsim.base.axes import Group, RankOrder
from stepsim.base.errors import PlanError
from stepsim.base.structs import Names, Noun, Values, replace
from stepsim.base.units import npu_word
from stepsim.network.topology import DimensionKind, NestedTopology, Topology
from stepsim.parallel.modes import JobPlacement
from stepsim.workload.plan import Plan

SIZES_OF_GROUPS: Mapping[Group, str] = {
    Group.TP: "tp",
    Group.CP: "cp",
    Group.EP: "ep",
    Group.ETP: "expert_tp",
}
_FREE = (DimensionKind.SWITCH, DimensionKind.RAIL)


def place(topology: Topology, plan: Plan, placement: JobPlacement) -> Topology:
    """The network as a job lies in it; raises TopologyError if it is too small.

    Jobs may leave NPUs idle where the network outside does not know who is beside whom. A block of
    an aligned job has as many NPUs as is usual, or fewer, so that its groups are whole. They are a
    multiple of the NPUs that have a NIC together. Groups that no block can hold, or not together
    with smaller ones, are left out.
    """
    if not isinstance(topology, NestedTopology):
        return topology.fit(plan.npus)
    inside, *outside = topology.dimensions
    free = all(each.kind in _FREE or each.rails for each in outside)
    if inside.kind is not DimensionKind.SWITCH or not (outside and free):
        return topology.fit(plan.npus)
    if plan.npus <= inside.whole:
        return topology.fit(plan.npus)
    if placement is JobPlacement.PACKED:
        return topology.fit_blocks(plan.npus, inside.whole)
    unit = lcm(*(dimension.ports.npus_per_nic for dimension in outside))
    for block in sorted(map(plan.npu_block, SIZES_OF_GROUPS)):
        joint = lcm(unit, block)
        if joint <= inside.whole:
            unit = joint
    usual = inside.used or inside.whole
    count = (usual // unit or inside.whole // unit) * unit or inside.whole
    return topology.fit_blocks(plan.npus, count)


def crossing(plan: Plan, network: Topology) -> tuple[Group, ...]:
    """Groups kept whole where they can be, of which some lie in more than one fast block.

    Blocks are fast where their links are faster than those between them.
    """
    size = network.node_size
    if len(network.dimensions) < 2:
        return ()
    inside, outside, *_ = network.dimensions
    if plan.npus <= size or inside.link.bandwidth <= outside.link.bandwidth:
        return ()
    found = []
    for group in SIZES_OF_GROUPS:
        if plan.group_size(group) > 1 and size % plan.npu_block(group):
            blocks = plan.npus_of(plan.groups(group)) // size
            if (blocks.min(axis=1) < blocks.max(axis=1)).any():
                found.append(group)
    same = plan.span(Group.ETP) == plan.span(Group.TP)
    return tuple(group for group in found if not (same and group is Group.ETP))


class Crossing(Noun):
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
        where = f"{names} groups span several {self.links} blocks of {self.block} {npus}"
        if not self.is_avoidable:
            return where
        now, then = [], []
        if self.other_placement is not self.placement:
            now.append(f"placement {self.placement}")
            then.append(f"--placement {self.other_placement}")
        if self.other_order is not self.rank_order:
            now.append(f"rank_order {self.rank_order}")
            then.append(f"--rank-order {self.other_order}")
        return f"{' and '.join(now)}: {where}, with {' '.join(then)} they fit in one"


def find_crossing(
    topology: Topology, network: Topology, plan: Plan, placement: JobPlacement
) -> Crossing | None:
    """Groups that cross blocks of `network` under a placement, and under which other they do not.

    The others are aligned blocks, with the job's order of ranks and with the usual one.
    """
    now = crossing(plan, network)
    if not now:
        return None
    aligned = JobPlacement.ALIGNED
    better = (
        (aligned, order)
        for order in dict.fromkeys((plan.rank_order, RankOrder.TP_DP_PP))
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
    topology: Topology, plan: Plan, placement: JobPlacement, group: Group
) -> Iterator[int]:
    """Smaller degrees of a job's groups of a kind that lie in one block each, the largest first.

    The NPUs that tp or cp give up go to dp.
    """
    degree, name = plan.group_size(group), SIZES_OF_GROUPS[group]
    for smaller in (each for each in range(degree - 1, 0, -1) if degree % each == 0):
        changed: Values = {name: smaller}
        if group in (Group.TP, Group.CP):
            changed["dp"] = plan.dp * degree // smaller
        with suppress(PlanError):
            other = replace(plan, **changed)
            if group not in crossing(other, place(topology, other, placement)):
                yield smaller


def idle_npus(network: Topology) -> Names:
    """That a job leaves NPUs of each block idle, as a sentence, or nothing."""
    if not network.dimensions or not network.dimensions[0].built:
        return ()
    inside = network.dimensions[0]
    every = f"{inside.built} {npu_word(network.device, inside.built)}"
    return (
        f"the job takes {inside.size} of the {every} of each {inside.link.name} block "
        "(--placement packed takes all)",
    )
