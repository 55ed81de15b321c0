"""A list of links from a graph of nodes and links, and whether all NPUs reach each other."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import networkx as nx
import numpy as np

from stepsim.base.arrays import ints
from stepsim.base.errors import TopologyError
from stepsim.network.topology.cabling import Cabling
from stepsim.network.topology.dimension import LinkClass
from stepsim.network.topology.listed import ListedTopology

_Hanging = dict[frozenset[int], list[int]]


def listed_topology(
    graph: nx.MultiDiGraph,
    link_classes: Sequence[LinkClass],
    *,
    name: str,
    npus_forward: bool = False,
    **others: Any,
) -> ListedTopology:
    """The topology of a graph: of nodes their names are read, of edges class and `count`.

    `others` are what else is said of a `ListedTopology`.
    NPUs are called `npu0`, `npu1`, ..., switches anything else. Raises TopologyError naming two
    NPUs without a route; their attribute `label` is named too.
    """
    npus = sum(node.startswith("npu") for node in graph)
    lost = _first_lost(graph, npus, npus_forward=npus_forward)
    if lost:
        hint = "" if npus_forward else "; NPUs forward nothing (npus_forward = false)"
        a, b = (_label(graph, npu) for npu in lost)
        raise TopologyError(f"{name}: {a} and {b} are not connected{hint}")
    return ListedTopology(
        name=name,
        cabling=_cabling(graph, npus, {link.name: i for i, link in enumerate(link_classes)}),
        link_classes=tuple(link_classes),
        npus_forward=npus_forward,
        **others,
    )


def _label(graph: nx.MultiDiGraph, npu: int) -> str:
    node = f"npu{npu}"
    label = graph.nodes[node].get("label", node)
    return node if label == node else f"{node} ({label})"


def _cabling(graph: nx.MultiDiGraph, npus: int, classes: Mapping[str, int]) -> Cabling:
    """Links numbered in the order of the graph's edges."""
    nodes = [*(f"npu{i}" for i in range(npus))]
    nodes += [node for node in graph if not node.startswith("npu")]
    number = {node: i for i, node in enumerate(nodes)}
    rows = [
        (number[u], number[v], classes[edge["link_class"]], edge.get("count", 1))
        for u, v, edge in graph.edges(data=True)
    ]
    tail, head, link_class, count = ints(rows).reshape(-1, 4).T
    return Cabling(
        nodes=tuple(nodes),
        npus=npus,
        tail=np.repeat(tail, count),
        head=np.repeat(head, count),
        link_class=np.repeat(link_class, count),
    )


def _first_lost(graph: Any, npus: int, *, npus_forward: bool) -> tuple[int, int] | None:
    """Two NPUs of which one does not reach the other, if there are any.

    Where they do not forward, there is a way through switches, or a link of their own.
    """
    names = [f"npu{i}" for i in range(npus)]
    if npus_forward:
        for part in nx.strongly_connected_components(graph):
            if names[0] in part:
                return next(((0, i) for i, name in enumerate(names) if name not in part), None)
    # NPUs by the parts of connected switches that they send to, and receive from
    switches = nx.condensation(graph.subgraph(graph.nodes - set(names)))
    part_of = switches.graph["mapping"]
    senders: _Hanging = defaultdict(list)
    receivers: _Hanging = defaultdict(list)
    for i, name in enumerate(names):
        senders[frozenset(part_of[v] for v in graph.succ[name] if v in part_of)].append(i)
        receivers[frozenset(part_of[u] for u in graph.pred[name] if u in part_of)].append(i)
    for first, mine in senders.items():
        reached = set(first).union(*(nx.descendants(switches, part) for part in first))
        for last, theirs in receivers.items():
            for a, b in product(mine, theirs) if reached.isdisjoint(last) else ():
                if a != b and not graph.has_edge(f"npu{a}", f"npu{b}"):
                    return min(a, b), max(a, b)
    return None
