"""Topologies given as a list of links."""

from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from stepsim.base.arrays import Floats, Ints, ints
from stepsim.base.structs import Names, Noun, Numbers
from stepsim.network.topology.cabling import (
    Cabling,
    Swap,
    bundle_links,
    even_cut,
    find_swaps,
)
from stepsim.network.topology.dimension import PLAIN, Dimension, Library, LinkClass, Load
from stepsim.network.topology.network import check_room
from stepsim.network.topology.placed import Layout
from stepsim.network.topology.rings import disjoint_rings, node_rings
from stepsim.network.topology.routing import Router
from stepsim.network.topology.wiring import DimensionKind, Flows

if TYPE_CHECKING:
    import networkx as nx

_SOURCES_MEASURED = 64


class ListedTopology(Noun, eq=False, dict=True):
    """A network of listed links: a networkx graph as arrays, made by `graph.listed_topology`.

    A flow takes the paths of least latency, then fewest hops, in equal shares (parallel links share
    evenly). NPUs forward other NPUs' traffic only if `npus_forward`. `node_size` consecutive NPUs
    share a node.
    """

    name: str
    source: str
    cabling: Cabling
    link_classes: tuple[LinkClass, ...]
    node_size: int
    npus_forward: bool = False
    launch_latency_ps: int = 0
    algorithms: Names = ()
    library: Library = PLAIN
    device: str = ""

    dimensions: ClassVar[tuple[Dimension, ...]] = ()

    def __post_init__(self) -> None:
        self.library.check(self.name, [link.name for link in self.link_classes])
        _ = self.router

    @property
    def npus(self) -> int:
        """NPUs the network holds."""
        return self.cabling.npus

    @property
    def blocks(self) -> Numbers:
        """The whole network: routes may leave a node."""
        return (self.npus,)

    @property
    def grows(self) -> bool:
        """A list of links has the size it has."""
        return False

    @property
    def default_npus(self) -> int:
        """NPUs of a job that names no number: all of them."""
        return self.npus

    def fit(self, npus: int) -> "ListedTopology":
        """The topology itself; raises TopologyError if it is too small for the job."""
        check_room(self, npus)
        return self

    @cached_property
    def router(self) -> Router:
        """The routes between NPUs."""
        cabling, nodes = self.cabling, len(self.cabling.nodes)
        latencies = ints([link.latency_ps for link in self.link_classes])
        return Router(
            npus=self.npus,
            nodes=nodes,
            inner=0 if self.npus_forward else self.npus,
            bundles=bundle_links(cabling, latencies[cabling.link_class]),
            endpoint_ps=np.array([link.endpoint_latency_ps for link in self.link_classes]),
        )

    @cached_property
    def _swaps(self) -> tuple[Swap, ...]:
        return tuple(find_swaps(self.cabling, self.node_size))

    def link_class(self, link: Ints) -> Ints:
        """Index into `link_classes` of each link number."""
        return self.cabling.link_class[link]

    def link_counts(self) -> Numbers:
        """Links per class, each direction counted."""
        counts = np.bincount(self.cabling.link_class, minlength=len(self.link_classes))
        return tuple(int(count) for count in counts)

    def link_ends(self, link: int) -> tuple[str, str]:
        """Names of the nodes a link leaves and enters."""
        nodes, cabling = self.cabling.nodes, self.cabling
        return nodes[cabling.tail[link]], nodes[cabling.head[link]]

    def graph(self) -> "nx.DiGraph":
        """The network as a networkx graph, see `graph_of`."""
        from stepsim.network.topology.graph import graph_of

        return graph_of(self, npus_forward=self.npus_forward)

    def canonical(self, members: Ints) -> Ints:
        """Groups (rows) moved to the first nodes that can be swapped: equal rows cost the same."""
        order = np.argsort(members, axis=1)
        ascending = np.take_along_axis(members.astype(np.int64), order, axis=1)
        for swap in self._swaps:
            ascending = swap.first_alike(ascending)
        moved = np.empty_like(ascending)
        np.put_along_axis(moved, order, ascending, axis=1)
        return moved

    def layout(self, members: Ints) -> Layout:
        """How a group lies: by place within the node and by node."""
        members = members.astype(np.int64)
        orders = node_rings(members, self.node_size)
        if self.npus_forward:
            orders = disjoint_rings(self.cabling.between(members)) or orders
        return Layout(
            coordinates=np.stack((members % self.node_size, members // self.node_size), axis=1),
            kinds=(DimensionKind.SWITCH, DimensionKind.SWITCH),
            orders=orders,
        )

    @property
    def link_numbers(self) -> int:
        """How many links there are."""
        return len(self.cabling.tail)

    def load(self, flows: Flows) -> Load:
        """What flows put on the links, numbered anew for every owner: each by its pair's route."""
        (owner, links, loads), hops = self.router.load(flows)
        links += owner * self.link_numbers
        return Load(links, loads, hops, np.zeros(len(hops), np.int64))

    @property
    def _bandwidth(self) -> Floats:
        """Bytes/s of each link."""
        classes = np.array([link.bandwidth for link in self.link_classes])
        return classes[self.cabling.link_class]

    def bisection(self) -> tuple[float, str]:
        """Bytes/s, one way, between halves of the NPUs, and how it was found: an upper bound."""
        least = even_cut(self.cabling, self._bandwidth)
        return least, "upper bound: least of several even cuts"

    def injection(self) -> float:
        """Bytes/s that an NPU can send over all its links at once, on average."""
        return float(self._bandwidth[self.cabling.tail < self.npus].sum()) / self.npus

    def long_routes(self) -> Ints:
        """Links per class on all kinds of routes from the first 64 NPUs to all others."""
        sources = np.arange(min(self.npus, _SOURCES_MEASURED), dtype=np.int64)
        start, end = np.stack(np.meshgrid(sources, np.arange(self.npus))).reshape(2, -1)
        return self.load(Flows(np.zeros_like(start), start, end, np.ones(len(start)))).hops
