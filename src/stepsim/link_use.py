"""What a step sends over the links of a topology."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stepsim.collectives import AlgorithmChoice, flow_steps
from stepsim.collectives.flows import step_load
from stepsim.parallel import Ranks
from stepsim.pricing import GroupPatterns, Prices
from stepsim.program import Program, SegmentKind
from stepsim.taskgraph import TaskGraph
from stepsim.topology import Topology
from stepsim.topology.links import Floats, Ints
from stepsim.units import PS_PER_S
from stepsim.workload import CollectiveKind, CommOp, Group

Transfer = tuple[CollectiveKind, AlgorithmChoice, Ranks, int]
"""A collective or message, its algorithm, the groups that carry it out, bytes of each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """Use of one class of links in a step; one direction is one link.

    `busiest` is the link with the most bytes, `busy_ps` how long it takes to carry them, and
    `utilisation` that time over the step time.
    """

    name: str
    links: int
    bandwidth: float
    total_bytes: float
    busiest: str
    busiest_bytes: float
    busy_ps: int
    utilisation: float


def link_use(graph: TaskGraph, prices: Prices, step_time_ps: int) -> tuple[LinkUse, ...]:
    """Bytes of every transfer of the step on every link it crosses, summed up per class."""
    topology = prices.topology
    links, loads = _bytes_per_link(graph, prices)
    classes = topology.link_class(links)
    return tuple(
        _class_use(topology, c, links[classes == c], loads[classes == c], step_time_ps)
        for c in range(len(topology.link_classes))
    )


def _class_use(
    topology: Topology, c: int, links: Ints, loads: Floats, step_time_ps: int
) -> LinkUse:
    link = topology.link_classes[c]
    top = int(np.argmax(loads)) if loads.size else -1
    most = float(loads[top]) if loads.size else 0.0
    busy_ps = round(most / link.capacity * PS_PER_S)
    return LinkUse(
        name=link.name,
        links=topology.link_counts()[c],
        bandwidth=link.bandwidth,
        total_bytes=float(loads.sum()),
        busiest=" to ".join(topology.link_ends(int(links[top]))) if loads.size else "",
        busiest_bytes=most,
        busy_ps=busy_ps,
        utilisation=busy_ps / step_time_ps if step_time_ps else 0.0,
    )


def _bytes_per_link(graph: TaskGraph, prices: Prices) -> tuple[Ints, Floats]:
    links, loads = np.zeros(0, dtype=np.int64), np.zeros(0)
    for kind, algorithm, members, size_bytes in _transfers(graph, prices):
        for step in flow_steps(kind, prices.topology.layout(members[0]), algorithm):
            load = step_load(prices.topology, members, step)
            carried = load.loads * (step.repeat * size_bytes)
            both, place = np.unique(np.concatenate((links, load.links)), return_inverse=True)
            sums = np.bincount(place, np.concatenate((loads, carried)), len(both))
            links, loads = both, sums.astype(np.float64)
    return links, loads


def _transfers(graph: TaskGraph, prices: Prices) -> Iterator[Transfer]:
    """All transfers of the step, those with the same algorithm in the same groups as one."""
    for program in graph.programs:
        collectives, messages = _uses(graph, program)
        for group, ops in collectives.items():
            yield from _alike(ops, prices.groups(group), program.stage, graph, prices)
        for peer, ops in messages.items():
            yield from _alike(ops, prices.pairs(program.stage, peer), program.stage, graph, prices)


def _alike(
    ops: Counter[CommOp], patterns: GroupPatterns, stage: int, graph: TaskGraph, prices: Prices
) -> Iterator[Transfer]:
    here = patterns.members[:, 0] // graph.plan.stage_ranks == stage
    for pattern in np.unique(patterns.pattern[here]):
        sizes: Counter[tuple[CollectiveKind, AlgorithmChoice]] = Counter()
        for op, count in ops.items():
            algorithm = prices.cost(op, patterns, pattern).algorithm
            sizes[op.kind, algorithm] += count * op.size_bytes
        members = patterns.members[here & (patterns.pattern == pattern)]
        for (kind, algorithm), size_bytes in sizes.items():
            yield kind, algorithm, members, size_bytes


def _uses(
    graph: TaskGraph, program: Program
) -> tuple[dict[Group, Counter[CommOp]], dict[int, Counter[CommOp]]]:
    """How often a program runs each collective per group, and each message per stage it goes to."""
    collectives: dict[Group, Counter[CommOp]] = defaultdict(Counter)
    messages: dict[int, Counter[CommOp]] = defaultdict(Counter)
    for segment in program.segments:
        if segment.kind is SegmentKind.SEND:
            messages[segment.peer_stage][graph.comms[segment.comm]] += 1
    runs = Counter(segment.fragment for segment in program.segments if segment.fragment >= 0)
    for fragment, count in runs.items():
        for task in graph.fragments[fragment].tasks:
            if task.comm >= 0:
                op = graph.comms[task.comm]
                collectives[op.group][op] += count
    return collectives, messages
