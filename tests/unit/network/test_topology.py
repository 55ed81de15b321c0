"""Routes: which links a message takes, and that they are what the topology's graph says."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations, pairwise, product
from typing import Any

import networkx as nx
import numpy as np
import pytest
from helpers import line_of_npus
from networks import cabled, load_between

import stepsim
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import TopologyError
from stepsim.network.collectives import collective_cost, collective_shape
from stepsim.network.topology import (
    Dimension,
    DimensionKind,
    LinkClass,
    Load,
    NestedTopology,
    Topology,
)
from stepsim.network.topology.graph import check_size, links_of
from stepsim.network.topology.listed import ListedTopology
from stepsim.network.topology.nested import with_values

Shares = dict[tuple[str, str], float]

NESTED = [
    "ring:1",
    "ring:2",
    "ring:5",
    "ring:6",
    "line:4",
    "fully_connected:4",
    "switch:4",
    "rail:3",
    "fully_connected:4 rail:3",
    "switch:4 rail:2",
    "ring:4 switch:3",
    "line:3 ring:3",
    "ring:2 line:2 fully_connected:3",
    "switch:2 rail:2 switch:3",
    "ring:3 switch:2 rail:2",
    "rail:2 switch:1 ring:4",
]


def nested(text: str, *, grows: bool = False) -> NestedTopology:
    """Dimensions such as `ring:4 rail:2`, each with its own bandwidth and latency."""
    dimensions = []
    for k, word in enumerate(text.split()):
        kind, size = word.split(":")
        link = LinkClass(name=f"{kind}{k}", bandwidth=1e9 / (k + 1), latency_ps=1_000 * (k + 1))
        dimensions.append(Dimension(kind=DimensionKind(kind), size=int(size), link=link))
    return NestedTopology(name=text, source="test", dimensions=tuple(dimensions), grows=grows)


def load_of(topology: Topology, pairs: Sequence[tuple[int, int]]) -> Load:
    """What one flow per (source, destination) puts on the links."""
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return load_between(topology, ends[:, 0], ends[:, 1])


def shares(topology: Topology, source: int, destination: int) -> Shares:
    """Share of the flow between each two nodes of its way, by their names."""
    load = load_of(topology, [(source, destination)])
    found: Shares = defaultdict(float)
    for link, share in zip(load.links.tolist(), load.loads.tolist(), strict=True):
        found[topology.link_ends(link)] += share
    return dict(found)


def hops(topology: Topology, source: int, destination: int) -> int:
    return int(load_of(topology, [(source, destination)]).hops.sum())


def nodes(topology: Topology, source: int, destination: int) -> list[str]:
    """Nodes on the way of a flow that takes one path."""
    taken = shares(topology, source, destination)
    assert set(taken.values()) == {1.0}
    path: list[str] = nx.shortest_path(nx.DiGraph(list(taken)), f"npu{source}", f"npu{destination}")
    assert len(path) == len(taken) + 1
    return path


def way(*npus: int) -> Shares:
    """All of the flow from NPU to NPU."""
    return {(f"npu{a}", f"npu{b}"): 1.0 for a, b in pairwise(npus)}


def check_route(topology: Topology, source: int, destination: int) -> None:
    """The flow's links are edges of the graph and carry it from source to destination.

    What enters a node leaves it again, and every path is as long as `hops` says.
    """
    graph = topology.graph()
    taken = shares(topology, source, destination)
    assert all(graph.has_edge(u, v) for u, v in taken)
    balance = dict.fromkeys(graph, 0.0)
    for (u, v), share in taken.items():
        balance[u] += share
        balance[v] -= share
    expected = dict.fromkeys(graph, 0.0)
    if source != destination:
        expected |= {f"npu{source}": 1.0, f"npu{destination}": -1.0}
    assert balance == pytest.approx(expected)
    length = hops(topology, source, destination)
    assert sum(taken.values()) == pytest.approx(length)
    if source != destination:
        used = nx.DiGraph(list(taken))
        assert nx.shortest_path_length(used, f"npu{source}", f"npu{destination}") == length


def check_links(topology: Topology) -> None:
    """Numbers, ends and classes of links agree with each other and with the graph."""
    links = list(links_of(topology))
    numbers = np.array([number for number, *_ in links], dtype=np.int64)
    classes = topology.link_class(numbers)
    assert [topology.link_classes[c] for c in classes] == [link for *_, link in links]
    assert topology.link_counts() == tuple(np.bincount(classes, None, len(topology.link_classes)))
    assert [topology.link_ends(number) for number, *_ in links] == [(u, v) for _, u, v, _ in links]
    graph = topology.graph()
    assert [kind for _, kind in graph.nodes(data="kind")].count("npu") == topology.npus
    wires = {(u, v, data["link_class"]): data["count"] for u, v, data in graph.edges(data=True)}
    assert wires == Counter((u, v, link.name) for _, u, v, link in links)
    assert graph.is_multigraph() == (len({(u, v) for u, v, _ in wires}) < len(wires))


def test_opposite_ends_of_an_even_ring_send_half_each_way() -> None:
    ring = nested("ring:4")
    assert shares(ring, 0, 2) == dict.fromkeys([*way(0, 1, 2), *way(0, 3, 2)], 0.5)
    assert hops(ring, 0, 2) == 2


def test_ring_of_two_is_one_cable() -> None:
    assert nested("ring:2").link_counts() == (2,)


def test_rail_is_reached_over_the_inner_dimension_first() -> None:
    topology = nested("fully_connected:4 rail:3")
    first, inner, rail, last = nodes(topology, 1, 11)  # coordinates (1, 0) to (3, 2)
    assert [first, inner, last] == ["npu1", "npu3", "npu11"]
    assert topology.graph().nodes[rail]["kind"] == "switch"


def test_each_inner_coordinate_has_its_own_rail() -> None:
    topology = nested("fully_connected:4 rail:3")
    rails = [nodes(topology, npu, npu + 4)[1] for npu in range(4)]
    assert len(set(rails)) == 4
    assert [nodes(topology, npu, npu + 8)[1] for npu in range(4)] == rails


def test_outer_switch_joins_all_npus_inside() -> None:
    topology = nested("ring:4 switch:2")
    middle = {nodes(topology, a, b)[1] for a, b in ((0, 6), (3, 4), (7, 1))}
    assert len(middle) == 1
    assert shares(topology, 0, 1) == way(0, 1)
    assert load_of(topology, [(0, 6), (0, 1)]).hops.tolist() == [[0, 2], [1, 0]]


@pytest.mark.parametrize("text", ["ring:4 rail:2", "line:4", "line:2 switch:3", "switch:2 ring:4"])
def test_groups_that_look_alike_cost_the_same(text: str) -> None:
    topology = nested(text)
    groups = np.array(list(combinations(range(topology.npus), 3)))
    price: dict[tuple[CollectiveKind, bytes], int] = {}
    kinds = (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL, CollectiveKind.BROADCAST)
    for kind, (group, look) in product(kinds, zip(groups, topology.canonical(groups), strict=True)):
        shape = collective_shape(topology, kind, group)
        cost = collective_cost(topology, shape, 9_000).time_ps
        assert price.setdefault((kind, look.tobytes()), cost) == cost


def test_canonical_groups_ignore_where_a_group_lies_but_not_on_a_line() -> None:
    def looks(text: str) -> int:
        topology = nested(text)
        neighbours = np.array([[0, 1], [1, 2], [2, 3]])
        return len(np.unique(topology.canonical(neighbours), axis=0))

    assert [looks("ring:4"), looks("switch:4"), looks("line:4")] == [1, 1, 3]


def test_growing_topology_takes_the_size_of_the_job() -> None:
    topology = nested("switch:8 rail:2", grows=True)
    assert [topology.fit(npus).npus for npus in (1, 8, 9, 1024)] == [8, 8, 16, 1024]
    assert topology.fit(1024).node_size == 8
    assert topology.default_npus == 16


def test_fixed_topology_holds_smaller_jobs_only() -> None:
    topology = nested("switch:8 rail:2")
    assert topology.fit(5) is topology
    assert topology.default_npus == 16
    with pytest.raises(TopologyError, match=r"has 16 NPUs: the job needs 17"):
        topology.fit(17)


def test_dimensions_must_exist_and_have_distinct_names() -> None:
    link = LinkClass(name="twin", latency_ps=0, bandwidth=1.0)
    twin = Dimension(kind=DimensionKind.RING, size=2, link=link)
    with pytest.raises(TopologyError, match="at least one dimension"):
        NestedTopology(name="t", source="", dimensions=())
    with pytest.raises(TopologyError, match="repeat: twin, twin"):
        NestedTopology(name="t", source="", dimensions=(twin, twin))
    with pytest.raises(TopologyError, match="twin: size is 0"):
        Dimension(kind=DimensionKind.RING, size=0, link=link)


def explicit(
    npus: int,
    cables: Sequence[tuple[str, str] | tuple[str, str, int]],
    *,
    forward: bool = False,
    latencies_ps: Sequence[int] = (1_000,),
) -> ListedTopology:
    """Cables in both directions, `(end, end)` or `(end, end, class)`; a class per latency."""
    classes = [
        LinkClass(name=f"class{i}", bandwidth=1e9, latency_ps=ps)
        for i, ps in enumerate(latencies_ps)
    ]
    return cabled(npus, cables, classes, npus_forward=forward)


TWO_SPINES = [(f"npu{i}", f"leaf{i}") for i in range(2)] + [
    (f"leaf{i}", spine) for i in range(2) for spine in ("left", "right")
]


def test_a_graph_with_too_many_links_is_refused() -> None:
    check_size(nested("switch:4 " * 8))  # the most of both: 65,536 NPUs with 16 links each
    with pytest.raises(TopologyError, match=r"2048 NPUs and 4192256 links: .* 1048576$"):
        check_size(line_of_npus(2048, 1))


def test_links_get_other_numbers_and_nothing_else_changes() -> None:
    topology = stepsim.load_topology("hgx-h100")
    changed = with_values(topology, {"fabric.bandwidth": 1e9, "fabric.latency": 7})
    inner, outer = changed.link_classes
    assert inner == topology.link_classes[0]
    assert (outer.bandwidth, outer.latency_ps) == (1e9, 7)
    assert outer.efficiency == topology.link_classes[1].efficiency
    again = {"fabric.bandwidth": 5e10, "fabric.latency": 500_000}
    assert with_values(changed, again) == topology
    values = {"nvlink.efficiency": 0.5, "launch_latency": 9, "compute_scale": 2.0}
    edited = with_values(topology, values)
    assert (edited.link_classes[0].efficiency, edited.launch_latency_ps) == (0.5, 9)
    assert with_values(topology, {"compute_scale": 2.0}) is topology


def test_links_of_listed_topologies_get_other_numbers() -> None:
    cable = LinkClass(name="cable", latency_ps=0, bandwidth=1e9)
    topology = cabled(2, [("npu0", "npu1")], [cable])
    assert with_values(topology, {"cable.bandwidth": 3e9}).link_classes[0].bandwidth == 3e9


def test_npus_forward_only_where_told() -> None:
    chain = [("npu0", "npu1"), ("npu1", "npu2")]
    assert shares(explicit(3, chain, forward=True), 0, 2) == way(0, 1, 2)
    with pytest.raises(TopologyError, match=r"npu0 and npu2 are not connected.*npus_forward"):
        explicit(3, chain)


def test_way_back_must_exist() -> None:
    wire = LinkClass(name="wire", latency_ps=0, bandwidth=1.0)
    with pytest.raises(TopologyError, match="npu0 and npu1 are not connected"):
        cabled(2, [("npu0", "npu1")], [wire], oneway=True)


def test_explicit_topology_has_the_size_it_has() -> None:
    topology = explicit(2, TWO_SPINES)
    assert topology.fit(2) is topology
    assert (topology.grows, topology.default_npus) == (False, 2)
    assert topology.link_counts() == (len(TWO_SPINES) * 2,)
    with pytest.raises(TopologyError, match="has 2 NPUs: the job needs 3"):
        topology.fit(3)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"bandwidth": 1.0, "efficiency": 1.01}, "efficiency"),
        ({"bandwidth": 1.0, "latency_ps": -1}, "latency"),
        ({"bandwidth": 1.0, "endpoint_latency_ps": -1}, "latency"),
    ],
)
def test_link_classes_refuse_impossible_values(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(TopologyError, match=f"wire.*{problem}"):
        LinkClass(name="wire", **{"latency_ps": 0, **values})
