"""Groups on listed links that look alike: they cost the same and load alike links."""

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, strategies as st
from networks import cabled, load_between
from random_jobs import listed

from stepsim.base.arrays import Ints
from stepsim.base.axes import CollectiveKind
from stepsim.network.collectives import collective_cost, collective_shape
from stepsim.network.topology import LinkClass
from stepsim.network.topology.cabling import find_swaps
from stepsim.network.topology.listed import ListedTopology
from stepsim.network.topology.wiring import Flows

CLASSES = [LinkClass(name=name, bandwidth=1e9, latency_ps=1_000) for name in ("in", "out", "up")]


def pods(nodes: int, per_node: int = 2, pods: int = 2, broken: int = -1) -> ListedTopology:
    """Nodes with a switch each, a leaf per pod and place, two spines; one NIC may be missing."""
    npus = nodes * per_node * pods
    cables: list[tuple[str, str, int]] = []
    for npu in range(npus):
        node, place = divmod(npu, per_node)
        cables.append((f"npu{npu}", f"nv{node}", 0))
        if npu != broken:
            cables.append((f"npu{npu}", f"leaf{node // nodes}.{place}", 1))
    leaves = [f"leaf{pod}.{place}" for pod, place in product(range(pods), range(per_node))]
    cables += [(leaf, spine, 2) for leaf, spine in product(leaves, ("a", "b"))]
    return cabled(npus, cables, CLASSES, node_size=per_node, npus_forward=broken >= 0)


def looks(topology: ListedTopology, groups: list[list[int]]) -> list[list[int]]:
    found: list[list[int]] = topology.canonical(np.array(groups)).tolist()
    return found


def test_nodes_and_pods_are_swapped() -> None:
    topology = pods(3)
    assert [swap.size for swap in find_swaps(topology.cabling, 2)] == [2, 6]
    assert looks(topology, [[4, 5], [6, 7], [8, 10], [0, 2]]) == [[0, 1], [0, 1], [0, 2], [0, 2]]
    assert looks(topology, [[0, 8], [5, 11], [9, 3]]) == [[0, 6], [1, 7], [7, 1]]


def test_places_within_a_node_are_kept() -> None:
    assert looks(pods(2, per_node=3), [[4, 5], [3, 4]]) == [[1, 2], [0, 1]]


def test_a_node_that_lacks_a_cable_is_not_swapped() -> None:
    topology = pods(3, broken=2)
    assert looks(topology, [[2, 3], [0, 1], [4, 5]]) == [[2, 3], [0, 1], [0, 1]]
    assert looks(topology, [[6, 7], [8, 9]]) == [[6, 7], [6, 7]]


def test_npus_without_nodes_are_swapped_on_their_leaves() -> None:
    cables = [(f"npu{i}", f"leaf{i // 4}", 0) for i in range(8)] + [("leaf0", "leaf1", 1)]
    topology = cabled(8, cables, CLASSES)
    assert looks(topology, [[1, 3], [4, 6], [2, 5]]) == [[0, 1], [4, 5], [0, 4]]


def test_neighbours_on_a_ring_of_cables_are_not_swapped() -> None:
    cables = [(f"npu{i}", f"npu{(i + 1) % 6}", 0) for i in range(6)]
    topology = cabled(6, cables, CLASSES, npus_forward=True)
    groups = [list(pair) for pair in combinations(range(6), 2)]
    assert looks(topology, groups) == groups


def tuned(topology: ListedTopology, members: Ints) -> tuple[object, ...]:
    """What a group costs in several collectives, and how it loads links."""
    price = [
        collective_cost(topology, collective_shape(topology, kind, members), 1_000_000).time_ps
        for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL, CollectiveKind.BROADCAST)
    ]
    sources, destinations = (each.reshape(-1) for each in np.meshgrid(members, members))
    load = load_between(topology, sources, destinations)
    classes = topology.link_class(load.links).tolist()
    loads = Counter(zip(classes, load.loads.round(9).tolist(), strict=True))
    return tuple(price), frozenset(loads.items()), load.hops.tobytes()


@examples(40)
@given(topology=listed(), data=st.data())
def test_groups_that_look_alike_cost_the_same(
    topology: ListedTopology, data: st.DataObject
) -> None:
    npus = st.lists(st.integers(0, 23), min_size=2, max_size=8, unique=True).map(sorted)
    group = np.array(data.draw(npus))
    like = topology.canonical(group[None])[0]
    assert tuned(topology, group) == tuned(topology, like)


@examples(40)
@given(topology=listed(), data=st.data())
def test_loads_of_owners_are_those_of_each_alone(
    topology: ListedTopology, data: st.DataObject
) -> None:
    drawn = data.draw(
        st.lists(
            st.tuples(st.integers(0, 23), st.integers(0, 23), st.integers(0, 3)),
            min_size=1,
            max_size=30,
        )
    )
    sources, destinations, owners = np.array(drawn).T
    weights = np.linspace(0.0, 2.0, len(drawn))
    flows = Flows(owners, sources, destinations, weights)
    every = topology.load(flows)
    owner, link = np.divmod(every.links, topology.link_numbers)
    for each in range(4):
        mine = flows.where(owners == each)
        alone = load_between(topology, mine.start, mine.end, mine.weight)
        own = every.loads[owner == each].tolist()
        found = dict(zip(link[owner == each].tolist(), own, strict=True))
        assert found == pytest.approx(dict(zip(alone.links, alone.loads, strict=True)))
