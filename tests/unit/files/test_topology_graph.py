"""networkx graphs as topologies: what they may say, and what is wrong with them by name."""

import subprocess
import sys
from typing import Any

import networkx as nx
import numpy as np
import pytest
from networks import load_between

import stepsim
from stepsim.base.errors import TopologyError
from stepsim.network.topology import LinkClass
from stepsim.network.topology.listed import ListedTopology

CABLE: dict[str, Any] = {"bandwidth": "400 Gbps", "latency": "500 ns"}


def star(npus: int = 3, **of_edges: Any) -> nx.DiGraph:
    """NPUs on one switch, with links both ways."""
    graph = nx.DiGraph()
    graph.add_node("leaf", kind="switch")
    for i in range(npus):
        graph.add_node(f"gpu{i}", kind="npu")
        graph.add_edge(f"gpu{i}", "leaf", **CABLE | of_edges)
        graph.add_edge("leaf", f"gpu{i}", **CABLE | of_edges)
    return graph


def load(graph: nx.Graph) -> ListedTopology:
    topology = stepsim.load_topology(graph)
    assert isinstance(topology, ListedTopology)
    return topology


def test_texts_and_numbers_say_the_same() -> None:
    texts = {"endpoint_latency": "1 us", "efficiency": "0.5"}
    numbers = {
        "bandwidth": np.float64(5e10),
        "latency_ps": 500_000,
        "endpoint_latency_ps": np.int64(1_000_000),
        "efficiency": 0.5,
    }
    graph = star(2, **texts)
    for ends in graph.edges:
        if ends[1] == "leaf":
            graph.edges[ends].clear()
            graph.edges[ends].update(numbers)
    link = LinkClass(
        name="nic",
        bandwidth=5e10,
        latency_ps=500_000,
        endpoint_latency_ps=1_000_000,
        efficiency=0.5,
    )
    assert load(graph).link_classes == (link,)


def test_what_a_graph_says_of_itself() -> None:
    graph = star(4)
    graph.graph |= {"name": "star", "source": "by hand", "node_size": 2, "npus_forward": True}
    graph.graph |= {"launch_latency": "3 us", "algorithms": ["ring"]}
    found = load(graph)
    assert (found.name, found.source, found.node_size) == ("star", "by hand", 2)
    assert (found.npus_forward, found.launch_latency_ps) == (True, 3_000_000)
    assert found.algorithms == ("ring",)
    plain = load(star(4))
    assert (plain.name, plain.source, plain.node_size) == ("graph", "a networkx graph", 4)
    assert (plain.npus_forward, plain.launch_latency_ps, plain.algorithms) == (False, 0, ())


def test_npus_are_numbered_in_the_order_of_the_nodes() -> None:
    graph = nx.Graph()
    graph.add_nodes_from((7, "b", (0, 1)), kind="npu")
    graph.add_node(("core", 0), kind="switch")
    graph.add_edges_from(((node, ("core", 0)) for node in (7, "b", (0, 1))), **CABLE)
    assert load(graph).cabling.nodes == ("npu0", "npu1", "npu2", "('core', 0)")


def test_npus_called_by_numbers_have_these() -> None:
    graph = nx.DiGraph()
    graph.add_node("sw", kind="switch")
    for i, gbps in ((2, 400), (0, 100), (1, 200)):
        graph.add_node(f"npu{i}", kind="npu")
        for ends in ((f"npu{i}", "sw"), ("sw", f"npu{i}")):
            graph.add_edge(*ends, bandwidth=f"{gbps} Gbps", latency="0 ns", link_class=f"of{gbps}")
    topology = load(graph)
    for npu, gbps in enumerate((100, 200, 400)):
        first = load_between(topology, npu, (npu + 1) % 3).links
        classes = [topology.link_classes[c].name for c in topology.link_class(first)]
        assert f"of{gbps}" in classes


def test_classes_are_what_edges_join_unless_they_are_named() -> None:
    graph = star(2)
    graph.add_node("spine", kind="switch")
    for ends in (("leaf", "spine"), ("spine", "leaf"), ("gpu0", "gpu1"), ("gpu1", "gpu0")):
        graph.add_edge(*ends, **CABLE)
    graph.edges["gpu0", "leaf"]["bandwidth"] = "200 Gbps"
    graph.edges["gpu1", "leaf"]["link_class"] = "uplink"
    topology = load(graph)
    named = dict(
        zip([link.name for link in topology.link_classes], topology.link_counts(), strict=True)
    )
    assert named == {"nic": 2, "fabric": 2, "nic-2": 1, "gpulink": 2, "uplink": 1}


def test_counts_and_parallel_edges_add_up() -> None:
    wide, several = star(2, count=3), nx.MultiDiGraph(star(2))
    for u, v in list(star(2).edges):
        several.add_edges_from([(u, v, CABLE)] * 2)
    for graph in (wide, several):
        topology = load(graph)
        assert topology.link_counts() == (12,)
        found = load_between(topology, 0, 1)
        assert found.loads == pytest.approx([1 / 3] * 6)


def test_edges_of_an_undirected_graph_are_links_each_way() -> None:
    graph = nx.Graph()
    graph.add_nodes_from(("a", "b"), kind="npu")
    graph.add_edge("a", "b", **CABLE)
    assert load(graph).link_counts() == (2,)


