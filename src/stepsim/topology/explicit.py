"""Topologies given as a list of links, routed over their networkx graph."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise

import networkx as nx
import numpy as np

from stepsim.errors import TopologyError
from stepsim.topology.layout import Layout
from stepsim.topology.links import Floats, Ints, LinkClass, Load, sum_loads
from stepsim.topology.network import check_room
from stepsim.topology.ring_order import node_rings
from stepsim.topology.wiring import DimensionKind

_MAX_PATHS = 64


def graph_of_links(
    name: str, npus: int, links: Iterable[tuple[int, str, str, LinkClass]]
) -> nx.MultiDiGraph:
    """A networkx graph of (number, from, to, class) links; `npu0`.. are NPUs, others switches."""
    graph = nx.MultiDiGraph(name=name)
    graph.add_nodes_from((f"npu{i}" for i in range(npus)), kind="npu")
    for number, u, v, link in links:
        if v not in graph:
            graph.add_node(v, kind="switch")
        if u not in graph:
            graph.add_node(u, kind="switch")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One directed link between two named nodes; NPUs are called `npu0`, `npu1`, ..."""

    start: str
    end: str
    link_class: int

    def __post_init__(self) -> None:
        if self.start == self.end:
            raise TopologyError(f"a link joins {self.start} to itself")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How one pair's flow spreads: its share on every link, the hops per class of a path."""

    shares: dict[int, float]
    hops: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ExplicitTopology:
    """A network of listed links.

    A flow takes the paths of least latency, then fewest hops, in equal shares (at most 64 paths;
    parallel links share evenly). NPUs forward other NPUs' traffic only if `npus_forward`.
    `node_size` consecutive NPUs share a node.
    """

    name: str
    source: str
    npus: int
    link_classes: tuple[LinkClass, ...]
    link_list: tuple[Link, ...]
    node_size: int
    npus_forward: bool = False
    launch_latency_ps: int = 0
    algorithms: tuple[str, ...] = ()
    _routes: dict[tuple[int, int], Route] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        reached = nx.descendants(self._routing, _out(0))
        reaching = nx.ancestors(self._routing, _in(0))
        for npu in range(1, self.npus):
            if _in(npu) not in reached or _out(npu) not in reaching:
                hint = "" if self.npus_forward else "; NPUs forward nothing (npus_forward = false)"
                raise TopologyError(f"{self.name}: npu0 and npu{npu} are not connected{hint}")

    @property
    def grows(self) -> bool:
        """A list of links has the size it has."""
        return False

    @property
    def default_npus(self) -> int:
        """All NPUs."""
        return self.npus

    def fit(self, npus: int) -> "ExplicitTopology":
        """The topology itself; raises TopologyError if it is too small for the job."""
        check_room(self, npus)
        return self

    @cached_property
    def _routing(self) -> nx.DiGraph:
        """Graph for shortest paths: NPUs split in two, so that none is passed through."""
        parallel: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for number, link in enumerate(self.link_list):
            ends = link.start, _entry(link.end)
            parallel[ends].append((self.link_classes[link.link_class].latency_ps, number))
        graph = nx.DiGraph()
        for npu in range(self.npus):
            graph.add_nodes_from((_out(npu), _in(npu)))
            if self.npus_forward:
                graph.add_edge(_in(npu), _out(npu), cost=0, links=())
        latency_first = 1 + len(self.link_list)  # no path has more hops, so latency decides
        for (u, v), links in parallel.items():
            latency = min(links)[0]
            fastest = tuple(number for each, number in links if each == latency)
            graph.add_edge(u, v, cost=latency * latency_first + 1, links=fastest)
        return graph

    def link_class(self, link: Ints) -> Ints:
        """Index into `link_classes` of each link number."""
        return np.array([each.link_class for each in self.link_list], dtype=np.int64)[link]

    def link_counts(self) -> tuple[int, ...]:
        """Links per class, each direction counted."""
        classes = [link.link_class for link in self.link_list]
        return tuple(classes.count(c) for c in range(len(self.link_classes)))

    def link_ends(self, link: int) -> tuple[str, str]:
        """Names of the nodes a link leaves and enters."""
        return self.link_list[link].start, self.link_list[link].end

    def links(self) -> Iterator[tuple[int, str, str, LinkClass]]:
        """Every link: its number, the node it leaves, the node it enters, its class."""
        for number, link in enumerate(self.link_list):
            yield number, link.start, link.end, self.link_classes[link.link_class]

    def graph(self) -> nx.MultiDiGraph:
        """The network as a networkx graph, see `graph_of_links`."""
        return graph_of_links(self.name, self.npus, self.links())

    def canonical(self, members: Ints) -> Ints:
        """The groups themselves: nothing is known to be alike in a list of links."""
        return members

    def layout(self, members: Ints) -> Layout:
        """How a group lies: by place within the node and by node."""
        return Layout(
            coordinates=np.stack((members % self.node_size, members // self.node_size), axis=1),
            kinds=(DimensionKind.SWITCH, DimensionKind.SWITCH),
            orders=node_rings(members, self.node_size),
        )

    def load(self, sources: Ints, destinations: Ints, weights: Floats) -> Load:
        """What flows put on the links: each takes the route of its pair."""
        pairs = zip(sources.tolist(), destinations.tolist(), strict=True)
        routes = [self.route(source, destination) for source, destination in pairs]
        loads: dict[int, float] = defaultdict(float)
        for route, weight in zip(routes, weights.tolist(), strict=True):
            for link, share in route.shares.items():
                loads[link] += share * weight
        part = np.array(list(loads), dtype=np.int64), np.array(list(loads.values()))
        hops = np.array([r.hops for r in routes], dtype=np.int64).reshape(len(routes), -1)
        return sum_loads([part], hops)

    def route(self, source: int, destination: int) -> Route:
        """The route of one pair, found once and kept."""
        key = source, destination
        if key not in self._routes:
            self._routes[key] = self._find_route(source, destination)
        return self._routes[key]

    def _find_route(self, source: int, destination: int) -> Route:
        hops = [0] * len(self.link_classes)
        shares: dict[int, float] = defaultdict(float)
        if source != destination:
            ways = nx.all_shortest_paths(
                self._routing, _out(source), _in(destination), weight="cost"
            )
            paths = list(islice(ways, _MAX_PATHS))
            for path in paths:
                taken = [0] * len(hops)
                for u, v in pairwise(path):
                    links = self._routing.edges[u, v]["links"]
                    for link in links:
                        shares[link] += 1 / len(paths) / len(links)
                    if links:
                        taken[self.link_list[links[0]].link_class] += 1
                hops = max(hops, taken, key=self._endpoint_latency)
        return Route(shares=dict(shares), hops=tuple(hops))

    def _endpoint_latency(self, hops: list[int]) -> int:
        """What the ends of a message on this path add; all paths are equal otherwise."""
        crossed = zip(self.link_classes, hops, strict=True)
        return max((link.endpoint_latency_ps for link, count in crossed if count), default=-1)


def _out(npu: int) -> str:
    return f"npu{npu}"


def _in(npu: int) -> str:
    return f"npu{npu}:in"


def _entry(node: str) -> str:
    return f"{node}:in" if node.startswith("npu") else node
