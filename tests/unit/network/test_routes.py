"""Routes over listed links, against networkx's shortest paths."""

from collections import defaultdict
from itertools import combinations, pairwise, product

import networkx as nx
import pytest
from helpers import examples
from hypothesis import example, given, strategies as st
from networks import cabled
from unit.network.test_topology import explicit, load_of

from stepsim.base.errors import TopologyError
from stepsim.network.topology.dimension import LinkClass
from stepsim.network.topology.graph import links_of
from stepsim.network.topology.listed import ListedTopology

NODES = [*(f"npu{i}" for i in range(4)), "a", "b", "c"]
CABLES = st.lists(
    st.tuples(st.sampled_from(NODES), st.sampled_from(NODES), st.integers(0, 2)).filter(
        lambda cable: cable[0] != cable[1]
    ),
    max_size=14,
)

MESH_AND_SWITCH = [
    *((f"npu{a}", f"npu{b}", (a + b) % 3) for a, b in combinations(range(4), 2)),
    *((f"npu{a}", "a", a % 2) for a in range(4)),
]


def expected(topology: ListedTopology, source: int, destination: int) -> dict[int, float]:
    """Shares by listing all shortest paths: least latency, then fewest hops."""
    graph = nx.DiGraph()
    bundles: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for number, u, v, link in links_of(topology):
        bundles[u, v].append((link.latency_ps, number))
    ends = {f"npu{source}", f"npu{destination}"}
    for (u, v), links in bundles.items():
        through = {u, v} - ends
        if topology.npus_forward or not any(node.startswith("npu") for node in through):
            graph.add_edge(u, v, cost=min(links)[0] * 1000 + 1)
    shares: dict[int, float] = defaultdict(float)
    paths = list(nx.all_shortest_paths(graph, f"npu{source}", f"npu{destination}", weight="cost"))
    for path in paths:
        for pair in pairwise(path):
            fastest = [n for latency, n in bundles[pair] if latency == min(bundles[pair])[0]]
            for number in fastest:
                shares[number] += 1 / len(paths) / len(fastest)
    return shares


@examples(150)
@given(cables=CABLES, forward=st.booleans())
@example(cables=MESH_AND_SWITCH, forward=False)
def test_shares_are_those_of_all_shortest_paths(
    cables: list[tuple[str, str, int]], forward: bool
) -> None:
    try:
        topology = explicit(4, cables, forward=forward, latencies_ps=(0, 1_000, 2_000))
    except TopologyError:
        return
    for source, destination in product(range(4), repeat=2):
        load = load_of(topology, [(source, destination)])
        found = dict(zip(load.links.tolist(), load.loads.tolist(), strict=True))
        wanted = {} if source == destination else expected(topology, source, destination)
        assert found == pytest.approx(wanted)
        assert sum(found.values()) == pytest.approx(load.hops.sum())


@examples(100)
@given(cables=CABLES, forward=st.booleans())
def test_a_topology_is_accepted_if_and_only_if_every_pair_has_a_route(
    cables: list[tuple[str, str, int]], forward: bool
) -> None:
    graph = nx.Graph([(a, b) for a, b, _ in cables])
    graph.add_nodes_from(NODES)

    def joined(a: int, b: int) -> bool:
        others = {f"npu{i}" for i in range(4)} - {f"npu{a}", f"npu{b}"}
        part = graph if forward else graph.subgraph(set(graph) - others)
        return bool(nx.has_path(part, f"npu{a}", f"npu{b}"))

    connected = all(joined(a, b) for a, b in product(range(4), repeat=2))
    try:
        explicit(4, cables, forward=forward, latencies_ps=(0, 1, 2))
    except TopologyError:
        assert not connected
    else:
        assert connected


def test_more_than_64_equal_paths_share_evenly() -> None:
    spines = [f"spine{i}" for i in range(100)]
    cables = [("npu0", "left"), ("npu1", "right"), *product(("left", "right"), spines)]
    load = load_of(explicit(2, cables), [(0, 1)])
    assert sorted(load.loads.tolist()) == pytest.approx([0.01] * 200 + [1.0] * 2)


def test_hops_are_those_of_the_way_with_the_slowest_endpoints() -> None:
    cables = [("npu0", "a", 0), ("a", "npu1", 0), ("npu0", "b", 1), ("b", "npu1", 1)]
    fast = LinkClass(name="class0", bandwidth=1e9, latency_ps=5)
    slow = LinkClass(name="class1", bandwidth=1e9, latency_ps=5, endpoint_latency_ps=7)
    topology = cabled(2, cables, [fast, slow])
    assert load_of(topology, [(0, 1)]).hops.tolist() == [[0, 2]]


def test_a_way_with_a_quick_last_cable_is_taken() -> None:
    cables = [("npu0", "a", 0), ("npu1", "a", 1), ("a", "b", 0), ("b", "npu1", 0)]
    topology = explicit(2, cables, latencies_ps=(1, 1_000))
    assert load_of(topology, [(0, 1)]).hops.tolist() == [[3, 0]]
    assert load_of(topology, [(1, 0)]).hops.tolist() == [[3, 0]]


def test_latencies_too_large_to_add_up_are_refused() -> None:
    topology = [("npu0", "a", 0), ("a", "npu1", 0)]
    with pytest.raises(TopologyError, match="too large to add up"):
        explicit(2, topology, latencies_ps=(2**62,))


def test_flows_of_one_batch_are_split_without_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value in (("_CELLS", 8), ("_PAIRS", 8), ("_TREE_CELLS", 4)):
        monkeypatch.setattr(f"stepsim.network.topology.routing.{limit}", value)
    cables = [(f"npu{i}", f"leaf{i // 2}") for i in range(8)]
    cables += list(product((f"leaf{i}" for i in range(4)), ("s0", "s1")))
    topology = explicit(8, cables)
    pairs = [(a, b) for a, b in product(range(8), repeat=2)]
    load = load_of(topology, pairs)
    assert load.loads.sum() == pytest.approx(
        sum(load_of(topology, [pair]).loads.sum() for pair in pairs)
    )
    assert load.hops.tolist() == [[0], [2], [4]]
