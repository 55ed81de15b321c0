"""Topologies as networkx graphs, and listed ones made of graphs.

In a graph of a network nodes have a `kind`, npu or switch, and every edge is one or several equal
links (`count`) in one direction, of a `link_class` with the numbers of `LINK_FIELDS`.
"""

from collections import Counter
from collections.abc import Iterator

import networkx as nx
import numpy as np

from stepsim.base.errors import TopologyError
from stepsim.network.topology.dimension import LINK_FIELDS, PLAIN, LinkClass
from stepsim.network.topology.network import Topology

_MOST_NPUS = 1 << 16
_MOST_LINKS = 1 << 20


def graph_of(topology: Topology, *, npus_forward: bool) -> nx.DiGraph:
    """A topology as a graph that `listed_topology` takes; its attributes are the topology's.

    NPUs are `npu0`, `npu1`, ... in this order; edges have the numbers of their class in bytes/s and
    ps. It is a MultiDiGraph where links of several classes join the same two nodes.
    """
    cables = Counter((u, v, link) for _, u, v, link in links_of(topology))
    several = len({(u, v) for u, v, _ in cables}) < len(cables)
    graph = nx.MultiDiGraph() if several else nx.DiGraph()
    graph.graph |= {
        "name": topology.name,
        "source": topology.source,
        "node_size": topology.node_size,
        "npus_forward": npus_forward,
        "launch_latency_ps": topology.launch_latency_ps,
        "algorithms": topology.algorithms,
        **({"library": topology.library} if topology.library != PLAIN else {}),
    }
    graph.add_nodes_from((f"npu{i}" for i in range(topology.npus)), kind="npu")
    graph.add_nodes_from(
        (node for u, v, _ in cables for node in (u, v) if node not in graph), kind="switch"
    )
    for (u, v, link), count in cables.items():
        numbers = {field.field: getattr(link, field.field) for field in LINK_FIELDS}
        graph.add_edge(u, v, link_class=link.name, count=count, **numbers)
    return graph


def links_of(topology: Topology) -> Iterator[tuple[int, str, str, LinkClass]]:
    """Every link: its number, the node it leaves, the node it enters, its class."""
    classes = topology.link_class(np.arange(topology.link_numbers, dtype=np.int64))
    for number, c in enumerate(classes.tolist()):
        yield number, *topology.link_ends(number), topology.link_classes[c]


def check_size(topology: Topology) -> None:
    """Raise TopologyError for a topology that would be too large a graph: 65,536 NPUs at most."""
    links = sum(topology.link_counts())
    if topology.npus > _MOST_NPUS or links > _MOST_LINKS:
        hint = ": take a smaller one with .fit(n)" if topology.grows else ""
        raise TopologyError(
            f"topology {topology.name} has {topology.npus} NPUs and {links} links: a graph has at "
            f"most {_MOST_NPUS} and {_MOST_LINKS}{hint}"
        )
