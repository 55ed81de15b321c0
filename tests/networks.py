"""Networks made by hand, link by link."""

from collections.abc import Iterable, Sequence
from typing import Any

import networkx as nx

from stepsim.network.topology import LinkClass
from stepsim.network.topology.cabled import listed_topology
from stepsim.network.topology.listed import ListedTopology


def cabled(
    npus: int,
    cables: Iterable[tuple[str, str] | tuple[str, str, int]],
    classes: Sequence[LinkClass],
    *,
    oneway: bool = False,
    node_size: int = 0,
    **options: Any,
) -> ListedTopology:
    """Cables `(end, end)` or `(end, end, number of its class)`, in both directions or one."""
    graph = nx.MultiDiGraph()
    graph.add_nodes_from((f"npu{i}" for i in range(npus)), kind="npu")
    for a, b, *of_class in cables:
        graph.add_nodes_from((node for node in (a, b) if node not in graph), kind="switch")
        name = classes[of_class[0] if of_class else 0].name
        for ends in ((a, b),) if oneway else ((a, b), (b, a)):
            graph.add_edge(*ends, link_class=name)
    texts = {"name": "cabled", "source": "test"} | options
    return listed_topology(graph, classes, node_size=node_size or npus, **texts)
