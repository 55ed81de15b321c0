"""What holds for every collective, algorithm and shipped topology."""

from functools import cache
from math import ceil, floor, inf, log2
from typing import Any

import networkx as nx
import numpy as np
import pytest
from helpers import examples
from hypothesis import given, strategies as st

from stepsim.base.arrays import Ints
from stepsim.base.axes import CollectiveKind
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.files.load import topology_of
from stepsim.files.reading import topology_names
from stepsim.network.collectives import (
    Algorithm,
    AlgorithmChoice,
    able_algorithms,
    candidates,
    collective_cost,
    collective_shape,
    flow_steps,
    parse_algorithm,
)
from stepsim.network.collectives.cost import collective_times_ps
from stepsim.network.collectives.flows import link_parameters
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import PLAIN
from stepsim.network.topology.graph import links_of

NPUS = 32
SIZES = st.integers(1, 2**36)
KINDS = st.sampled_from(CollectiveKind)
IN_SWITCH = {Algorithm.NVLS}
LOG_DEPTH = {Algorithm.HALVING_DOUBLING, Algorithm.DOUBLE_BINARY_TREE}


@cache
def shipped(name: str) -> Topology:
    """A shipped network by its links alone: protocols have times of their own."""
    topology: Any = topology_of(name)
    if hasattr(topology, "library"):
        topology = replace(topology, library=PLAIN)
    found: Topology = topology
    return found.fit(max(NPUS, found.node_size)) if found.grows else found


@cache
def wires(name: str) -> nx.DiGraph:
    """The network with the capacity of parallel links summed up; free links have none."""
    graph = nx.DiGraph()
    for _, start, end, link in links_of(shipped(name)):
        before = graph.edges[start, end]["capacity"] if graph.has_edge(start, end) else 0.0
        graph.add_edge(start, end, capacity=before + link.capacity)
    for _, _, data in graph.edges(data=True):
        if data["capacity"] == inf:
            del data["capacity"]
    return graph


def cut(name: str, inside: list[int], outside: list[int]) -> float:
    """Bytes/s that can leave some NPUs for others at once, by max-flow."""
    graph = wires(name).copy()
    graph.add_edges_from(("source", f"npu{npu}") for npu in inside)
    graph.add_edges_from((f"npu{npu}", "sink") for npu in outside)
    try:
        return float(nx.maximum_flow_value(graph, "source", "sink"))
    except nx.NetworkXUnbounded:
        return inf


def must_cross(kind: CollectiveKind, inside: int, outside: int, root: bool) -> float:
    """Sizes that must go from the ranks inside to those outside; `root` is inside or not."""
    ranks = inside + outside
    return {
        CollectiveKind.ALL_REDUCE: 1.0,
        CollectiveKind.ALL_GATHER: inside / ranks,
        CollectiveKind.REDUCE_SCATTER: outside / ranks,
        CollectiveKind.ALL_TO_ALL: inside * outside / ranks,
        CollectiveKind.BROADCAST: float(root),
        CollectiveKind.SCATTER: outside / ranks * root,
        CollectiveKind.REDUCE: float(not root),
        CollectiveKind.GATHER: inside / ranks * (not root),
        CollectiveKind.SEND_RECV: 0.0,
    }[kind]


