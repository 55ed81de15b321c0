"""How one dimension joins its positions: what every wiring can be asked.

A wiring knows positions 0..n-1 and its own links only. A dimension uses it several times side by
side: copy c of a wiring with L links has the links `c * L` to `c * L + L - 1`.
"""

from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from stepsim.base.arrays import Floats, Ints, Summand

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


class Flows(Struct, frozen=True, kw_only=True):
    """Flows within copies of a wiring: arrays with one element per flow, `start` != `end`."""

    copy: Ints
    start: Ints
    end: Ints
    weight: Floats

    def where(self, chosen: Ints) -> "Flows":
        """The flows of these numbers, or those a mask chooses."""
        return Flows(
            copy=self.copy[chosen],
            start=self.start[chosen],
            end=self.end[chosen],
            weight=self.weight[chosen],
        )


class Digit(Struct, frozen=True, kw_only=True):
    """Part of a position: `position // stride % size`, stride being the sizes before it.

    A digit that `turns` may be shifted (modulo its size) for all positions at once without changing
    the network; one that knows no order (`any_order`) may be permuted at will.
    """

    size: int
    turns: bool
    any_order: bool = False


class Wiring(Protocol):
    """One copy of the links that join `size` positions. Links are numbered class by class."""

    @property
    def kind(self) -> DimensionKind:
        """The kind that algorithms see: a torus is several rings, a mesh several lines."""

    @property
    def size(self) -> int:
        """Number of positions that the wiring joins."""

    @property
    def link_counts(self) -> tuple[int, ...]:
        """Links per class, each direction counted."""

    @property
    def digits(self) -> tuple[Digit, ...]:
        """The digits of a position that say where it lies, innermost first."""

    @property
    def farthest(self) -> tuple[int, ...]:
        """Links per class on a longest route."""

    @property
    def per_position(self) -> int:
        """Links that each position has in a row: k where link l is of `l % (size * k) // k`.

        It is 0 where links are numbered otherwise, else turned positions have the links of those
        that they are turned to.
        """

    def ends(self, link: int) -> tuple[Node, Node]:
        """Nodes that a link leaves and enters."""

    def load(self, flows: Flows) -> list[Summand]:
        """What flows put on the links of all copies."""

    def hops(self, flows: Flows) -> Ints:
        """Links per class on the way of each flow: shape (flows, classes)."""

    def halves(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s, one way, between the lower and the upper half of the positions.

        `capacities` are those of one link per class.
        """

    def share_a_switch(self, positions: Ints) -> bool:
        """Whether all these positions are cabled to one switch."""


class Switchless:
    """What wirings without switches share."""

    __slots__ = ()

    @property
    def per_position(self) -> int:
        """0: most of these wirings number links by other things than one position."""
        return 0

    def share_a_switch(self, positions: Ints) -> bool:
        """False: these wirings have no switches."""
        return False
