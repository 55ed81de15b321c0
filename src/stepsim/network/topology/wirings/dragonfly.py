"""Dragonfly: groups of fully connected routers, every two groups joined by global links.

Kim, Dally, Scott and Abts, "Technology-driven, highly-scalable dragonfly topology", ISCA 2008.
"""

from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Ints, Summand
from stepsim.base.errors import TopologyError
from stepsim.base.structs import Noun, Numbers
from stepsim.network.topology.wiring import (
    ONE_NIC,
    Digit,
    DimensionKind,
    Flows,
    Node,
    Ports,
    SwitchLayer,
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


_Number = TypeVar("_Number", int, Ints)


class Dragonfly(Noun):
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
    def _others(self) -> int:
        return max(1, self._groups - 1)

    @property
    def _parallel(self) -> int:
        """Global links from each group to each other one."""
        links = self.shape.routers * self.shape.global_links
        return links // self._others if self._groups > 1 else 1

    @property
    def _ports(self) -> list[SwitchLayer]:
        return self.ports.layers(self.size)

    @property
    def link_counts(self) -> Numbers:
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
            Digit(shared, turns=True, any_order=True),
            Digit(shape.npus // shared, turns=True, any_order=True),
            Digit(shape.routers, turns=False),
            Digit(self._groups, turns=True),
        )

    @property
    def farthest(self) -> Numbers:
        """The longest route from one group to another, or within the only one."""
        local = self.size > self.shape.npus
        if self._groups > 1:
            local = self._lengths.min(axis=0).max()
        ports = (2 * (layer.trees > 1) for layer in self._ports)
        return (*ports, int(local), int(self._groups > 1))

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
        group, port = divmod(number - counts[-2], self._others * self._parallel)
        return self._name(self._router(group, port)), self._name(
            self._router(*self._other_end(group, port))
        )

    def _name(self, router: int) -> str:
        return "-router{}.{}".format(*divmod(router, self.shape.routers))

    def _router(self, group: _Number, port: _Number) -> _Number:
        """The router of a group that a global port sits on."""
        return group * self.shape.routers + port // self.shape.global_links

    def _other_end(self, group: _Number, port: _Number) -> tuple[_Number, _Number]:
        """Group and port at the far end of a global link."""
        layer, ahead = divmod(port, self._others)
        back = (layer + 1) * self._others - 1 - ahead
        return (group + ahead + 1) % self._groups, back

    @property
    def _lengths(self) -> NDArray[np.int8]:
        """Local links from a router of a group to one of the group `ahead` + 1 groups on.

        `[layer, ahead, router, router there]` is that over a parallel global link between them.
        """
        ports = np.arange(self._parallel * self._others).reshape(self._parallel, -1)
        on = (ports // self.shape.global_links)[:, :, None, None]
        routers = np.arange(self.shape.routers)
        left, entered = on != routers[:, None], on[:, ::-1] != routers  # see _other_end
        lengths: NDArray[np.int8] = np.add(left, entered, dtype=np.int8)
        return lengths

    def _ways(self, flows: Flows) -> tuple[Ints, Ints, Ints, NDArray[np.int8]]:
        """Routers of flows, how many groups ahead the second is, less one, and local links."""
        routers = self.shape.routers
        start, end = flows.start // self.shape.npus, flows.end // self.shape.npus
        ahead = (end // routers - start // routers) % self._groups - 1
        return start, end, ahead, self._lengths[:, ahead, start % routers, end % routers]

    def load(self, flows: Flows) -> list[Summand]:
        """Up, the shortest local and global links, down."""
        counts, routers = self.link_counts, self.shape.routers
        start, end, ahead, length = self._ways(flows)
        chosen = (length == length.min(axis=0)) & (ahead >= 0)
        chosen[0] |= ahead < 0  # within a group there is one way
        layer, flow = np.nonzero(chosen)
        share = (flows.weight / chosen.sum(axis=0))[flow]
        start, end, ahead = start[flow], end[flow], ahead[flow]
        group, port = start // routers, layer * self._others + ahead
        leave, enter = (
            np.where(ahead < 0, end, self._router(*link_end))
            for link_end in ((group, port), self._other_end(group, port))
        )
        parts = [*climb(self._ports, flows, sum(counts))]
        first = flows.copy[flow] * sum(counts) + sum(counts[:-2])
        for here, there in ((start, leave), (enter, end)):
            moved = np.flatnonzero(here != there)
            group, router = np.divmod(here[moved], routers)
            number = group * routers * (routers - 1)
            number += pair_number(router, there[moved] % routers, routers)
            parts.append((first[moved] + number, share[moved]))
        crossed = first + counts[-2] + start // routers * self._others * self._parallel + port
        parts.append((crossed[ahead >= 0], share[ahead >= 0]))
        return parts

    def hops(self, flows: Flows) -> Ints:
        """Links per class on the way."""
        start, end, ahead, length = self._ways(flows)
        ports = [2 * layer.crossed(flows) for layer in self._ports]
        local = np.where(ahead < 0, start != end, length.min(axis=0))
        return np.stack([*ports, local, ahead >= 0], axis=1)

    def halves(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s of the global links between lower and upper groups, or of the NICs of half."""
        nics = self.ports.capacity(self.size // 2, capacities)
        groups = self._groups
        if groups == 1:
            routers = -(-self.size // self.shape.npus)
            between = (routers // 2) * (routers - routers // 2) * capacities[-2]
            return min(nics, between) if routers > 1 else nics
        return min(nics, (groups // 2) * (groups - groups // 2) * self._parallel * capacities[-1])

    @property
    def below(self) -> int:
        """NPUs of a router."""
        return self.shape.npus
