"""How one dimension joins its positions: what every wiring can be asked.

A wiring knows positions 0..n-1 and its own links only. A dimension uses it several times side by
side: copy c of a wiring with L links has the links `c * L` to `c * L + L - 1`.

`SwitchLayer`s are links up to switches and down again; those of `Ports` join NPUs and the first
switch: NICs of their own, several, or shared. `steps_crossed` is what flows cross that walk from
neighbour to neighbour of a ring or line.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import numpy as np
from msgspec.structs import astuple

from stepsim.base.arrays import Bools, Floats, Ints, Summand, add_up, spans, totals
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
    """Flows within copies of a wiring: arrays with one element per flow, `start` != `end`.

    Of a whole network the copies are those of owners: each has the network to itself.
    """

    copy: Ints
    start: Ints
    end: Ints
    weight: Floats

    def where(self, chosen: Ints | Bools) -> "Flows":
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


class SwitchLayer(Noun, kw_only=False):
    """`links` up from each of `trees` subtrees of `npus` positions, then as many down again.

    Flows between two subtrees use all links of each evenly.
    """

    trees: int
    npus: int
    links: int

    @property
    def count(self) -> int:
        """Links in both directions."""
        return 2 * self.trees * self.links

    def crossed(self, flows: Flows) -> Bools:
        """Which flows leave their subtree."""
        return np.asarray(flows.start // self.npus != flows.end // self.npus)

    def load(self, flows: Flows, first: int, links: int) -> Iterator[Summand]:
        """What flows put on its links, `first` onward in each copy of so many links."""
        climbing = flows.where(self.crossed(flows))
        for position in (climbing.start, climbing.end):
            keys = climbing.copy * self.trees + position // self.npus
            tree, load = add_up([(keys, climbing.weight / self.links)])
            copy, tree = np.divmod(tree, self.trees)
            numbers = copy * links + first + tree * self.links
            each = numbers[:, None] + np.arange(self.links)
            yield each.reshape(-1), np.repeat(load, self.links)
            first += self.trees * self.links


def climb(layers: Iterable[SwitchLayer], flows: Flows, links: int) -> Iterator[Summand]:
    """What flows put on layers, the first links of each copy, which has so many in all."""
    first = 0
    for layer in layers:
        yield from layer.load(flows, first, links)
        first += layer.count


def find_link(layers: Sequence[SwitchLayer], link: int) -> tuple[int, int, int, bool]:
    """The layer of a link, its subtree, which of its links it is, and whether it leads down."""
    number = 0
    while link >= layers[number].count:
        link -= layers[number].count
        number += 1
    down, up = divmod(link, layers[number].count // 2)
    return (number, *divmod(up, layers[number].links), down > 0)


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

    def layers(self, size: int) -> list[SwitchLayer]:
        """The layer of the NICs of `size` NPUs, and that below it of NPUs that share them."""
        nics = SwitchLayer(-(-size // self.npus_per_nic), self.npus_per_nic, self.nics)
        return [nics, SwitchLayer(size, 1, 1)] if self.shared else [nics]

    def ends(self, layer: int, tree: int, switch: str) -> tuple[Node, Node]:
        """Lower and upper end of a link of a layer; NICs are `-nic0`, `switch` is above them."""
        if layer:
            return tree, f"-nic{tree // self.npus_per_nic}"
        return f"-nic{tree}" if self.shared else tree, switch

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
    width = 2 * size + 1
    begins = row * width + start
    change = totals(begins, weight, rows * width) - totals(begins + count, weight, rows * width)
    twice = np.cumsum(change.reshape(rows, width), axis=1)[:, :-1]
    sums: Floats = twice.reshape(rows, 2, size).sum(axis=1)
    return sums.reshape(-1)
