"""Every kind of dimension: routes are paths of its graph, and what flows cross adds up."""

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import chain, combinations, product
from typing import Any

import networkx as nx
import numpy as np
import pytest
from networks import load_between
from unit.network.test_topology import NESTED, check_links, check_route, load_of, nested, shares

from stepsim.base.arrays import Ints
from stepsim.base.errors import TopologyError
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.network.topology.exchange import exchange
from stepsim.network.topology.graph import links_of
from stepsim.network.topology.wiring import Flows
from stepsim.network.topology.wirings import DragonflyShape, Ports, Ring, TreeShape

CUBE_MESH = (
    (0, 1), (0, 2), (0, 3), (0, 3), (0, 4), (0, 4), (1, 2), (1, 2), (1, 3), (1, 5), (1, 5), (2, 3),
    (2, 3), (2, 6), (3, 7), (4, 5), (4, 6), (4, 7), (4, 7), (5, 6), (5, 6), (5, 7), (6, 7), (6, 7),
)  # fmt: skip


def dim(kind: str, size: int, name: str = "a", **options: Any) -> Dimension:
    link = LinkClass(name=name, bandwidth=1e9, latency_ps=1_000)
    return Dimension(kind=DimensionKind(kind), size=size, link=link, **options)


def network(*dimensions: Dimension) -> NestedTopology:
    return NestedTopology(name="net", source="test", dimensions=dimensions)


def tree(down: tuple[int, ...], up: tuple[int, ...]) -> TreeShape:
    return TreeShape(down=down, up=up)


def dragonfly(routers: int, npus: int, links: int) -> DragonflyShape:
    return DragonflyShape(routers=routers, npus=npus, global_links=links)


NETWORKS = {
    "torus": network(dim("torus", 24, shape=(4, 3, 2))),
    "mesh": network(dim("mesh", 12, shape=(4, 3))),
    "torus in switch": network(dim("torus", 6, shape=(2, 3)), dim("switch", 2, "b")),
    "ring of tori": network(dim("torus", 9, shape=(3, 3)), dim("ring", 3, "b")),
    "leaf-spine": network(dim("fat_tree", 12, tree=tree((3,), (2,)))),
    "k-ary": network(dim("fat_tree", 16, tree=TreeShape.k_ary(4))),
    "three layers": network(dim("fat_tree", 24, tree=tree((2, 3), (2, 3)))),
    "one leaf": network(dim("fat_tree", 3, tree=tree((4,), (2,)))),
    "tree per rail": network(
        dim("switch", 3), dim("fat_tree", 8, "b", rails=True, tree=tree((2,), (2,)))
    ),
    "tree over nodes": network(dim("switch", 2), dim("fat_tree", 8, "b", tree=tree((4,), (2,)))),
    "leaves within nodes": network(dim("ring", 4), dim("fat_tree", 3, "b", tree=tree((2,), (2,)))),
    "dragonfly": network(dim("dragonfly", 40, dragonfly=dragonfly(2, 4, 2))),
    "parallel global links": network(dim("dragonfly", 24, dragonfly=dragonfly(4, 2, 2))),
    "dragonfly of nodes": network(
        dim("switch", 2), dim("dragonfly", 6, "b", dragonfly=dragonfly(2, 2, 1))
    ),
    "part of a group": network(dim("dragonfly", 5, dragonfly=dragonfly(4, 2, 2))),
    "two NICs": network(dim("switch", 4), dim("switch", 2, "b", ports=Ports(nics=2))),
    "shared NICs": network(dim("switch", 4), dim("switch", 3, "b", ports=Ports(npus_per_nic=2))),
    "shared NICs on leaves": network(
        dim("fat_tree", 8, ports=Ports(npus_per_nic=2), tree=tree((4,), (2,)))
    ),
    "cube mesh": network(dim("cables", 8, cables=CUBE_MESH)),
    "cables in switch": network(
        dim("cables", 4, cables=((0, 1), (1, 2), (2, 3), (3, 0), (0, 1))),
        dim("switch", 2, "b", ports=Ports(npus_per_nic=2)),
    ),
}  # fmt: skip
EVERY = pytest.mark.parametrize("topology", NETWORKS.values(), ids=list(NETWORKS))
WITH_NESTED = pytest.mark.parametrize(
    "topology", [*NETWORKS.values(), *map(nested, NESTED)], ids=[*NETWORKS, *NESTED]
)


@WITH_NESTED
@pytest.mark.parametrize("every", [1, 2])
def test_an_exchange_loads_links_as_all_its_pairs_do(topology: NestedTopology, every: int) -> None:
    members = np.arange(0, topology.npus, every)
    found, wanted = (
        exchange(topology, members),
        load_of(topology, [*product(members.tolist(), members.tolist())]),
    )
    if found is not None:
        assert np.array_equal(found.links, wanted.links)
        assert found.loads == pytest.approx(wanted.loads)


