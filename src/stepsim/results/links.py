"""What a step sends over the links of a topology, and which communications do."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Ints
from stepsim.base.units import PS_PER_S
from stepsim.engine.prices import Prices
from stepsim.graph.build import TaskGraph, Use
from stepsim.network.collectives.flows import step_load
from stepsim.network.topology import Load, Topology
from stepsim.network.topology.links import sum_loads
from stepsim.workload.rows import CollectiveKind, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUser:
    """Communications of one kind in one kind of group, and their bytes on a link."""

    group: Group
    kind: CollectiveKind
    size_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """Use of one class of links, of `bandwidth` bytes/s, in a step; one direction is one link.

    `used` of the `links` carry anything. `busiest` is the link with the most bytes, `busy_ps` how
    long it takes to carry them, `utilisation` that time over the step time, and `users` says whose
    bytes they are, most first.
    """

    name: str
    links: int
    used: int
    bandwidth: float
    total_bytes: float
    busiest: str
    busiest_bytes: float
    busy_ps: int
    utilisation: float
    users: tuple[LinkUser, ...]


def link_use(graph: TaskGraph, prices: Prices, step_time_ps: int) -> tuple[LinkUse, ...]:
    """Bytes of every transfer of the step on every link it crosses, summed up per class."""
    topology = prices.topology
    by_user = _bytes_by_user(graph, prices)
    total = _sum(topology, list(by_user.values()))
    classes = topology.link_class(total.links)
    return tuple(
        _class_use(topology, c, total, classes == c, by_user, step_time_ps)
        for c in range(len(topology.link_classes))
    )


def _class_use(
    topology: Topology,
    c: int,
    total: Load,
    mine: NDArray[np.bool_],
    by_user: dict[tuple[Group, CollectiveKind], Load],
    step_time_ps: int,
) -> LinkUse:
    link = topology.link_classes[c]
    links, loads = total.links[mine], total.loads[mine]
    top = int(links[np.argmax(loads)]) if loads.size else -1
    most = float(loads.max(initial=0.0))
    busy_ps = round(most / link.capacity * PS_PER_S)
    return LinkUse(
        name=link.name,
        links=topology.link_counts()[c],
        used=int(np.count_nonzero(loads)),
        bandwidth=link.bandwidth,
        total_bytes=float(loads.sum()),
        busiest=" to ".join(topology.link_ends(top)) if loads.size else "",
        busiest_bytes=most,
        busy_ps=busy_ps,
        utilisation=busy_ps / step_time_ps if step_time_ps else 0.0,
        users=_users_of(top, by_user),
    )


def _users_of(link: int, by_user: dict[tuple[Group, CollectiveKind], Load]) -> tuple[LinkUser, ...]:
    """Who puts how many bytes on a link, most first."""
    users = [
        LinkUser(group=group, kind=kind, size_bytes=float(load.loads[load.links == link].sum()))
        for (group, kind), load in by_user.items()
    ]
    return tuple(sorted((u for u in users if u.size_bytes), key=lambda u: -u.size_bytes))


def _bytes_by_user(graph: TaskGraph, prices: Prices) -> dict[tuple[Group, CollectiveKind], Load]:
    """Bytes on every link per kind of communication; `hops` are left empty."""
    found: dict[tuple[Group, CollectiveKind], list[Load]] = defaultdict(list)
    for stage in range(len(graph.programs)):
        for use in graph.uses(stage):
            if use.peer_stage < 0 or use.sends:
                op, count = graph.comms[use.comm], graph.counts(stage)[use]
                for groups in alike_groups(graph, prices, use):
                    found[op.group, op.kind] += use_loads(graph, prices, use, groups, count)
    return {user: _sum(prices.topology, loads) for user, loads in found.items()}


def alike_groups(graph: TaskGraph, prices: Prices, use: Use) -> Iterator[Ints]:
    """The groups of a stage that carry out a communication, those that look alike together."""
    patterns = prices.patterns(use)
    here = patterns.members[:, 0] // graph.plan.stage_ranks == use.ends[0]
    for pattern in np.unique(patterns.pattern[here]):
        yield np.flatnonzero(here & (patterns.pattern == pattern))


def use_loads(
    graph: TaskGraph, prices: Prices, use: Use, groups: Ints, count: int = 1
) -> Iterator[Load]:
    """Bytes of a communication run `count` times in groups that look alike, step by step."""
    patterns = prices.patterns(use)
    size = count * graph.comms[use.comm].size_bytes
    for step in prices.steps(use.comm, patterns, int(groups[0])):
        load = step_load(prices.topology, patterns.npus[groups], step)
        yield replace(load, loads=load.loads * (step.repeat * size))


def _sum(topology: Topology, loads: Sequence[Load]) -> Load:
    nothing = np.zeros((0, len(topology.link_classes)), dtype=np.int64)
    return sum_loads([(load.links, load.loads) for load in loads], nothing)
