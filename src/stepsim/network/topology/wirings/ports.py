"""The cables between NPUs and the first switch: NICs of their own, several, or shared."""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints, Summand, add_up
from stepsim.base.errors import TopologyError
from stepsim.network.topology.wiring import Flows, Node

_MAX_SHARED = 1024
"""Most NICs of an NPU, and most NPUs of a NIC."""


class Ports(Struct, frozen=True, kw_only=True):
    """`nics` equal links per NPU, used evenly, or one NIC for `npus_per_nic` neighbours.

    Class 0 are the links between NICs and switches: all upward ones first. Where NPUs share a NIC,
    class 1 are the links between NPUs and NICs, which are free; a NIC also joins its own NPUs.
    """

    nics: int = 1
    npus_per_nic: int = 1

    def __post_init__(self) -> None:
        for name in ("nics", "npus_per_nic"):
            if not 1 <= getattr(self, name) <= _MAX_SHARED:
                expected = f"expected 1 to {_MAX_SHARED}"
                raise TopologyError(f"{name} is {getattr(self, name)}: {expected}")
        if self.nics > 1 and self.npus_per_nic > 1:
            raise TopologyError("nics and npus_per_nic exclude each other")

    @property
    def shared(self) -> bool:
        """Whether NPUs share NICs."""
        return self.npus_per_nic > 1

    def link_counts(self, size: int) -> tuple[int, ...]:
        """Links of `size` NPUs per class."""
        wires = 2 * -(-size // self.npus_per_nic) * self.nics
        return (wires, 2 * size) if self.shared else (wires,)

    def farthest(self) -> tuple[int, ...]:
        """Links up to the switch and down again, per class."""
        return (2, 2) if self.shared else (2,)

    def ends(self, link: int, size: int, switch_of: Callable[[int], str]) -> tuple[Node, Node]:
        """Nodes of a link; NICs are named `-nic0`, `switch_of(position)` names switches."""
        wires = self.link_counts(size)[0]
        if link < wires:
            down, place = divmod(link, wires // 2)
            nic = place // self.nics
            switch = switch_of(nic * self.npus_per_nic)
            low: Node = f"-nic{nic}" if self.shared else nic
        else:
            down, low = divmod(link - wires, size)
            switch = f"-nic{low // self.npus_per_nic}"
        return (switch, low) if down else (low, switch)

    def load(self, flows: Flows, size: int, links: int) -> list[Summand]:
        """What flows put on these links; a copy has `links` links in all."""
        wires = self.link_counts(size)[0]
        up, down = flows.start // self.npus_per_nic, flows.end // self.npus_per_nic
        away = up != down
        parts = []
        for base, nic in ((0, up), (wires // 2, down)):
            first = flows.copy[away] * links + base + nic[away] * self.nics
            nics, loads = add_up([(first, flows.weight[away] / self.nics)])
            parts += [(nics + k, loads) for k in range(self.nics)]
        if self.shared:
            parts.append((flows.copy * links + wires + flows.start, flows.weight))
            parts.append((flows.copy * links + wires + size + flows.end, flows.weight))
        return parts

    @property
    def layers(self) -> tuple[int, ...]:
        """Neighbours that share a NIC."""
        return (self.npus_per_nic,)

    def exchange(
        self, positions: Ints, size: int, leaving: Sequence[Floats], entering: Sequence[Floats]
    ) -> list[Summand]:
        """Loads of `size` positions, of which so many flows leave each layer, and enter it.

        Layer 0 are the positions themselves, layer 1 their NICs.
        """
        wires = self.link_counts(size)[0]
        parts = []
        for flows, nics, places in ((leaving, 0, 0), (entering, wires // 2, size)):
            nic, load = add_up([(positions // self.npus_per_nic, flows[1] / self.nics)])
            parts += [(nic * self.nics + nics + k, load) for k in range(self.nics)]
            if self.shared:
                parts.append((positions + wires + places, flows[0]))
        return parts

    def hops(self, flows: Flows) -> list[Ints]:
        """Links per class of each flow: a column per class."""
        two = np.full(len(flows.start), 2, dtype=np.int64)
        if not self.shared:
            return [two]
        apart = flows.start // self.npus_per_nic != flows.end // self.npus_per_nic
        return [np.where(apart, 2, 0), two]

    def capacity(self, npus: int, capacities: tuple[float, ...]) -> float:
        """Bytes/s, one way, of the NICs of `npus` neighbours."""
        return capacities[0] * self.nics * npus / self.npus_per_nic


ONE_NIC = Ports()
"""One link per NPU."""
