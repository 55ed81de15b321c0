"""Topologies given as a list of links."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import TopologyError
from stepsim.network.topology.layout import Layout
from stepsim.network.topology.links import LinkClass, Load, sum_loads
from stepsim.network.topology.network import Bisection, check_room
from stepsim.network.topology.rings.order import node_rings
from stepsim.network.topology.rings.search import disjoint_rings
from stepsim.network.topology.routes.bundles import bundle_links, components
from stepsim.network.topology.routes.cut import even_cut
from stepsim.network.topology.routes.routing import Router
from stepsim.network.topology.wiring import DimensionKind

if TYPE_CHECKING:
    import networkx as nx

_SOURCES_MEASURED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One directed link between two named nodes; NPUs are called `npu0`, `npu1`, ..."""

    start: str
    end: str
    link_class: int

    def __post_init__(self) -> None:
        if self.start == self.end:
            raise TopologyError(f"a link joins {self.start} to itself")


@dataclass(frozen=True, kw_only=True)
class ListedTopology:
    """A network of listed links.

    A flow takes the paths of least latency, then fewest hops, in equal shares (parallel links share
    evenly). NPUs forward other NPUs' traffic only if `npus_forward`. `node_size` consecutive NPUs
    share a node.
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

    def __post_init__(self) -> None:
        lost = self._not_connected()
        if lost:
            hint = "" if self.npus_forward else "; NPUs forward nothing (npus_forward = false)"
            a, b = lost
            raise TopologyError(f"{self.name}: npu{a} and npu{b} are not connected{hint}")
        _ = self.router

    @property
    def grows(self) -> bool:
        """A list of links has the size it has."""
        return False

    @property
    def default_npus(self) -> int:
        """All NPUs."""
        return self.npus

    def fit(self, npus: int) -> "ListedTopology":
        """The topology itself; raises TopologyError if it is too small for the job."""
        check_room(self, npus)
        return self

    @cached_property
    def node_numbers(self) -> dict[str, int]:
        """Nodes by name: NPUs have their own numbers, switches those from `npus` on."""
        numbers = {f"npu{i}": i for i in range(self.npus)}
        for link in self.link_list:
            numbers.setdefault(link.start, len(numbers))
            numbers.setdefault(link.end, len(numbers))
        return numbers

    @cached_property
    def ends(self) -> tuple[Ints, Ints]:
        """Node numbers that each link leaves and enters."""
        numbers, links = self.node_numbers, self.link_list
        return (
            np.array([numbers[link.start] for link in links], dtype=np.int64),
            np.array([numbers[link.end] for link in links], dtype=np.int64),
        )

    @cached_property
    def _classes(self) -> Ints:
        return np.array([link.link_class for link in self.link_list], dtype=np.int64)

    @cached_property
    def router(self) -> Router:
        """The routes between NPUs."""
        latencies = np.array([link.latency_ps for link in self.link_classes], dtype=np.int64)
        tails, heads = self.ends
        nodes = len(self.node_numbers)
        return Router(
            npus=self.npus,
            nodes=nodes,
            inner=0 if self.npus_forward else self.npus,
            bundles=bundle_links(tails, heads, latencies[self._classes], self._classes, nodes),
            endpoint_ps=np.array([link.endpoint_latency_ps for link in self.link_classes]),
        )

    def _not_connected(self) -> tuple[int, int] | None:
        """Two NPUs without a route; with one-way links only routes to and from npu0 are checked."""
        pairs = set(zip(*(end.tolist() for end in self.ends), strict=True))
        if any((b, a) not in pairs for a, b in pairs):
            return self._not_connected_to_npu0()
        inner = 0 if self.npus_forward else self.npus
        label = components(len(self.node_numbers), (p for p in pairs if min(p) >= inner))
        reached: list[set[int]] = [
            {label[i]} if self.npus_forward else set() for i in range(self.npus)
        ]
        for a, b in pairs:
            if a < inner <= b:
                reached[a].add(label[b])
        if set.intersection(*reached):
            return None
        alike: dict[frozenset[int], list[int]] = {}
        for npu, labels in enumerate(reached):
            alike.setdefault(frozenset(labels), []).append(npu)
        return self._first_lost(alike, pairs)

    def _first_lost(
        self, alike: dict[frozenset[int], list[int]], pairs: set[tuple[int, int]]
    ) -> tuple[int, int] | None:
        """The first pair that meets in no network and has no link of its own."""
        together = [(npus, npus) for labels, npus in alike.items() if not labels]
        apart = [
            (mine, theirs)
            for (a, mine), (b, theirs) in combinations(alike.items(), 2)
            if a.isdisjoint(b)
        ]
        lost = (
            (min(x, y), max(x, y))
            for mine, theirs in together + apart
            for x in mine
            for y in theirs
            if x != y and (x, y) not in pairs
        )
        return next(lost, None)

    def _not_connected_to_npu0(self) -> tuple[int, int] | None:
        others = np.arange(1, self.npus, dtype=np.int64)
        for other in others.tolist():
            for pair in ((0, other), (other, 0)):
                try:
                    self.load(np.array(pair[:1]), np.array(pair[1:]), np.ones(1))
                except TopologyError:
                    return 0, other
        return None

    def link_class(self, link: Ints) -> Ints:
        """Index into `link_classes` of each link number."""
        return self._classes[link]

    def link_counts(self) -> tuple[int, ...]:
        """Links per class, each direction counted."""
        counts = np.bincount(self._classes, minlength=len(self.link_classes))
        return tuple(int(count) for count in counts)

    def link_ends(self, link: int) -> tuple[str, str]:
        """Names of the nodes a link leaves and enters."""
        return self.link_list[link].start, self.link_list[link].end

    def links(self) -> Iterator[tuple[int, str, str, LinkClass]]:
        """Every link: its number, the node it leaves, the node it enters, its class."""
        for number, link in enumerate(self.link_list):
            yield number, link.start, link.end, self.link_classes[link.link_class]

    def graph(self) -> "nx.MultiDiGraph":
        """The network as a networkx graph, see `graph_of_links`."""
        from stepsim.network.topology.graph import graph_of_links

        return graph_of_links(self.name, self.npus, self.links())

    def canonical(self, members: Ints) -> Ints:
        """The groups themselves: nothing is known to be alike in a list of links."""
        return members

    def layout(self, members: Ints) -> Layout:
        """How a group lies: by place within the node and by node."""
        members = members.astype(np.int64)
        orders = node_rings(members, self.node_size)
        if self.npus_forward:
            orders = disjoint_rings(self._cables_between(members)) or orders
        return Layout(
            coordinates=np.stack((members % self.node_size, members // self.node_size), axis=1),
            kinds=(DimensionKind.SWITCH, DimensionKind.SWITCH),
            orders=orders,
        )

    def _cables_between(self, members: Ints) -> Ints:
        """Links from each member to each other."""
        place = np.full(len(self.node_numbers), -1, dtype=np.int64)
        place[members] = np.arange(len(members), dtype=np.int64)
        tails, heads = (place[end] for end in self.ends)
        inside = (tails >= 0) & (heads >= 0)
        cables = np.zeros((len(members), len(members)), dtype=np.int64)
        np.add.at(cables, (tails[inside], heads[inside]), 1)
        return cables

    def load(self, sources: Ints, destinations: Ints, weights: Floats) -> Load:
        """What flows put on the links: each takes the route of its pair."""
        parts, hops = self.router.load(sources, destinations, weights)
        return sum_loads(parts, hops)

    def loads_apart(
        self, sources: Ints, destinations: Ints, weights: Floats, owners: Ints
    ) -> tuple[Ints, Ints, Floats]:
        """What each owner's flows put on the links: columns of owner, link and load."""
        columns: list[tuple[Ints, Ints, Floats]] = []
        for owner in np.unique(owners).tolist():
            mine = owners == owner
            load = self.load(sources[mine], destinations[mine], weights[mine])
            columns.append((np.full(len(load.links), owner), load.links, load.loads))
        nothing = np.zeros(0, dtype=np.int64)
        who, links, loads = zip(*columns, (nothing, nothing, np.zeros(0)), strict=True)
        return np.concatenate(who), np.concatenate(links), np.concatenate(loads)

    def bisection(self) -> Bisection:
        """The least of several cuts into halves: an upper bound."""
        tails, heads = self.ends
        bandwidth = np.array([link.bandwidth for link in self.link_classes])[self._classes]
        least = even_cut(self.npus, len(self.node_numbers), tails, heads, bandwidth)
        return Bisection(bandwidth=least, method="upper bound: least of several even cuts")

    def injection(self) -> float:
        """Bytes/s that an NPU can send over all its links at once, on average."""
        bandwidth = np.array([link.bandwidth for link in self.link_classes])[self._classes]
        return float(bandwidth[self.ends[0] < self.npus].sum()) / self.npus

    def long_routes(self) -> Ints:
        """Links per class on all kinds of routes from the first 64 NPUs to all others."""
        sources = np.arange(min(self.npus, _SOURCES_MEASURED), dtype=np.int64)
        pairs = np.stack(np.meshgrid(sources, np.arange(self.npus), indexing="ij")).reshape(2, -1)
        return self.load(pairs[0], pairs[1], np.ones(pairs.shape[1])).hops