@st.composite
def groups(draw: st.DrawFn) -> tuple[str, Ints]:
    """A shipped topology and some of its NPUs, often whole nodes."""
    name = draw(st.sampled_from(topology_names()))
    topology = shipped(name)
    npus = min(NPUS, topology.npus)
    size = topology.node_size
    if draw(st.booleans()):
        chosen = draw(st.sets(st.integers(0, npus - 1), min_size=2, max_size=16))
    else:
        nodes = draw(st.integers(1, max(1, npus // size)))
        every = draw(st.sampled_from([1, 2, 4]))
        chosen = {n * size + i for n in range(nodes) for i in range(0, size, every)}
        chosen = chosen if len(chosen) > 1 else {0, npus - 1}
    return name, np.array(sorted(npu for npu in chosen if npu < topology.npus))


def choices(name: str, kind: CollectiveKind, members: Ints) -> list[AlgorithmChoice]:
    """Everything that can carry the kind out, levels set."""
    layout = shipped(name).layout(members)
    able = map(parse_algorithm, able_algorithms(kind, layout))
    return [c for a in able for c in candidates(kind, layout, a)]


@examples(60)
@given(groups(), KINDS, st.integers(2**24, 2**36), st.data())
def test_no_algorithm_beats_what_must_cross_a_cut(
    group: tuple[str, Ints], kind: CollectiveKind, size: int, data: st.DataObject
) -> None:
    """Any cut: of one rank (injection), of half of them (bisection), any other."""
    name, members = group
    ranks = list(range(len(members)))
    inside = set(data.draw(st.sets(st.sampled_from(ranks), min_size=1, max_size=len(ranks) - 1)))
    ends = [[int(members[r]) for r in ranks if (r in inside) is side] for side in (True, False)]
    rate = cut(name, *ends)
    crossing = must_cross(kind, len(ends[0]), len(ends[1]), 0 in inside)
    bound_ps = crossing * size / rate * PS_PER_S if rate < inf else 0.0
    choice = data.draw(st.sampled_from(choices(name, kind, members)))
    topology = shipped(name)
    shape = collective_shape(topology, kind, members, choice)
    time_ps = collective_cost(topology, shape, size).time_ps
    assert time_ps >= bound_ps * (1 - 1e-9) - 100, choice


@examples(60)
@given(groups(), KINDS, st.data())
def test_no_algorithm_beats_the_latency_of_its_depth(
    group: tuple[str, Ints], kind: CollectiveKind, data: st.DataObject
) -> None:
    name, members = group
    topology, ranks = shipped(name), len(members)
    path = min(
        collective_cost(
            topology, collective_shape(topology, CollectiveKind.SEND_RECV, members[[a, b]]), 1
        ).latency_ps
        for a in range(ranks)
        for b in range(ranks)
        if a != b
    )
    choice = data.draw(st.sampled_from(choices(name, kind, members)))
    depth = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    if choice.algorithm is Algorithm.RING:
        depth *= ranks - 1
    elif choice.algorithm is Algorithm.TREE:
        depth *= ceil(log2(ranks))
    elif choice.algorithm in LOG_DEPTH:
        depth *= floor(log2(ranks))
    cost = collective_cost(topology, collective_shape(topology, kind, members, choice), 1)
    assert cost.latency_ps >= cost.launch_ps + depth * path, choice
    assert cost.latency_ps <= cost.time_ps


@examples(60)
@given(groups(), KINDS, st.data())
def test_everybody_who_must_hear_of_somebody_does(
    group: tuple[str, Ints], kind: CollectiveKind, data: st.DataObject
) -> None:
    """News spreads along the flows, step by step; a pipeline's one step is walked to its end.

    Every rank also takes in and gives off what it must: blocks of others, or its own.
    """
    name, members = group
    layout, ranks = shipped(name).layout(members), len(members)
    choice = data.draw(st.sampled_from(choices(name, kind, members)))
    heard = np.eye(ranks, dtype=bool)
    into, out = np.zeros(ranks), np.zeros(ranks)
    for step in (each.listed for each in flow_steps(kind, layout, choice)):
        shares = np.broadcast_to(step.fraction, step.edges[0].shape)
        np.add.at(into, step.edges[1], shares * step.repeat)
        np.add.at(out, step.edges[0], shares * step.repeat)
        pipelined = step.repeat == 1 and any(
            Algorithm(level) in (Algorithm.RING, Algorithm.DOUBLE_BINARY_TREE, Algorithm.NVLS)
            for level in (choice.algorithm, *choice.levels)
        )
        for _ in range(ranks if pipelined else min(step.repeat, ranks)):
            told = heard.copy()
            np.logical_or.at(told, step.edges[1], heard[step.edges[0]])
            heard = told
    others = (ranks - 1) / ranks
    match kind:
        case CollectiveKind.SEND_RECV:
            if ranks == 2:
                assert heard[1, 0]
                assert into.tolist() == [0, 1]
            else:  # all send to the next one of a ring
                assert into.tolist() == out.tolist() == [1.0] * ranks
        case CollectiveKind.BROADCAST | CollectiveKind.SCATTER:
            assert heard[:, 0].all()
            must = 1.0 if kind is CollectiveKind.BROADCAST else 1 / ranks
            assert (into[1:] >= must - 1e-9).all()
        case CollectiveKind.REDUCE | CollectiveKind.GATHER:
            assert heard[0].all()
            must = 1.0 if kind is CollectiveKind.REDUCE else 1 / ranks
            assert (out[1:] >= must - 1e-9).all()
        case CollectiveKind.ALL_REDUCE:
            assert heard.all()
            assert (np.minimum(into, out) >= 1 - 1e-9).all()
            spent = 1.0 if choice.algorithm in IN_SWITCH or Algorithm.NVLS in choice.levels else 2.0
            assert into.sum() >= spent * (ranks - 1) - 1e-9
        case CollectiveKind.ALL_GATHER | CollectiveKind.ALL_TO_ALL:
            assert heard.all()
            assert (into >= others - 1e-9).all()
        case CollectiveKind.REDUCE_SCATTER:
            assert heard.all()
            assert (out >= others - 1e-9).all()
    assert into.sum() == pytest.approx(out.sum())


@examples(60)
@given(groups(), KINDS, st.lists(SIZES, min_size=1, max_size=4))
def test_auto_is_the_fastest_and_the_same_for_many_at_once(
    group: tuple[str, Ints], kind: CollectiveKind, sizes: list[int]
) -> None:
    name, members = group
    topology = shipped(name)
    layout = topology.layout(members)
    shape = collective_shape(topology, kind, members)
    listed = candidates(kind, layout, offered=topology.algorithms)
    assert [candidate.algorithm for candidate in shape.candidates] == list(listed)
    count = len(sizes)
    capacity, latency, endpoint = link_parameters(topology.link_classes)
    links = (capacity.repeat(count, 0), latency.repeat(count, 0), endpoint.repeat(count, 0))
    launch = np.full(count, topology.launch_latency_ps)
    times, chosen = collective_times_ps(shape, np.array(sizes, dtype=float), launch, links)
    for size, time_ps, number in zip(sizes, times.tolist(), chosen.tolist(), strict=True):
        alone = [
            collective_cost(topology, collective_shape(topology, kind, members, choice), size)
            for choice in listed
        ]
        cost = collective_cost(topology, shape, size)
        assert time_ps == cost.time_ps == min(each.time_ps for each in alone)
        assert cost.algorithm == listed[number]
        assert alone[number].time_ps == time_ps
        parts = sum(step.time_ps * step.repeat for step in cost.steps)
        assert cost.time_ps == cost.launch_ps + parts
        assert len(cost.steps) == len(flow_steps(kind, layout, cost.algorithm))
