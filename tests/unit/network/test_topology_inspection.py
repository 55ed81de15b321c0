"""Inspection: numbers against brute force, and figures of every kind of network."""

from itertools import combinations
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from helpers import few
from networks import cabled
from unit.network.test_topology import explicit
from unit.network.test_wirings import CUBE_MESH, dim, dragonfly, network, tree

from stepsim.base.errors import OutputError
from stepsim.files.load import read_topology
from stepsim.network.topology import NestedTopology
from stepsim.network.topology.graph import links_of
from stepsim.network.topology.inspection import inspect_topology
from stepsim.network.topology.listed import ListedTopology
from stepsim.network.topology.network import Topology
from stepsim.network.topology.wirings import Ports, TreeShape
from stepsim.views.topologies import draw_topology, picture

SHIPPED = sorted((Path(__file__).parents[3] / "topologies").glob("*.toml"))


def least_cut(topology: Topology) -> float:
    """Bytes/s across the least even cut: a minimum cut for every half of the NPUs."""
    graph = nx.DiGraph()
    for _, u, v, link in links_of(topology):
        rate = min(link.bandwidth, 1e15)
        known = graph.get_edge_data(u, v, {"capacity": 0.0})["capacity"]
        graph.add_edge(u, v, capacity=known + rate)
    npus = [f"npu{i}" for i in range(topology.npus)]
    cuts = []
    for half in combinations(npus[1:], topology.npus // 2):
        cut = graph.copy()
        cut.add_edges_from(("from", npu) for npu in half)
        cut.add_edges_from((npu, "to") for npu in set(npus) - set(half))
        cuts.append(nx.maximum_flow_value(cut, "from", "to"))
    return float(min(cuts))


@pytest.mark.parametrize(
    "topology",
    [
        network(dim("ring", 6)),
        network(dim("ring", 2)),
        network(dim("fully_connected", 6)),
        network(dim("torus", 8, shape=(4, 2))),
        network(dim("switch", 2), dim("rail", 4, "b")),
        network(dim("fat_tree", 8, tree=tree((2, 2), (1, 1)))),
        network(dim("switch", 8, ports=Ports(npus_per_nic=2))),
        network(dim("switch", 4, ports=Ports(nics=3))),
        network(dim("dragonfly", 6, dragonfly=dragonfly(2, 1, 1))),
        network(dim("cables", 8, cables=CUBE_MESH)),
    ],
    ids=lambda topology: " ".join(f"{d.kind}:{d.size}" for d in topology.dimensions),
)
def test_bisection_is_the_least_even_cut(topology: NestedTopology) -> None:
    seen = inspect_topology(topology)
    assert seen.bisection_bandwidth == pytest.approx(least_cut(topology), rel=1e-12)
    listed = as_links(topology)
    assert listed.bisection()[0] >= least_cut(topology) * (1 - 1e-9)


def as_links(topology: NestedTopology) -> ListedTopology:
    """The same network as a list of links; NPUs forward."""
    cables = []
    for number, u, v, _ in links_of(topology):
        if u < v:
            cables.append((u, v, int(topology.link_class(np.array([number]))[0])))
    return cabled(topology.npus, cables, topology.link_classes, npus_forward=True)


def test_a_listed_leaf_spine_has_the_bisection_of_its_uplinks() -> None:
    listed = as_links(network(dim("fat_tree", 8, tree=tree((2,), (1,)))))
    least, method = listed.bisection()
    assert least == 2e9
    assert "upper bound" in method
    assert listed.injection() == 1e9


def test_numbers_of_a_small_cluster() -> None:
    seen = inspect_topology(network(dim("switch", 4), dim("rail", 2, "b")))
    assert (seen.npus, seen.nodes, seen.node_size) == (8, 2, 4)
    assert [(row.name, row.count) for row in seen.links] == [("a", 16), ("b", 16)]
    assert seen.injection_bandwidth == 2e9
    assert (seen.diameter_hops, seen.diameter_ps) == (4, 4_000)


def test_npus_reach_each_other_through_a_nic_that_all_share() -> None:
    assert (
        inspect_topology(network(dim("switch", 2, ports=Ports(npus_per_nic=2)))).diameter_hops == 2
    )


def test_diameter_in_latency_counts_the_slowest_endpoints() -> None:
    topology = read_topology(next(path for path in SHIPPED if path.stem == "hgx-h100"))
    seen = inspect_topology(topology)
    slowest = max(link.endpoint_latency_ps for link in topology.link_classes)
    assert (seen.diameter_hops, seen.diameter_ps) == (4, 2 * 25_000 + 2 * 500_000 + slowest)
    assert "\n" not in seen.source


@pytest.mark.parametrize("path", few(SHIPPED, *SHIPPED[::3]), ids=lambda path: path.stem)
def test_shipped_topologies_are_drawn_at_any_size(path: Path, tmp_path: Path) -> None:
    topology = read_topology(path)
    for npus in (topology.npus, 4096):
        _, places, note = picture(topology.fit(npus))
        check(places, 80)
        many = topology.fit(npus).npus > 72
        assert bool(note) or not many
    draw_topology(topology, tmp_path / "net.png")
    assert (tmp_path / "net.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_missing_is_said() -> None:
    rack = read_topology(next(path for path in SHIPPED if path.stem == "gb200-nvl72"))
    assert picture(rack.fit(1152))[2] == "part: 32 of 1,152 NPUs are drawn, and 3 of 19 switches"


def check(places: dict[str, tuple[float, float]], most: int) -> None:
    """Nodes keep apart and NPUs are few enough to read."""
    assert sum(node.startswith("npu") for node in places) <= most
    where = sorted((round(x, 3), round(y, 3)) for x, y in places.values())
    assert len(set(where)) == len(where)


@pytest.mark.parametrize(
    "topology",
    [
        network(dim("dragonfly", 40, dragonfly=dragonfly(2, 4, 2))),
        network(dim("fat_tree", 1024, tree=TreeShape.k_ary(16))),
        network(dim("mesh", 10_000, shape=(100, 100))),
        network(dim("line", 3), dim("switch", 2, "b"), dim("rail", 3, "c")),
    ],
    ids=lambda topology: f"{topology.dimensions[0].kind}:{topology.npus}",
)
def test_every_kind_is_drawn(topology: NestedTopology, tmp_path: Path) -> None:
    check(picture(topology)[1], 144)
    draw_topology(topology, tmp_path / "net.svg")
    assert (tmp_path / "net.svg").read_bytes().startswith(b"<?xml")


def test_long_lists_are_drawn_in_part(tmp_path: Path) -> None:
    cables = [(f"npu{i}", f"leaf{i // 4}") for i in range(400)]
    cables += [(f"leaf{i}", "spine") for i in range(100)]
    _, places, note = picture(explicit(400, cables))
    assert "of 400 NPUs" in note
    check(places, 32)
    ring = explicit(8, [(f"npu{i}", f"npu{(i + 1) % 8}") for i in range(8)], forward=True)
    assert not picture(ring)[2]
    draw_topology(ring, tmp_path / "ring.pdf")


def test_unknown_figures_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"net.jpg.*\.png"):
        draw_topology(network(dim("ring", 4)), tmp_path / "net.jpg")
