"""Dragonfly: groups of fully connected routers, every two groups joined by global links.

Kim, Dally, Scott and Abts, "Technology-driven, highly-scalable dragonfly topology", ISCA 2008.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

import numpy as np

from stepsim.base.arrays import Floats, Ints, Summand
from stepsim.base.errors import TopologyError
from stepsim.base.structs import Noun
from stepsim.network.topology.wiring import (
    ONE_NIC,
    Digit,
    DimensionKind,
    Flows,
    Layer,
    Node,
    Ports,
    climb,
    find_link,
)
from stepsim.network.topology.wirings.fully_connected import FullyConnected, pair_number


class DragonflyShape(Noun):
    """`routers` per group, `npus` per router and `global_links` of each router."""

    routers: int
    npus: int
    global_links: int

    def __post_init__(self) -> None:
        if min(self.routers, self.npus, self.global_links) < 1:
            raise TopologyError("a dragonfly needs routers, NPUs and global links: at least 1 each")

    @property
    def group(self) -> int:
        """Number of NPUs in a router group."""
        return self.routers * self.npus

    @property
    def most(self) -> int:
        """NPUs of the largest dragonfly of this shape: one link between every two groups."""
        return self.group * (self.routers * self.global_links + 1)


# Parts of flows: copy, routers from and to, with those left and entered between, port, weight.
#
# The port is that of the global link, -1 where there is none.
_Way = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Floats]


class Dragonfly(Noun, dict=True):
    """Links of `size` positions as in `Ports`, then local ones group by group, then global ones.

    Global port j of a group leads j % (groups - 1) + 1 groups on, and sits on router
    j // global_links; ports that make no whole round stay empty. Routes are minimal: at most one
    local link, one global, one local. Of several global links between two groups those with the
    fewest local links are taken, evenly.
    """

    kind: ClassVar[DimensionKind] = DimensionKind.DRAGONFLY
    size: int
    shape: DragonflyShape
    ports: Ports = ONE_NIC

    def __post_init__(self) -> None:
        group, most = self.shape.group, self.shape.most
        if self.size > group and self.size % group:
            raise TopologyError(f"size is {self.size}: expected whole groups of {group} NPUs")
        if self.size > most:
            raise TopologyError(f"size is {self.size}: global links reach at most {most} NPUs")
        if self.shape.npus % self.ports.npus_per_nic:
            raise TopologyError(
                f"npus_per_nic is {self.ports.npus_per_nic}: a router has {self.shape.npus} NPUs"
            )

    @property
    def _groups(self) -> int:
        return -(-self.size // self.shape.group)

    @property
    def _parallel(self) -> int:
        """Global links from each group to each other one."""
        others = self._groups - 1
        return self.shape.routers * self.shape.global_links // others if others else 0

    @property
    def _ports(self) -> list[Layer]:
        return self.ports.layers(self.size)

    @property
    def link_counts(self) -> tuple[int, ...]:
        """Those of the ports, local ones, global ones."""
        routers, groups = self.shape.routers, self._groups
        local, wide = groups * routers * (routers - 1), groups * (groups - 1) * self._parallel
        return (*(layer.count for layer in self._ports), local, wide)

    @property
    def digits(self) -> tuple[Digit, ...]:
        """A router's NPUs look alike, and so do groups; routers have different global links."""
        shape, shared = self.shape, self.ports.npus_per_nic
        if self.size < shape.group:
            return (Digit(self.size, turns=False),)
        return (
            *([Digit(shared, turns=True, any_order=True)] if shared > 1 else []),
            Digit(shape.npus // shared, turns=True, any_order=True),
            Digit(shape.routers, turns=False),
            Digit(self._groups, turns=True),
        )

    @cached_property
    def farthest(self) -> tuple[int, ...]:
        """The longest route from the first group, which looks like all others."""
        firsts = np.arange(0, self.size, self.shape.npus, dtype=np.int64)
        lasts = np.append(firsts[1:], self.size) - 1
        start, end = np.meshgrid(firsts[: self.shape.routers], lasts, indexing="ij")
        none = np.zeros(start.size, np.int64)
        hops = self.hops(Flows(none, start.reshape(-1), end.reshape(-1), none.astype(np.float64)))
        return tuple(hops[np.argmax(hops.sum(axis=1))].tolist())

    def ends(self, link: int) -> tuple[Node, Node]:
        """A position and its router, or two routers."""
        counts, shape = self.link_counts, self.shape
        number = link - sum(counts[:-2])
        if number < 0:
            layer, tree, _, down = find_link(self._ports, link)
            router = self._name(tree * self._ports[layer].npus // shape.npus)
            low, high = self.ports.ends(layer, tree, router)
            return (high, low) if down else (low, high)
        if number < counts[-2]:
            group, pair = divmod(number, shape.routers * (shape.routers - 1))
            start, end = FullyConnected(size=shape.routers).ends(pair)
            first = group * shape.routers
            return self._name(first + int(start)), self._name(first + int(end))
        group, port = divmod(number - counts[-2], (self._groups - 1) * self._parallel)
        peer, back = self._other_end(np.array([group]), np.array([port]))
        here = group * shape.routers + port // shape.global_links
        return self._name(here), self._name(
            int(peer[0]) * shape.routers + int(back[0]) // shape.global_links
        )

    def _name(self, router: int) -> str:
        return "-router{}.{}".format(*divmod(router, self.shape.routers))

    def _other_end(self, group: Ints, port: Ints) -> tuple[Ints, Ints]:
        """Group and port at the far end of a global link."""
        others = self._groups - 1
        layer, ahead = np.divmod(port, others)
        return (group + ahead + 1) % self._groups, layer * others + others - 1 - ahead

    def load(self, flows: Flows) -> list[Summand]:
        """Up, the shortest local and global links, down."""
        counts, routers = self.link_counts, self.shape.routers
        links, local = sum(counts), sum(counts[:-2])
        parts = [*climb(self._ports, flows, links)]
        for copy, start, leave, enter, end, port, weight in self._ways(flows):
            first = copy * links
            crossed = np.flatnonzero(port >= 0)
            number = start[crossed] // routers * (self._groups - 1) * self._parallel + port[crossed]
            parts.append((first[crossed] + local + counts[-2] + number, weight[crossed]))
            for here, there in ((start, leave), (enter, end)):
                moved = np.flatnonzero(here != there)
                group, a = np.divmod(here[moved], routers)
                number = group * routers * (routers - 1)
                number += pair_number(a, there[moved] % routers, routers)
                parts.append((first[moved] + local + number, weight[moved]))
        return parts

    def _ways(self, flows: Flows) -> Iterator[_Way]:
        """The ways of flows: those within a group, then one batch per parallel global link."""
        routers = self.shape.routers
        start, end = flows.start // self.shape.npus, flows.end // self.shape.npus
        apart = start // routers != end // routers
        inside, none = end[~apart], np.full(int((~apart).sum()), -1, np.int64)
        yield flows.copy[~apart], start[~apart], inside, inside, inside, none, flows.weight[~apart]
        if apart.any():
            flows, start, end = flows.where(apart), start[apart], end[apart]
            length, options = self._options(start, end)
            chosen = length == length.min(axis=0)
            share = flows.weight / chosen.sum(axis=0)
            for mask, (port, leave, enter) in zip(chosen, options, strict=True):
                columns = (flows.copy, start, leave, enter, end, port)
                yield *(column[mask] for column in columns), share[mask]

    def _options(self, start: Ints, end: Ints) -> tuple[Ints, list[tuple[Ints, Ints, Ints]]]:
        """Per parallel link between the groups: local links, and (port, router left, entered)."""
        routers, others = self.shape.routers, self._groups - 1
        group = start // routers
        ahead = (end // routers - group) % self._groups - 1
        lengths, options = [], []
        for layer in range(self._parallel):
            port = layer * others + ahead
            peer, back = self._other_end(group, port)
            leave = group * routers + port // self.shape.global_links
            enter = peer * routers + back // self.shape.global_links
            lengths.append((start != leave).astype(np.int64) + (enter != end))
            options.append((port, leave, enter))
        return np.stack(lengths), options

    def hops(self, flows: Flows) -> Ints:
        """Links per class on the way."""
        start, end = flows.start // self.shape.npus, flows.end // self.shape.npus
        apart = start // self.shape.routers != end // self.shape.routers
        local = (start != end).astype(np.int64)
        if apart.any():
            local[apart] = self._options(start[apart], end[apart])[0].min(axis=0)
        ports = [2 * layer.crossed(flows) for layer in self._ports]
        return np.stack([*ports, local, apart], axis=1)

    def halves(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s of the global links between lower and upper groups, or of the NICs of half."""
        nics = self.ports.capacity(self.size // 2, capacities)
        groups = self._groups
        if groups == 1:
            routers = -(-self.size // self.shape.npus)
            between = (routers // 2) * (routers - routers // 2) * capacities[-2]
            return min(nics, between) if routers > 1 else nics
        return min(nics, (groups // 2) * (groups - groups // 2) * self._parallel * capacities[-1])

    def share_a_switch(self, positions: Ints) -> bool:
        """Whether all are on one router."""
        return bool((positions // self.shape.npus == positions[0] // self.shape.npus).all())
