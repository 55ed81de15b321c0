"""Links and the protocols that send over them, and one dimension of a nested topology.

The communication library of a machine sends in several protocols (NCCL's LL, LL128, Simple): a
small latency and a part of the bandwidth, or more of both. How long each takes was fitted to
measured collectives; where it was measured, and how well the fit meets it, is stated with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from math import gcd, inf, prod
from typing import Annotated

import numpy as np
from msgspec import Meta, field
from msgspec.structs import asdict

from stepsim.base.arrays import Floats, Ints, Summand, add_up, row_numbers, whole_totals
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import TopologyError
from stepsim.base.fields import Bandwidth, Time
from stepsim.base.option import Option
from stepsim.base.structs import (
    Bytes,
    Count,
    Entry,
    Names,
    Noun,
    Numbers,
    Share,
    TomlTable,
    replace,
)
from stepsim.base.units import MAX_INT64, Quantity
from stepsim.network.topology.wiring import DimensionKind
from stepsim.network.topology.wirings import (
    ONE_NIC,
    Cables,
    Dragonfly,
    DragonflyShape,
    FatTree,
    FullyConnected,
    Ports,
    Ring,
    TreeShape,
    Wiring,
)


def _number(name: str, quantity: Quantity, default: float | None = None) -> Option:
    """A number of a network by its name in files, axes and columns; its field has the unit.

    Files may leave out what has a default.
    """
    field = f"{name}_ps" if quantity is Quantity.TIME else name
    return Option(name=name, field=field, quantity=quantity, default=default, durations_only=True)


LINK_FIELDS = (
    _number("bandwidth", Quantity.BANDWIDTH),
    _number("latency", Quantity.TIME),
    _number("endpoint_latency", Quantity.TIME, default=0),
    _number("efficiency", Quantity.FACTOR, default=1.0),
)
"""The numbers of a class of links; named `CLASS.bandwidth` and so on where there are several."""

LAUNCH_LATENCY = _number("launch_latency", Quantity.TIME, default=0)
"""The number that a topology has once."""

OVERSUBSCRIPTION = _number("oversubscription", Quantity.FACTOR)
"""What a fat tree has beside its links: bandwidth into a leaf switch over bandwidth out of it."""


def split_link(name: str) -> tuple[str, Option | None]:
    """Class and field of a name such as `fabric.bandwidth`; no field if it names something else."""
    link, _, field = name.rpartition(".")
    return link, next((each for each in LINK_FIELDS if link and each.name == field), None)


def is_number(name: str) -> bool:
    """Whether a name such as `fabric.bandwidth` or `launch_latency` is of a number of a network."""
    return name == LAUNCH_LATENCY.name or split_link(name)[1] is not None


class LinkClass(TomlTable):
    """`[[link_class]]`: links that are alike; bandwidth in bytes/s, latency in ps of one hop.

    `endpoint_latency_ps` (software and NIC) is paid once per message that crosses the class;
    `efficiency` is the share of the bandwidth that payload gets.
    """

    name: Annotated[str, Meta(description="of the class, in reports and axes of sweeps")]
    bandwidth: Annotated[Bandwidth, Meta(description="of one link, one way, with its unit")]
    latency_ps: Annotated[Time, Meta(description="of one hop, with its unit")]
    endpoint_latency_ps: Annotated[
        Time, Meta(description="software and NIC, once per message, with its unit")
    ] = 0
    efficiency: Annotated[Share, Meta(description="of the bandwidth that payload gets")] = 1.0

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise TopologyError(f"{self.name}: bandwidth is {self.bandwidth}: expected above 0")
        if not 0 < self.efficiency <= 1:
            raise TopologyError(f"{self.name}: efficiency is {self.efficiency}: expected 0 to 1")
        if min(self.latency_ps, self.endpoint_latency_ps) < 0:
            raise TopologyError(f"{self.name}: a latency is negative")

    @property
    def capacity(self) -> float:
        """Payload bytes per second per direction."""
        return self.bandwidth * self.efficiency


class OwnNumbers(Noun):
    """Numbers that links have of their own, None where they follow others, whatever these are.

    Bandwidth in bytes/s, latencies in ps, as of `LinkClass`.
    """

    bandwidth: float | None = None
    latency_ps: int | None = None
    endpoint_latency_ps: int | None = None
    efficiency: float | None = None

    def behind(self, link: LinkClass, name: str) -> LinkClass:
        """The class of the links `name` with these numbers, which follow `link`."""
        own = {field: value for field, value in asdict(self).items() if value is not None}
        return replace(link, name=name, **own)


FOLLOWING = OwnNumbers()
"""None: links that follow others in all numbers."""


class Load(Noun, kw_only=False):
    """What a set of simultaneous flows puts on the links.

    `links` are the distinct links crossed, ascending, and `loads` the flow weights (or shares of
    them, where a flow spreads) that cross each. `hops[p, c]` is the number of links of class c on
    the p-th distinct kind of path, which `flows[p]` flows take; 0 where they are not counted.
    """

    links: Ints
    loads: Floats
    hops: Ints
    flows: Ints


def sum_loads(parts: Sequence[Summand], hops: Ints, flows: Ints | None = None) -> Load:
    """Load of (links, loads) that may name a link several times.

    `hops` has a row per flow, or per `flows[i]` flows.
    """
    links, loads = add_up(parts)
    counts = np.ones(len(hops), np.int64) if flows is None else flows
    first, kind = row_numbers(hops)
    return Load(links, loads, hops[first], whole_totals(kind, counts, len(first)))


SIZE_BANDS = ((0, 10**7), (10**7, 10**8), (10**8, MAX_INT64))
"""Sizes whose accuracy is stated together: from so many bytes to below so many."""
GOOD = (0.2, 0.15, 0.1)
"""The mean error up to which the times of each band count as good."""


def size_band(size_bytes: int) -> int:
    """Number of the band of `SIZE_BANDS` that a size is in."""
    return next(i for i, (_, end) in enumerate(SIZE_BANDS) if size_bytes < end)


class Protocol(TomlTable):
    """`[[protocol]]`: a way in which the machine's library sends; the fastest that serves is taken.

    It is for some `algorithms` in some `kinds` of collectives; empty: all. Groups over fewer nodes
    than `least_nodes` or more than `most_nodes` do not use it. Of each class of links, `rates` is
    the share of the capacity it gets (1 if not named), and `steps_ps` what a message over it costs.
    A rank's own share of the data is read and written at `copy_bandwidth` bytes/s before it is
    sent.
    """

    name: Annotated[str, Meta(description="of the protocol, such as LL")]
    algorithms: Annotated[Names, Meta(description="that it sends for; empty: all")] = ()
    kinds: Annotated[
        tuple[CollectiveKind, ...], Meta(description="of collectives it sends; empty: all")
    ] = ()
    least_nodes: Annotated[Count, Meta(description="over which a group lies")] = 1
    most_nodes: Annotated[Count, Meta(description="over which a group lies; 0: any")] = 0
    launch_ps: Annotated[Time, Meta(description="on top of launch_latency, with its unit")] = 0
    copy_bandwidth: Annotated[
        Bandwidth, Meta(description="of a rank's own share, before it is sent")
    ] = field(default=inf, name="copy")
    steps_ps: Annotated[
        Mapping[str, Time], Meta(description="on top of the endpoint latency, by links")
    ] = field(default_factory=dict, name="step")
    rates: Annotated[Mapping[str, Share], Meta(description="of the links' payload, by links")] = (
        field(default_factory=dict, name="rate")
    )

    def __post_init__(self) -> None:
        if min(self.launch_ps, *self.steps_ps.values(), 0) < 0:
            raise TopologyError(f"protocol {self.name}: a latency is negative")
        for link, rate in self.rates.items():
            if not 0 < rate <= 1:
                found = f"rate of {link} is {rate}"
                raise TopologyError(f"protocol {self.name}: {found}: expected above 0, at most 1")
        if not self.copy_bandwidth > 0:
            raise TopologyError(
                f"protocol {self.name}: copy is {self.copy_bandwidth}: expected above 0"
            )

    def __hash__(self) -> int:
        return hash((self.name, self.launch_ps, self.copy_bandwidth))

    def serves(self, kind: str, algorithm: str, nodes: int) -> bool:
        """Whether it carries a kind of collective with an algorithm over so many nodes."""
        fits = not self.kinds or kind in self.kinds
        known = not self.algorithms or algorithm in self.algorithms
        return fits and known and self.least_nodes <= nodes <= (self.most_nodes or nodes)


class Accuracy(Entry):
    """How well collectives of `kind` were met where they were measured.

    Errors are |ours / measured - 1|. Over groups of up to `most_ranks` ranks in `nodes` nodes, the
    most measured, sizes from `first_bytes` to `last_bytes`, which are of one band of `SIZE_BANDS`;
    `samples` times, the mean and the largest error.
    """

    kind: str
    nodes: int
    most_ranks: int
    first_bytes: Bytes
    last_bytes: Bytes
    mean: Share
    largest: Share
    samples: int
    source: str

    @property
    def good(self) -> bool:
        """Whether the mean error is within what counts as good for its sizes."""
        return self.mean <= GOOD[size_band(self.first_bytes)]


class Library(Noun):
    """The protocols of a machine, and how well they meet measurements.

    Without protocols links alone set the times. Of a class in `reach`, the ranks of a node use at
    most so many links together: the NICs that a group reaches.
    """

    protocols: tuple[Protocol, ...] = ()
    reach: tuple[tuple[str, int], ...] = ()
    accuracy: tuple[Accuracy, ...] = ()

    def check(self, name: str, links: Sequence[str]) -> None:
        """Raise TopologyError where it names links that the topology `name` does not have."""
        named = {link for link, _ in self.reach}
        for protocol in self.protocols:
            named |= protocol.steps_ps.keys() | protocol.rates.keys()
        for link in sorted(named):
            if link not in links:
                expected = ", ".join(links)
                raise TopologyError(f"{name}: protocols name links {link!r}: expected {expected}")


PLAIN = Library()
"""Links alone set the times."""

_GRIDS = (DimensionKind.TORUS, DimensionKind.MESH)
_OWN = {
    "shape": _GRIDS,
    "cables": (DimensionKind.CABLES,),
    "tree": (DimensionKind.FAT_TREE,),
    "rails": (DimensionKind.FAT_TREE,),
    "dragonfly": (DimensionKind.DRAGONFLY,),
    "used": (DimensionKind.SWITCH,),
}


class Dimension(Noun, dict=True):
    """`size` NPUs (or blocks of the dimensions inside) wired by links of class `link`.

    Torus and mesh have the sides `shape`, innermost first (default: one side), and grow from
    `least_shape` (default: the shape). `cables` are pairs of positions (default: a chain). A fat
    tree has the shape `tree` (default: one leaf); with `rails` there is a tree per inner
    coordinate. A dragonfly has the shape `dragonfly` (default: one NPU per router, one group).
    Links between leaves and spines, or between groups, follow `link` in all numbers but their own,
    which are `outer`. `ports` are the NICs of what is cabled to switches. `reduces` says that its
    switches reduce in flight, at `reduce_efficiency` of the links' capacity.

    A job that needs more than one block may leave NPUs of a block idle: `used` are those that such
    jobs take where nothing else is asked, 0 for all. Of a network that leaves NPUs idle, `size`
    counts those of the job, and `built` all that there are (0: no more than `size`).
    """

    kind: DimensionKind
    size: int
    link: LinkClass
    shape: Numbers = ()
    least_shape: Numbers = ()
    cables: tuple[tuple[int, int], ...] = ()
    ports: Ports = ONE_NIC
    tree: TreeShape | None = None
    rails: bool = False
    dragonfly: DragonflyShape | None = None
    outer: OwnNumbers = FOLLOWING
    reduces: bool = False
    reduce_efficiency: float = 1.0
    used: int = 0
    built: int = 0

    def __post_init__(self) -> None:
        for wrong in self._wrong():
            raise TopologyError(f"{self.link.name}: {wrong}")

    def _wrong(self) -> Iterator[str]:
        """What its fields contradict."""
        if self.size < 1:
            yield f"size is {self.size}: expected at least 1"
        if not 0 <= self.used <= self.whole:
            yield f"used is {self.used}: expected at most its size, {self.whole}"
        for option, kinds in _OWN.items():
            if getattr(self, option) and self.kind not in kinds:
                yield f"{option} belongs to {', '.join(kinds)}, not to {self.kind}"
        if not self.kind.switched and (self.reduces or self.ports != ONE_NIC):
            yield "reduces and NICs need a kind with switches"
        if not 0 < self.reduce_efficiency <= 1:
            yield f"reduce_efficiency is {self.reduce_efficiency}: expected above 0, at most 1"
        if self.reduce_efficiency < 1 and not self.reduces:
            yield "reduce_efficiency needs reduces = true"
        if self.ports.shared and not self.joins_inside:
            yield "npus_per_nic needs one network for all NPUs"
        if self.shape and (min(self.shape) < 1 or prod(self.shape) != self.size):
            yield f"size is {self.size}: the shape is {' x '.join(map(str, self.shape))}"

    @property
    def whole(self) -> int:
        """NPUs (or blocks of the dimensions inside) that there are, idle ones among them."""
        return self.built or self.size

    @property
    def joins_inside(self) -> bool:
        """Whether all NPUs inside are cabled to it; else every inner coordinate has its own."""
        if self.kind is DimensionKind.FAT_TREE:
            return not self.rails
        return self.kind in (DimensionKind.SWITCH, DimensionKind.DRAGONFLY)

    @cached_property
    def link_classes(self) -> tuple[LinkClass, ...]:
        """Classes of its links: those of the NICs first, see the wirings."""
        classes = [self.link]
        if self.ports.shared:
            classes.append(LinkClass(name=self.host_links, latency_ps=0, bandwidth=inf))
        followers = self.followers.items()
        return *classes, *((own or FOLLOWING).behind(self.link, name) for name, own in followers)

    @property
    def host_links(self) -> str:
        """Name of the links between NPUs and the NIC that they share."""
        return f"{self.link.name}-host"

    @property
    def followers(self) -> dict[str, OwnNumbers | None]:
        """Links that have the numbers of `link`: None, or with some that may be their own."""
        match self.kind:
            case DimensionKind.FAT_TREE:
                return {self.outer_links: self.outer}
            case DimensionKind.DRAGONFLY:
                return {f"{self.link.name}-local": None, self.outer_links: self.outer}
            case _:
                return {}

    @property
    def outer_links(self) -> str:
        """Name of the links between leaves and spines of a fat tree, or groups of a dragonfly."""
        return f"{self.link.name}-{'up' if self.kind is DimensionKind.FAT_TREE else 'global'}"

    def wirings(self, inside: int) -> tuple[Wiring, ...]:
        """The wirings that make it up, innermost first; `inside` is the NPUs of a block.

        Raises TopologyError when the size does not suit its shape.
        """
        size = self.size * inside if self.joins_inside else self.size
        match self.kind:
            case DimensionKind.FULLY_CONNECTED:
                return (FullyConnected(size=size),)
            case DimensionKind.CABLES:
                cables = self.cables or tuple(pairwise(range(size)))
                return (Cables(size=size, cables=cables),)
            case DimensionKind.SWITCH | DimensionKind.RAIL | DimensionKind.FAT_TREE as kind:
                spines = (1,) if kind is DimensionKind.FAT_TREE else ()
                tree = self.tree or TreeShape(down=(size,), up=spines)
                return (FatTree(size=size, shape=tree, ports=self.ports, kind=kind),)
            case DimensionKind.DRAGONFLY:
                shape = self.dragonfly or DragonflyShape(routers=size, npus=1, global_links=1)
                return (Dragonfly(size=size, shape=shape, ports=self.ports),)
            case _:
                is_open = self.kind in (DimensionKind.LINE, DimensionKind.MESH)
                return tuple(Ring(size=side, is_open=is_open) for side in self.shape or (size,))

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
