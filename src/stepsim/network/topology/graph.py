"""A topology as a networkx graph, for drawing and for other tools."""

from collections.abc import Iterable

import networkx as nx

from stepsim.network.topology.links import LinkClass


def graph_of_links(
    name: str, npus: int, links: Iterable[tuple[int, str, str, LinkClass]]
) -> nx.MultiDiGraph:
    """A graph of (number, from, to, class) links; `npu0`.. are NPUs, other nodes switches."""
    graph = nx.MultiDiGraph(name=name)
    graph.add_nodes_from((f"npu{i}" for i in range(npus)), kind="npu")
    for number, u, v, link in links:
        for node in (u, v):
            if node not in graph:
                graph.add_node(node, kind="switch")
        graph.add_edge(
            u,
            v,
            key=number,
            link=number,
            name=link.name,
            bandwidth=link.bandwidth,
            latency_ps=link.latency_ps,
        )
    return graph