@WITH_NESTED
def test_routes_are_paths_of_the_graph(topology: NestedTopology) -> None:
    for source, destination in product(range(topology.npus), repeat=2):
        if topology.npus <= 16 or (5 * source + destination) % 17 == 0:
            check_route(topology, source, destination)


@WITH_NESTED
def test_numbers_classes_and_ends_agree(topology: NestedTopology) -> None:
    check_links(topology)
    both = Counter((u, v) for _, u, v, _ in links_of(topology))
    assert all(count == both[v, u] for (u, v), count in both.items())


@EVERY
def test_many_flows_cross_what_each_crosses_alone(topology: NestedTopology) -> None:
    rng = np.random.default_rng(1)
    flows = rng.integers(0, topology.npus, (300, 2))
    weights = rng.choice([0.5, 1.0], 300)
    together = load_between(topology, flows[:, 0], flows[:, 1], weights)
    expected: dict[int, float] = defaultdict(float)
    kinds = set()
    for pair, weight in zip(flows.tolist(), weights, strict=True):
        alone = load_of(topology, [(pair[0], pair[1])])
        kinds |= {tuple(row) for row in alone.hops.tolist()}
        for link, load in zip(alone.links.tolist(), alone.loads.tolist(), strict=True):
            expected[link] += load * weight
    assert dict(zip(together.links.tolist(), together.loads.tolist(), strict=True)) == (
        pytest.approx(expected)
    )
    assert {tuple(row) for row in together.hops.tolist()} == kinds


@EVERY
def test_groups_that_look_alike_load_alike(topology: NestedTopology) -> None:
    groups = np.array(list(combinations(range(topology.npus), 3)))[::13]
    looks = topology.canonical(groups)
    assert looks.min() >= 0
    assert looks.max() < topology.npus
    alike = {tuple(look): loads_by_class(topology, look) for look in np.unique(looks, axis=0)}
    for group, look in zip(groups, looks, strict=True):
        assert loads_by_class(topology, group) == alike[tuple(look)]


def loads_by_class(topology: NestedTopology, group: Ints) -> tuple[object, object]:
    a, b, c = (int(member) for member in group)
    load = load_of(topology, [(a, b), (b, c), (a, c)])
    classes = topology.link_class(load.links).tolist()
    loads = sorted(zip(classes, np.round(load.loads, 9).tolist(), strict=True))
    return loads, load.hops.tolist()


@pytest.mark.parametrize("name", ["torus", "k-ary", "tree per rail", "two NICs"])
def test_symmetric_networks_look_the_same_from_every_npu(name: str) -> None:
    topology = NETWORKS[name]
    single = np.arange(topology.npus)[:, None]
    assert len(np.unique(topology.canonical(single), axis=0)) == 1


@EVERY
def test_the_longest_routes_are_as_long_as_told(topology: NestedTopology) -> None:
    pairs = [(a, b) for a, b in product(range(topology.npus), repeat=2)]
    longest = load_of(topology, pairs).hops.sum(axis=1).max()
    assert topology.long_routes().sum(axis=1).max() == longest


SINGLE = [
    name
    for name, topology in NETWORKS.items()
    if len(topology.dimensions) == 1 and topology.dimensions[0].kind is not DimensionKind.DRAGONFLY
]


@pytest.mark.parametrize("name", SINGLE)
def test_routes_inside_one_dimension_are_shortest(name: str) -> None:
    """Not a dragonfly's: over two global links there may be a shorter way."""
    topology = NETWORKS[name]
    graph = nx.DiGraph(topology.graph())
    for source, destination in product(range(topology.npus), repeat=2):
        length = nx.shortest_path_length(graph, f"npu{source}", f"npu{destination}")
        assert load_of(topology, [(source, destination)]).hops.sum() == length


def test_a_tree_spreads_evenly_over_its_spines() -> None:
    taken = shares(NETWORKS["three layers"], 0, 23)
    assert taken["npu0", "a0-leaf0"] == 1.0
    assert taken["a0-leaf0", "a0-spine0.1"] == 1 / 2
    assert taken["a0-spine0.1", "a0-core4"] == 1 / 6
    assert taken["a0-core4", "a0-spine3.1"] == 1 / 6
    assert len(taken) == 2 + 2 * 2 + 2 * 6


def test_dragonfly_takes_one_global_link() -> None:
    taken = shares(NETWORKS["dragonfly"], 0, 39)
    assert (
        sum(share for (u, v), share in taken.items() if u[-3] != v[-3] and "npu" not in u + v) == 1
    )


