"""One dimension of a nested topology: its kind, its size, and what its kind needs to know."""

from functools import cached_property
from itertools import pairwise
from math import gcd, inf, prod

from msgspec import Struct

from stepsim.base.errors import TopologyError
from stepsim.base.structs import replace
from stepsim.network.topology.links import FollowingLinks, LinkClass
from stepsim.network.topology.wiring import DimensionKind, Wiring
from stepsim.network.topology.wirings import (
    ONE_NIC,
    Cables,
    Dragonfly,
    DragonflyShape,
    FatTree,
    FullyConnected,
    Line,
    Ports,
    Ring,
    Star,
    TreeShape,
)

_GRIDS = (DimensionKind.TORUS, DimensionKind.MESH)
_OWN = {
    "shape": _GRIDS,
    "cables": (DimensionKind.CABLES,),
    "tree": (DimensionKind.FAT_TREE,),
    "up": (DimensionKind.FAT_TREE,),
    "rails": (DimensionKind.FAT_TREE,),
    "dragonfly": (DimensionKind.DRAGONFLY,),
    "far": (DimensionKind.DRAGONFLY,),
}


class Dimension(Struct, frozen=True, kw_only=True, dict=True):
    """`size` NPUs (or blocks of the dimensions inside) wired by links of class `link`.

    Torus and mesh have the sides `shape`, innermost first (default: one side), and grow from
    `least_shape` (default: the shape). `cables` are pairs
    of positions (default: a chain). A fat tree has the shape `tree` (default: one leaf) and uplinks
    of class `up`; with `rails` there is a tree per inner coordinate. A dragonfly has the shape
    `dragonfly` (default: one NPU per router, one group) and global links of class `far`. These
    follow `link` in all numbers that are not their own. `ports`
    are the NICs of what is cabled to switches. `reduces` says that its switches reduce in flight,
    at `reduce_efficiency` of the links' capacity.

    A job that needs more than one block may leave NPUs of a block idle: `used` are those that such
    jobs take where nothing else is asked, 0 for all. Of a network that leaves NPUs idle, `size`
    counts those of the job, and `built` all that there are (0: no more than `size`).
    """

    kind: DimensionKind
    size: int
    link: LinkClass
    shape: tuple[int, ...] = ()
    least_shape: tuple[int, ...] = ()
    cables: tuple[tuple[int, int], ...] = ()
    ports: Ports = ONE_NIC
    tree: TreeShape | None = None
    up: FollowingLinks | None = None
    rails: bool = False
    dragonfly: DragonflyShape | None = None
    far: FollowingLinks | None = None
    reduces: bool = False
    reduce_efficiency: float = 1.0
    used: int = 0
    built: int = 0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise TopologyError(f"{self.link.name}: size is {self.size}: it must be at least 1")
        if not 0 <= self.used <= self.whole:
            raise TopologyError(
                f"{self.link.name}: used is {self.used}: expected at most its size, {self.whole}"
            )
        if self.used and self.kind is not DimensionKind.SWITCH:
            raise TopologyError(f"{self.link.name}: used belongs to switch, not to {self.kind}")
        for option, kinds in _OWN.items():
            if getattr(self, option) and self.kind not in kinds:
                raise TopologyError(f"{self.link.name}: {option} does not belong to {self.kind}")
        if not self.kind.switched and (self.reduces or self.ports != ONE_NIC):
            raise TopologyError(f"{self.link.name}: reduces and NICs need a kind with switches")
        if not 0 < self.reduce_efficiency <= 1:
            found = f"reduce_efficiency is {self.reduce_efficiency}"
            raise TopologyError(f"{self.link.name}: {found}: expected above 0, at most 1")
        if self.reduce_efficiency < 1 and not self.reduces:
            raise TopologyError(f"{self.link.name}: reduce_efficiency needs reduces = true")
        if self.ports.shared and not self.joins_inside:
            raise TopologyError(f"{self.link.name}: npus_per_nic needs one network for all NPUs")
        if self.shape and (min(self.shape) < 1 or prod(self.shape) != self.size):
            sides = " x ".join(map(str, self.shape))
            raise TopologyError(f"{self.link.name}: size is {self.size}: the shape is {sides}")

    @property
    def whole(self) -> int:
        """NPUs (or blocks of the dimensions inside) that there are, idle ones among them."""
        return self.built or self.size

    def taken(self, count: int) -> "Dimension":
        """With so many of its NPUs in the job, and the others idle."""
        if count == self.size:
            return self
        return replace(self, size=count, built=0 if count == self.whole else self.whole)

    @property
    def joins_inside(self) -> bool:
        """Whether all NPUs inside are cabled to it; else every inner coordinate has its own."""
        if self.kind is DimensionKind.FAT_TREE:
            return not self.rails
        return self.kind in (DimensionKind.SWITCH, DimensionKind.DRAGONFLY)

    @cached_property
    def link_classes(self) -> tuple[LinkClass, ...]:
        """Classes of its links: those of the NICs first, see the wirings."""
        name, link = self.link.name, self.link
        classes = [link]
        if self.ports.shared:
            classes.append(LinkClass(name=f"{name}-host", bandwidth=inf))
        if self.kind is DimensionKind.FAT_TREE:
            classes.append((self.up or FollowingLinks(name=f"{name}-up")).behind(link))
        if self.kind is DimensionKind.DRAGONFLY:
            classes.append(replace(link, name=f"{name}-local"))
            classes.append((self.far or FollowingLinks(name=f"{name}-global")).behind(link))
        return tuple(classes)

    def wirings(self, inside: int) -> tuple[Wiring, ...]:
        """The wirings that make it up, innermost first; `inside` is the NPUs of a block.

        Raises TopologyError naming the dimension when the size does not suit its shape.
        """
        try:
            return self._wirings(self.size * inside if self.joins_inside else self.size)
        except TopologyError as error:
            raise TopologyError(f"{self.link.name}: {error}") from None

    def _wirings(self, size: int) -> tuple[Wiring, ...]:
        wiring: Wiring
        match self.kind:
            case DimensionKind.RING | DimensionKind.TORUS:
                return tuple(Ring(size=side) for side in self.shape or (size,))
            case DimensionKind.LINE | DimensionKind.MESH:
                return tuple(Line(size=side) for side in self.shape or (size,))
            case DimensionKind.FULLY_CONNECTED:
                wiring = FullyConnected(size=size)
            case DimensionKind.CABLES:
                wiring = Cables(size=size, cables=self.cables or tuple(pairwise(range(size))))
            case DimensionKind.SWITCH | DimensionKind.RAIL:
                wiring = Star(size=size, ports=self.ports, kind=self.kind)
            case DimensionKind.FAT_TREE:
                tree = self.tree or TreeShape(down=(size,), up=(1,))
                wiring = FatTree(size=size, shape=tree, ports=self.ports)
            case DimensionKind.DRAGONFLY:
                shape = self.dragonfly or DragonflyShape(routers=size, npus=1, global_links=1)
                wiring = Dragonfly(size=size, shape=shape, ports=self.ports)
        return (wiring,)

    def grown(self, blocks: int, inside: int) -> "Dimension":
        """With room for `blocks` blocks of `inside` NPUs: the least size its kind is built in.

        A torus or mesh doubles its shortest side until there is room; fat trees have whole leaves
        or pods, dragonflies whole groups.
        """
        if self.shape:
            least = self.least_shape or self.shape
            sides = list(least)
            while prod(sides) < blocks:
                shortest = max(i for i, side in enumerate(sides) if side == min(sides))
                sides[shortest] *= 2
            return replace(self, size=prod(sides), shape=tuple(sides), least_shape=least)
        unit, leaf = 1, 0
        if self.tree:
            unit, leaf = self.tree.pod, self.tree.down[0]
        elif self.dragonfly:
            unit = self.dragonfly.group
        if self.joins_inside:
            unit //= gcd(unit, inside)
            leaf //= inside
        return replace(self, size=blocks if blocks <= leaf else -(-blocks // unit) * unit)
