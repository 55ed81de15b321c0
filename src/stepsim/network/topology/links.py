"""Links, the numbers they have, what flows put on them, and the protocols that send over them.

The communication library of a machine sends in several protocols (NCCL's LL, LL128, Simple): a
small latency and a part of the bandwidth, or more of both. How long each takes was fitted to
measured collectives; where it was measured, and how well the fit meets it, is stated with it.
"""

from collections.abc import Sequence
from math import inf

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from stepsim.base.arrays import Floats, Ints, Summand, add_up, count_rows
from stepsim.base.documents import Bytes, Entry, Share
from stepsim.base.errors import TopologyError
from stepsim.base.structs import replace
from stepsim.base.units import MAX_INT64, Quantity


class LinkField(Struct, frozen=True, kw_only=True):
    """A number of a network: its `name` in files, axes and columns, its `attribute` in the program.

    Files may leave out what has a `default`.
    """

    name: str
    attribute: str
    quantity: Quantity
    default: float | None = None


LINK_FIELDS = (
    LinkField(name="bandwidth", attribute="bandwidth", quantity=Quantity.BANDWIDTH),
    LinkField(name="latency", attribute="latency_ps", quantity=Quantity.TIME),
    LinkField(
        name="endpoint_latency",
        attribute="endpoint_latency_ps",
        quantity=Quantity.TIME,
        default=0,
    ),
    LinkField(name="efficiency", attribute="efficiency", quantity=Quantity.FACTOR, default=1.0),
)
"""The numbers of a class of links; named `CLASS.bandwidth` and so on where there are several."""

LAUNCH_LATENCY = LinkField(
    name="launch_latency", attribute="launch_latency_ps", quantity=Quantity.TIME, default=0
)
"""The number that a topology has once."""

OVERSUBSCRIPTION = LinkField(
    name="oversubscription", attribute="oversubscription", quantity=Quantity.FACTOR
)
"""What a fat tree has beside its links: bandwidth into a leaf switch over bandwidth out of it."""


def split_link(name: str) -> tuple[str, LinkField | None]:
    """Class and field of a name such as `fabric.bandwidth`; no field if it names something else."""
    link, _, field = name.rpartition(".")
    return link, next((each for each in LINK_FIELDS if link and each.name == field), None)


class LinkClass(Struct, frozen=True, kw_only=True):
    """Links that are alike: bandwidth in bytes/s per direction, latency in ps of one hop.

    `endpoint_latency_ps` (software and NIC) is paid once per message that crosses the class;
    `efficiency` is the share of the bandwidth that payload gets.
    """

    name: str
    bandwidth: float
    latency_ps: int = 0
    endpoint_latency_ps: int = 0
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise TopologyError(f"{self.name}: bandwidth is {self.bandwidth}: it must be positive")
        if not 0 < self.efficiency <= 1:
            raise TopologyError(f"{self.name}: efficiency is {self.efficiency}: expected 0 to 1")
        if min(self.latency_ps, self.endpoint_latency_ps) < 0:
            raise TopologyError(f"{self.name}: a latency is negative")

    @property
    def capacity(self) -> float:
        """Payload bytes per second per direction."""
        return self.bandwidth * self.efficiency


class FollowingLinks(Struct, frozen=True, kw_only=True):
    """Links that have the numbers of others, whatever these are, but for some of their own.

    Bandwidth in bytes/s, latencies in ps, as of `LinkClass`.
    """

    name: str
    bandwidth: float | None = None
    latency_ps: int | None = None
    endpoint_latency_ps: int | None = None
    efficiency: float | None = None

    def behind(self, link: LinkClass) -> LinkClass:
        """The class of these links where those that they follow are `link`."""
        own = asdict(self)
        return replace(link, **{name: value for name, value in own.items() if value is not None})


class Load(Struct, frozen=True, kw_only=True):
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
    counts = np.ones(len(hops), dtype=np.int64) if flows is None else flows
    distinct, summed = count_rows(hops, counts)
    return Load(links=links, loads=loads, hops=distinct, flows=summed)


SIZE_BANDS = ((0, 10**7), (10**7, 10**8), (10**8, MAX_INT64))
"""Sizes whose accuracy is stated together: from so many bytes to below so many."""
GOOD = (0.2, 0.15, 0.1)
"""The mean error up to which the times of each band count as good."""


def size_band(size_bytes: int) -> int:
    """Number of the band of `SIZE_BANDS` that a size is in."""
    return next(i for i, (_, end) in enumerate(SIZE_BANDS) if size_bytes < end)


class Protocol(Struct, frozen=True, kw_only=True):
    """A way to send what some `algorithms` send in some `kinds` of collectives; empty: all.

    Groups over fewer nodes than `least_nodes` or more than `most_nodes` (0: any) do not use it.
    Of each class of links, `rates` is the share of the capacity it gets (1 if not named), and
    `steps_ps` what a message over it costs beside the endpoint latency. `launch_ps` comes on top of
    the topology's launch latency. A rank's own share of the data is read and written at
    `copy_bandwidth` bytes/s before it is sent.
    """

    name: str
    algorithms: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    least_nodes: int = 1
    most_nodes: int = 0
    launch_ps: int = 0
    steps_ps: tuple[tuple[str, int], ...] = ()
    rates: tuple[tuple[str, float], ...] = ()
    copy_bandwidth: float = inf

    def __post_init__(self) -> None:
        if min(self.launch_ps, *(step for _, step in self.steps_ps), 0) < 0:
            raise TopologyError(f"protocol {self.name}: a latency is negative")
        for link, rate in self.rates:
            if not 0 < rate <= 1:
                found = f"rate of {link} is {rate}"
                raise TopologyError(f"protocol {self.name}: {found}: expected above 0, at most 1")
        if not self.copy_bandwidth > 0:
            raise TopologyError(f"protocol {self.name}: copy must be positive")

    def serves(self, kind: str, algorithm: str, nodes: int) -> bool:
        """Whether it carries a kind of collective with an algorithm over so many nodes."""
        fits = not self.kinds or kind in self.kinds
        known = not self.algorithms or algorithm in self.algorithms
        return fits and known and self.least_nodes <= nodes <= (self.most_nodes or nodes)

    @property
    def links(self) -> set[str]:
        """Classes of links that it names."""
        return {link for link, _ in (*self.steps_ps, *self.rates)}


class Accuracy(Entry, frozen=True, kw_only=True):
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


class Library(Struct, frozen=True, kw_only=True):
    """The protocols of a machine, and how well they meet measurements.

    Without protocols links alone set the times. Of a class in `reach`, the ranks of a node use at
    most so many links together: the NICs that a group reaches.
    """

    protocols: tuple[Protocol, ...] = ()
    reach: tuple[tuple[str, int], ...] = ()
    accuracy: tuple[Accuracy, ...] = ()

    def check(self, name: str, links: Sequence[str]) -> None:
        """Raise TopologyError where it names links that the topology `name` does not have."""
        named = {link for protocol in self.protocols for link in protocol.links}
        for link in sorted(named | {link for link, _ in self.reach}):
            if link not in links:
                expected = ", ".join(links)
                raise TopologyError(f"{name}: protocols name links {link!r}: expected {expected}")


PLAIN = Library()
"""Links alone set the times."""
