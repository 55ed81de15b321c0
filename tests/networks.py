"""Networks made by hand, link by link."""

from collections.abc import Iterable, Sequence
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike

from stepsim.network.topology import LinkClass, Load, Topology
from stepsim.network.topology.cabled import listed_topology
from stepsim.network.topology.listed import ListedTopology
from stepsim.network.topology.wiring import Flows


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


def load_between(
    topology: Topology, start: ArrayLike, end: ArrayLike, weight: ArrayLike = 1
) -> Load:
    """What flows put on the links, from an NPU to another or from each of several."""
    starts, ends = np.atleast_1d(start), np.atleast_1d(end)
    weights = np.broadcast_to(np.asarray(weight, np.float64), starts.shape)
    return topology.load(Flows(np.zeros_like(starts), starts, ends, weights))
