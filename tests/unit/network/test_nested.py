"""Nested dimensions: numbers of NPUs and links, room for jobs, capacities; by hand and in sum."""

from collections import Counter

import numpy as np
import pytest
from helpers import examples, two_levels
from hypothesis import given
from hypothesis import strategies as st
from random_jobs import nested

from stepsim.base.errors import TopologyError
from stepsim.base.structs import replace
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology


def dimension(kind: DimensionKind, size: int, name: str, bandwidth: float = 1e9) -> Dimension:
    link = LinkClass(name=name, bandwidth=bandwidth, latency_ps=10)
    return Dimension(kind=kind, size=size, link=link)


def network(*dimensions: Dimension, grows: bool = False) -> NestedTopology:
    return NestedTopology(name="net", source="test", dimensions=dimensions, grows=grows)


NODES = network(
    dimension(DimensionKind.SWITCH, 4, "inner", 8e9),
    dimension(DimensionKind.SWITCH, 3, "outer", 1e9),
)
"""Three nodes of four NPUs, each with a link to its node's switch and one to the outer one."""


def test_numbers_of_a_small_network() -> None:
    assert (NODES.npus, NODES.node_size, NODES.blocks) == (12, 4, (4, 12))
    assert NODES.link_counts() == (2 * 12, 2 * 12)
    assert (NODES.default_npus, replace(NODES, grows=True).default_npus) == (12, 8)
    single = network(dimension(DimensionKind.RING, 5, "wire"), grows=True)
    assert single.default_npus == 16


@given(topology=nested())
@examples(60)
def test_links_are_numbered_once_and_come_back(topology: NestedTopology) -> None:
    links = list(topology.links())
    numbers = np.array([number for number, *_ in links])
    assert numbers.tolist() == list(range(len(links)))
    classes = topology.link_class(numbers)
    assert [topology.link_classes[c] for c in classes] == [link for *_, link in links]
    counted = np.bincount(classes, minlength=len(topology.link_classes))
    assert counted.tolist() == list(topology.link_counts())
    for number, leaves, enters, _ in links[:: max(len(links) // 20, 1)]:
        assert topology.link_ends(number) == (leaves, enters)


@given(topology=nested(), data=st.data())
@examples(60)
def test_what_flows_put_on_links_is_what_each_crosses(
    topology: NestedTopology, data: st.DataObject
) -> None:
    """Loads sum to weight times links crossed, are even in weights, and split by owner."""
    ends = st.integers(0, topology.npus - 1)
    count = data.draw(st.integers(1, 6))
    sources, destinations = (
        np.array(data.draw(st.lists(ends, min_size=count, max_size=count))) for _ in range(2)
    )
    weights = np.array(
        data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=count, max_size=count))
    )
    load = topology.load(sources, destinations, weights)
    crossed = 0.0
    for source, destination, weight in zip(sources, destinations, weights, strict=True):
        alone = topology.load(np.array([source]), np.array([destination]), np.ones(1))
        hops = alone.hops.sum()
        assert (hops == 0) == (source == destination)
        assert alone.loads.sum() == pytest.approx(hops)
        crossed += weight * hops
    assert load.loads.sum() == pytest.approx(crossed)
    twice = topology.load(sources, destinations, 2 * weights)
    assert twice.links.tolist() == load.links.tolist()
    assert twice.loads == pytest.approx(2 * load.loads)
    owner, link, apart = topology.loads_apart(
        sources, destinations, weights, np.arange(count, dtype=np.int64)
    )
    total = np.zeros(1 + max(load.links.max(initial=0), link.max(initial=0)))
    np.add.at(total, link, apart)
    assert total[load.links] == pytest.approx(load.loads)
    assert set(owner.tolist()) <= set(range(count))