def test_nics_of_an_npu_share_its_traffic() -> None:
    load = load_of(NETWORKS["two NICs"], [(0, 4)])
    assert load.loads.tolist() == [0.5] * 4
    assert load.hops.tolist() == [[0, 2]]


def test_npus_on_one_nic_share_its_link() -> None:
    topology = NETWORKS["shared NICs"]
    load = load_of(topology, [(0, 4), (1, 4)])
    wires = load.loads[topology.link_class(load.links) == 1]
    assert wires.tolist() == [2.0, 2.0]
    assert "npu0" not in topology.link_ends(int(load.links[0]))


@pytest.mark.parametrize("wiring", [Ring(size=11), Ring(size=11, is_open=True)])
def test_long_walks_are_summed_as_if_written_out(wiring: Ring) -> None:
    rng = np.random.default_rng(2)
    start, end = rng.integers(0, wiring.size, (2, 5_000))
    apart = start != end
    flows = Flows(
        copy=rng.integers(0, 4, 5_000)[apart],
        start=start[apart],
        end=end[apart],
        weight=rng.choice([0.5, 1.0], 5_000)[apart],
    )
    each = [flows.where(np.array([i])) for i in range(len(flows.copy))]
    assert total(wiring, flows) == total(wiring, *each)


def total(wiring: Ring, *parts: Flows) -> dict[int, float]:
    """What flows put on every link, found part by part."""
    loads: dict[int, float] = defaultdict(float)
    for links, values in chain.from_iterable(map(wiring.load, parts)):
        for link, value in zip(links.tolist(), values.tolist(), strict=True):
            loads[link] += value
    return loads


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: network(dim("fat_tree", 10, tree=tree((4,), (2,)))), "a: size is 10.*leaves of 4"),
        (lambda: network(dim("fat_tree", 20, tree=TreeShape.k_ary(4))), "room for 16"),
        (lambda: tree((4, 2, 2), (1, 1, 1)), "one or two layers"),
        (lambda: network(dim("dragonfly", 16, dragonfly=dragonfly(2, 2, 1))), "reach at most 12"),
        (lambda: dim("torus", 9, shape=(3, 2)), "shape is 3 x 2"),
        (lambda: dim("ring", 4, shape=(4,)), "shape belongs to torus, mesh, not to ring"),
        (lambda: dim("rail", 4, ports=Ports(npus_per_nic=2)), "one network for all NPUs"),
        (lambda: Ports(nics=2, npus_per_nic=2), "exclude"),
        (lambda: network(dim("cables", 3, cables=((0, 1),))), "do not connect 0 and 2"),
        (lambda: network(dim("cables", 3, cables=((0, 0),))), "joins 0 to itself"),
        (lambda: network(dim("cables", 2, cables=((0, 1),) * 1025)), "at most 1024"),
        (
            lambda: network(
                dim("fat_tree", 6, tree=tree((3,), (1,)), ports=Ports(npus_per_nic=2))
            ),
            "a leaf has 3",
        ),
    ],
)  # fmt: skip
def test_impossible_dimensions_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        make()


@pytest.mark.parametrize(
    ("dimension", "jobs"),
    [
        (dim("torus", 64, shape=(4, 4, 4)), {1: 64, 65: 128, 129: 256, 257: 512, 1024: 1024}),
        (dim("fat_tree", 1, tree=tree((8,), (8,))), {3: 3, 8: 8, 9: 16}),
        (dim("dragonfly", 1, dragonfly=dragonfly(4, 2, 2)), {1: 8, 9: 16}),
    ],
)
def test_growing_networks_are_built_whole(dimension: Dimension, jobs: dict[int, int]) -> None:
    topology = NestedTopology(
        name="grows", source="", dimensions=(dimension.grown(1, 1),), grows=True
    )
    assert {npus: topology.fit(npus).npus for npus in jobs} == jobs
    grown = topology.fit(max(jobs))
    assert {npus: grown.fit(npus).npus for npus in jobs} == jobs


def test_members_meet_in_a_switch_that_reduces() -> None:
    topology = network(dim("switch", 4, reduces=True), dim("rail", 2, "b"))
    assert topology.layout(np.arange(4)).reduces
    across = topology.layout(np.arange(8))
    assert (across.reduces, across.reduces_inside) == (0, 1)
    outer = network(dim("switch", 4), dim("switch", 2, "b", reduces=True))
    assert outer.layout(np.array([0, 4])).reduces
    assert not outer.layout(np.arange(8)).reduces
    leaves = network(dim("fat_tree", 8, tree=tree((4,), (2,)), reduces=True))
    assert leaves.layout(np.arange(4)).reduces
    assert not leaves.layout(np.arange(8)).reduces
