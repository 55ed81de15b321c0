"""How one dimension joins its positions: what every wiring can be asked.

A wiring knows positions 0..n-1 and its own links only. A dimension uses it several times side by
side: copy c of a wiring with L links has the links `c * L` to `c * L + L - 1`.

`Ports` are the cables between NPUs and the first switch: NICs of their own, several, or shared.
`steps_crossed` is what flows cross that walk from neighbour to neighbour of a ring or line.
"""

from collections.abc import Callable
from enum import StrEnum

import numpy as np
from msgspec.structs import astuple

from stepsim.base.arrays import Floats, Ints, Summand, add_up, spans, totals
from stepsim.base.errors import TopologyError, within
from stepsim.base.structs import Noun

Node = int | str
"""A position, or the label of a switch; a wiring's only switch has the empty label."""


class DimensionKind(StrEnum):
    """How the NPUs of one dimension are wired."""

    RING = "ring"
    LINE = "line"
    TORUS = "torus"
    MESH = "mesh"
    FULLY_CONNECTED = "fully_connected"
    CABLES = "cables"
    SWITCH = "switch"
    RAIL = "rail"
    FAT_TREE = "fat_tree"
    DRAGONFLY = "dragonfly"

    @property
    def switched(self) -> bool:
        """True where NPUs meet in switches."""
        return self in _SWITCHED


_SWITCHED = {
    DimensionKind.SWITCH,
    DimensionKind.RAIL,
    DimensionKind.FAT_TREE,
    DimensionKind.DRAGONFLY,
}


class Flows(Noun, kw_only=False):
    """Flows within copies of a wiring: arrays with one element per flow, `start` != `end`."""

    copy: Ints
    start: Ints
    end: Ints
    weight: Floats

    def where(self, chosen: Ints) -> "Flows":
        """The flows of these numbers, or those a mask chooses."""
        return Flows(*(column[chosen] for column in astuple(self)))


class Digit(Noun, kw_only=False):
    """Part of a position: `position // stride % size`, stride being the sizes before it.

    A digit that `turns` may be shifted (modulo its size) for all positions at once without changing
    the network; one that knows no order (`any_order`) may be permuted at will.
    """

    size: int
    turns: bool
    any_order: bool = False


# Most NICs of an NPU, and most NPUs of a NIC.
_MAX_SHARED = 1024


class Ports(Noun):
    """`nics` equal links per NPU, used evenly, or one NIC for `npus_per_nic` neighbours.

    Class 0 are the links between NICs and switches: all upward ones first. Where NPUs share a NIC,
    class 1 are the links between NPUs and NICs, which are free; a NIC also joins its own NPUs.
    """

    nics: int = 1
    npus_per_nic: int = 1

    def __post_init__(self) -> None:
        for name in ("nics", "npus_per_nic"):
            within(name, getattr(self, name), 1, _MAX_SHARED, TopologyError)
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

    def farthest(self, size: int) -> tuple[int, ...]:
        """Links up to the switch and down again, per class, where there are two NPUs."""
        both = 2 if size > 1 else 0
        return (both, both) if self.shared else (both,)

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

    def hops(self, flows: Flows) -> list[Ints]:
        """Links per class of each flow: a column per class."""
        two = np.full(len(flows.start), 2, np.int64)
        if not self.shared:
            return [two]
        apart = flows.start // self.npus_per_nic != flows.end // self.npus_per_nic
        return [np.where(apart, 2, 0), two]

    def capacity(self, npus: int, capacities: tuple[float, ...]) -> float:
        """Bytes/s, one way, of the NICs of `npus` neighbours."""
        return capacities[0] * self.nics * npus / self.npus_per_nic


ONE_NIC = Ports()
"""One link per NPU."""


def steps_crossed(size: int, copy: Ints, start: Ints, count: Ints, weight: Floats) -> Summand:
    """`count` steps upward from position `start`, modulo `size`, in each flow's copy.

    Step p leads from position p to p + 1 and has the number `copy * size + p`. Long walks are not
    written out: a flow adds its weight where it starts and takes it away where it ends.
    """
    if not copy.size:
        return np.zeros(0, np.int64), np.zeros(0)
    if int(count.sum()) <= 2 * len(count) + size:
        position = spans(start, count) % size
        return np.repeat(copy, count) * size + position, np.repeat(weight, count)
    copies, row = np.unique(copy, return_inverse=True)
    flows = _differences(size, len(copies), row, start, count, np.ones(len(row)))
    crossed = np.flatnonzero(np.rint(flows))
    loads = _differences(size, len(copies), row, start, count, weight)
    return copies[crossed // size] * size + crossed % size, loads[crossed]


def _differences(
    size: int, rows: int, row: Ints, start: Ints, count: Ints, weight: Floats
) -> Floats:
    """Sums along rows of `size` steps; a walk past the end of a row goes on at its beginning."""
    width = size + 1
    end = start + count
    past = end > size
    begins = np.concatenate((row * width + start, row[past] * width))
    ends = row * width + np.where(past, end - size, end)
    total = totals(begins, np.concatenate((weight, weight[past])), rows * width)
    total -= totals(ends, weight, rows * width)
    sums: Floats = np.cumsum(total.reshape(rows, width), axis=1)[:, :size]
    return sums.reshape(-1)