def test_a_flow_crosses_what_its_ends_differ_in() -> None:
    """0 to 1 within a node, 0 to 4 and 0 to 5 across: the outer switch joins all that is inside.

    Where NPUs are joined themselves, a flow turns in one: 0 to 3 takes a link of each class.
    """
    zeros = np.zeros(3, dtype=np.int64)
    switched = NODES.load(zeros, np.array([1, 4, 5]), np.ones(3))
    assert sorted(map(tuple, switched.hops.tolist())) == [(0, 2), (2, 0)]
    joined = two_levels().load(zeros, np.array([1, 2, 3]), np.ones(3))
    assert sorted(map(tuple, joined.hops.tolist())) == [(0, 1), (1, 0), (1, 1)]


def test_an_exchange_is_the_flows_of_all_pairs() -> None:
    members = np.array([0, 1, 4, 7])
    pairs = [(a, b) for a in members for b in members if a != b]
    sources, destinations = np.array(pairs).T
    listed = NODES.load(sources, destinations, np.ones(len(pairs)))
    whole = NODES.exchange(members)
    assert whole is not None
    assert whole.links.tolist() == listed.links.tolist()
    assert whole.loads == pytest.approx(listed.loads)


def test_groups_moved_to_a_common_origin_cost_the_same() -> None:
    """A pair within any node is one look, a pair across nodes another."""
    groups = np.array([[0, 1], [5, 6], [10, 11], [0, 4], [5, 9], [2, 10]])
    looks = [tuple(look) for look in NODES.canonical(groups).tolist()]
    assert looks[0] == looks[1] == looks[2] != looks[3] == looks[4]
    assert len(set(looks)) <= 3


@given(topology=nested(), data=st.data())
@examples(60)
def test_equal_looks_have_equal_loads(topology: NestedTopology, data: st.DataObject) -> None:
    pair = data.draw(st.permutations(range(topology.npus)))[:2]
    look = topology.canonical(np.array([pair]))[0]
    both = [
        topology.load(np.array([a]), np.array([b]), np.ones(1)) for a, b in (pair, look.tolist())
    ]
    own, moved = (
        Counter(zip(topology.link_class(load.links).tolist(), load.loads.round(9), strict=True))
        for load in both
    )
    assert own == moved
    assert both[0].hops.tolist() == both[1].hops.tolist()


def test_jobs_get_as_many_blocks_as_they_need() -> None:
    growing = replace(NODES, grows=True)
    assert [growing.fit(npus).npus for npus in (1, 12, 13, 100)] == [4, 12, 16, 100]
    assert growing.fit(100).dimensions[1].size == 25
    assert NODES.fit(12) is NODES
    with pytest.raises(TopologyError, match="13"):
        NODES.fit(13)


def test_capacities_by_hand() -> None:
    """An NPU sends over both of its links; across halves every NPU has its outer link."""
    assert NODES.injection() == 8e9 + 1e9
    assert two_levels().injection() == 4e9 + 1e9
    even = network(
        dimension(DimensionKind.SWITCH, 4, "a", 8e9), dimension(DimensionKind.SWITCH, 2, "b")
    )
    assert even.bisection().bandwidth == 4 * 1e9
    ring = network(dimension(DimensionKind.RING, 6, "wire"))
    assert ring.bisection().bandwidth == 2e9
    assert ring.injection() == 2e9
    full = network(dimension(DimensionKind.FULLY_CONNECTED, 4, "wire"))
    assert full.bisection().bandwidth == 2 * 2 * full.injection() / 3


def test_a_graph_has_the_links_and_their_numbers() -> None:
    graph = NODES.graph()
    npus = [node for node, about in graph.nodes(data=True) if about["kind"] == "npu"]
    assert len(npus) == NODES.npus
    pairs = Counter((leaves, enters) for _, leaves, enters, _ in NODES.links())
    assert set(graph.edges()) == set(pairs)


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(TopologyError, match="at least one dimension"):
        network()
    same = dimension(DimensionKind.RING, 2, "wire")
    with pytest.raises(TopologyError, match="dimension names repeat: wire, wire"):
        network(same, same)
