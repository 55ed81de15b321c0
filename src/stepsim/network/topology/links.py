"""Links, the numbers they have, and what a set of flows puts on them."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from stepsim.base.arrays import Floats, Ints, Summand, add_up, count_rows
from stepsim.base.errors import TopologyError
from stepsim.base.quantities import Quantity
from stepsim.base.structs import replace


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
