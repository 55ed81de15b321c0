"""How a step uses the network: what communications put on which links, and what they take there."""

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from stepsim.base.arrays import Ints, Summand, add_up, distinct, first_largest
from stepsim.base.axes import CollectiveKind, Group, ParallelAxis
from stepsim.base.structs import finite
from stepsim.base.units import PS_PER_S
from stepsim.explain.report import CommUse, LinkUse, LinkUser
from stepsim.network.collectives.flows import steps_load
from stepsim.network.prices import Prices, Use
from stepsim.network.topology import Topology
from stepsim.workload.rows import CommOp

# NPUs that are traced together: what all of a large job put on links takes much memory.
_AT_ONCE = 1 << 18
# Whose bytes are on a link: communications of a kind in groups, along an axis.
_User = tuple[Group, CollectiveKind, ParallelAxis]


Traffic = Mapping[_User, Summand]
"""Links, ascending, and the bytes that each user puts on them in a step."""


def find_traffic(uses: Mapping[Use, int], prices: Prices) -> Traffic:
    """Trace the collectives of every stage and the messages it sends, each so often.

    Groups of all stages that do the same in the same way, equally often, are traced together.
    """
    alike: dict[tuple[CommOp, bytes, int], list[tuple[Use, int, Ints]]] = defaultdict(list)
    for use, count in uses.items():
        if use.peer_stage >= 0 and not use.sends:
            continue
        patterns = prices.patterns(use)
        for look, groups in patterns.rows(use.stage, prices.plan.stage_ranks):
            key = prices.comms[use.comm], patterns.key(look), count
            alike[key].append((use, look, patterns.npus[groups]))
    found: dict[_User, Summand] = {}
    for (op, _, count), several in alike.items():
        use, look, _ = several[0]
        npus = np.concatenate([each for *_, each in several])
        user = op.group, op.kind, op.axis
        parts = [found[user]] if user in found else []
        for some in np.array_split(npus, min(npus.size // _AT_ONCE + 1, len(npus))):
            links, loads = steps_load(prices.topology, some, prices.steps(use, look))
            parts.append((links, loads * (op.size_bytes * count)))
        found[user] = add_up(parts)
    return found


def comm_use(uses: Mapping[Use, int], prices: Prices) -> list[tuple[CommUse, int]]:
    """Every communication of the step, those that take most time first.

    With it comes over how many nodes the most spread of its groups lies.
    """
    counts: dict[CommOp, Counter[int]] = defaultdict(Counter)
    taken: dict[CommOp, set[tuple[int, int, str, int]]] = defaultdict(set)
    for use, count in uses.items():
        if use.peer_stage >= 0 and not use.sends:
            continue
        op, patterns = prices.comms[use.comm], prices.patterns(use)
        counts[op][use.stage] += count
        for look, _ in patterns.rows(use.stage, prices.plan.stage_ranks):
            cost = prices.cost(use, look)
            nodes = len(distinct(patterns.distinct[look] // prices.topology.node_size))
            taken[op].add((cost.time_ps, cost.alone_ps, cost.way, nodes))
    comms = []
    for op, costs in taken.items():
        if not op.size_bytes:
            continue
        times_ps, alone_ps, ways, nodes_of = zip(*costs, strict=True)
        comm = CommUse(
            group=op.group,
            kind=op.kind,
            ranks=2 if op.group is Group.PP else prices.plan.group_size(op.group),
            size_bytes=op.size_bytes,
            count=max(counts[op].values()),
            algorithms=tuple(sorted({*ways})),
            time_ps=max(times_ps),
            alone_ps=max(alone_ps),
        )
        comms.append((comm, max(nodes_of)))
    return sorted(comms, key=lambda each: -each[0].count * each[0].time_ps)


def link_use(topology: Topology, traffic: Traffic, step_time_ps: int) -> tuple[LinkUse, ...]:
    """Bytes of every transfer of the step on every link it crosses, summed up per class."""
    links, loads = np.zeros(0, np.int64), np.zeros(0)
    for own in traffic.values():
        links, loads = add_up([(links, loads), own])
    classes = topology.link_class(links)
    return tuple(
        _class_use(topology, c, (links[mine], loads[mine]), traffic, step_time_ps)
        for c, mine in enumerate(classes == c for c in range(len(topology.link_classes)))
    )


def _class_use(
    topology: Topology,
    c: int,
    total: Summand,
    traffic: Traffic,
    step_time_ps: int,
) -> LinkUse:
    link = topology.link_classes[c]
    links, loads = total
    top = int(links[first_largest(loads)]) if loads.size else -1
    most = float(loads.max(initial=0.0))
    busy_ps = round(most / link.capacity * PS_PER_S)
    return LinkUse(
        name=link.name,
        links=topology.link_counts()[c],
        used=int((loads != 0).sum()),
        bandwidth_bytes_per_s=finite(link.bandwidth),
        total_bytes=round(float(loads.sum())),
        busiest=" to ".join(topology.link_ends(top)) if loads.size else "",
        busiest_bytes=round(most),
        busy_ps=busy_ps,
        utilisation=busy_ps / step_time_ps if step_time_ps else 0.0,
        users=_users_of(top, traffic),
    )


def _users_of(link: int, traffic: Traffic) -> tuple[LinkUser, ...]:
    """Who puts how many bytes on a link, most first."""
    sizes: dict[tuple[Group, CollectiveKind], float] = defaultdict(float)
    for (group, kind, _), (links, loads) in traffic.items():
        sizes[group, kind] += float(loads[links == link].sum())
    most_first = sorted(sizes.items(), key=lambda item: -round(item[1], 3))
    return tuple(
        LinkUser(group=group, kind=kind, bytes=round(size))
        for (group, kind), size in most_first
        if size
    )