def test_simulate_and_load_topology_take_a_graph() -> None:
    graph = star(8, link_class="port")
    made = stepsim.load_topology(stepsim.load_topology(graph), npus=8)
    times = [
        stepsim.simulate("workloads/gpt_tp4.txt", each, npus=8, pp=2, microbatches=2).step_time_s
        for each in (graph, made)
    ]
    assert times[0] == times[1]
    with pytest.raises(TopologyError, match="has 8 NPUs: the job needs 9"):
        stepsim.load_topology(graph, npus=9)


def _with(**of_edge: Any) -> nx.DiGraph:
    graph = star()
    graph.edges["gpu1", "leaf"].update(of_edge)
    return graph


def _without(*names: str) -> nx.DiGraph:
    graph = star()
    for name in names:
        del graph.edges["gpu1", "leaf"][name]
    return graph


def _node(node: object, **data: Any) -> nx.DiGraph:
    graph = star()
    graph.add_node(node, **data)
    return graph


def _of(**data: Any) -> nx.DiGraph:
    graph = star()
    graph.graph.update(data)
    return graph


def _loop() -> nx.DiGraph:
    graph = star()
    graph.add_edge("leaf", "leaf", **CABLE)
    return graph


def _two_rates() -> nx.DiGraph:
    graph = star(link_class="wire")
    graph.edges["gpu1", "leaf"]["bandwidth"] = 1e9
    return graph


def _same_text() -> nx.DiGraph:
    graph = star()
    for node in (3, "3"):
        graph.add_node(node, kind="switch")
    return graph


EDGE = "edge 'gpu1' to 'leaf': "


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (_with(bandwith=1), f"{EDGE}'bandwith' is no attribute of it: expected bandwidth"),
        (_without("bandwidth"), f"{EDGE}bandwidth: None is not a bandwidth such as '400 Gbps'"),
        (_with(bandwidth=0), "such as '400 Gbps', or a number of bytes/s above 0"),
        (_with(bandwidth=True), f"{EDGE}bandwidth: True is not a bandwidth"),
        (_with(bandwidth="400"), f"{EDGE}bandwidth: '400' has no unit"),
        (_with(latency="-5 ns"), f"{EDGE}latency: '-5 ns'"),
        (
            _with(latency=5),
            "latency is 5: expected a text such as '500 ns', or whole picoseconds as",
        ),
        (_with(latency_ps=5), f"{EDGE}latency and latency_ps say the same"),
        (_with(endpoint_latency_ps=-5), f"{EDGE}endpoint_latency_ps is -5"),
        (_with(endpoint_latency_ps="1 us"), f"{EDGE}endpoint_latency_ps is '1 us'"),
        (_with(efficiency=1.5), f"{EDGE}nic: efficiency is 1.5: expected 0 to 1"),
        (_with(count=0), f"{EDGE}count is 0: expected 1 to 1024"),
        (_with(link_class="npus"), f"{EDGE}link_class is 'npus'"),
        (_two_rates(), f"{EDGE}bandwidth is 1e+09 here and 5e+10 for edge 'leaf' to 'gpu0'"),
        (_same_text(), "nodes 3 and '3': expected nodes of different text"),
        (_loop(), "edge 'leaf' to 'leaf': a link joins 'leaf' to itself"),
        (_node("x", kind="gpu"), "node 'x': kind is 'gpu': expected npu or switch"),
        (
            _node("x", kind="switch", colour=1),
            "node 'x': 'colour' is no attribute of it: expected kind",
        ),
        (_node("a\nb", kind="switch"), "node 'a\\nb': expected one line"),
        (
            _node("npu7", kind="switch"),
            "node 'npu7': kind is 'switch': a name that begins with npu",
        ),
        (_node("npu7", kind="npu"), "node 'gpu0': expected all NPUs called npu0 to npu3"),
        (_node(0.5, kind="switch"), "node 0.5: expected a text, a number or a tuple"),
        (
            _node("x", kind="npu"),
            "npu0 (gpu0) and npu3 (x) are not connected; NPUs forward nothing",
        ),
        (nx.DiGraph(), "the graph has 0 NPUs"),
        (_of(colour="red"), "the graph: 'colour' is no attribute"),
        (_of(node_size=4), "the graph: node_size is 4: expected 1 to 3"),
        (_of(npus_forward=1), "the graph: npus_forward is 1"),
        (_of(launch_latency="3"), "the graph: launch_latency: '3' has no unit"),
        (_of(name=3), "the graph: name is 3"),
        (_of(algorithms="ring"), "the graph: algorithms is 'ring': expected list"),
        (_of(algorithms=["rings"]), "the graph: algorithms is 'rings': expected of ring, bidir"),
    ],
)
def test_mistakes_in_graphs_are_named(graph: nx.DiGraph, said: str) -> None:
    with pytest.raises(TopologyError) as caught:
        stepsim.load_topology(graph)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_topology_is_refused() -> None:
    expected = "topology is int: expected a name, a file, a networkx graph"
    wrong: Any = 3
    with pytest.raises(TopologyError, match=expected):
        stepsim.load_topology(wrong)


@pytest.mark.parametrize(
    "code",
    [
        "import stepsim",
        "import stepsim; stepsim.load_topology('hgx-h100', npus=64)",
        "import stepsim; stepsim.simulate('workloads/gpt_tp4.txt', 'hgx-h100', npus=16, pp=2)",
    ],
)
def test_networkx_is_imported_for_listed_links_only(code: str) -> None:
    check = f"{code}\nimport sys\nsys.exit('networkx' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, check=False)
    assert run.returncode == 0, run.stderr
