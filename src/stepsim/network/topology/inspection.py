"""What a topology is made of: the numbers behind `stepsim inspect TOPOLOGY`."""

from dataclasses import dataclass
from typing import Self

from stepsim.base.documents import Document, Entry, Names
from stepsim.base.fields import BytesPerSecond, Picoseconds, Share, finite
from stepsim.network.topology import LinkClass, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """Links of one class: how many, each direction counted, and what each is like."""

    link: LinkClass
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyInspection:
    """A topology in numbers; bandwidths are bytes/s one way, of links as rated.

    `injection_bandwidth` is what an NPU can send over all its links at once. The diameter is the
    most links, and the most latency with the endpoints' share, of any route.
    `bisection_method` says how the halves were found. `grows` says that the outermost dimension
    takes the size a job needs; the other numbers are those of `npus`.
    """

    name: str
    source: str
    npus: int
    node_size: int
    grows: bool
    links: tuple[LinkRow, ...]
    injection_bandwidth: float
    bisection_bandwidth: float
    bisection_method: str
    diameter_hops: int
    diameter_ps: int
    launch_latency_ps: int
    algorithms: tuple[str, ...]

    @property
    def nodes(self) -> int:
        """Nodes, the last of which may be partly filled."""
        return -(-self.npus // self.node_size)


class _LinkNumbers(Entry, frozen=True, kw_only=True):
    """A class of links, as rated; `efficiency` is the share that payload gets."""

    name: str
    bandwidth: BytesPerSecond | None
    latency_ps: Picoseconds
    endpoint_latency_ps: Picoseconds
    efficiency: Share
    count: int


class TopologyNumbers(Document, frozen=True, kw_only=False):
    """`stepsim inspect TOPOLOGY --json`: a topology in numbers, of links as rated.

    A node has `node_size` NPUs.
    """

    # msgspec writes fields that are by keyword only last: `schema_version`
    name: str
    source: str
    npus: int
    node_size: int
    grows: bool
    links: tuple[_LinkNumbers, ...]
    injection_bandwidth: BytesPerSecond | None
    bisection_bandwidth: BytesPerSecond | None
    bisection_method: str
    diameter_hops: int
    diameter_ps: Picoseconds
    launch_latency_ps: Picoseconds
    algorithms: Names

    @classmethod
    def of(cls, seen: TopologyInspection) -> Self:
        """The document of an inspection; bandwidths are None where they are free."""
        return cls.taken_from(
            seen,
            injection_bandwidth=finite(seen.injection_bandwidth),
            bisection_bandwidth=finite(seen.bisection_bandwidth),
            links=[
                _LinkNumbers.taken_from(
                    row.link, bandwidth=finite(row.link.bandwidth), count=row.count
                )
                for row in seen.links
            ],
        )


def inspect_topology(topology: Topology) -> TopologyInspection:
    """Measure a topology."""
    classes, routes = topology.link_classes, topology.long_routes()
    bisection = topology.bisection()
    return TopologyInspection(
        name=topology.name,
        source=" ".join(topology.source.split()),
        npus=topology.npus,
        node_size=topology.node_size,
        grows=topology.grows,
        links=tuple(
            LinkRow(link=link, count=count)
            for link, count in zip(classes, topology.link_counts(), strict=True)
        ),
        injection_bandwidth=topology.injection(),
        bisection_bandwidth=bisection.bandwidth,
        bisection_method=bisection.method,
        diameter_hops=int(routes.sum(axis=1).max()),
        diameter_ps=max(_latency_ps(classes, route) for route in routes.tolist()),
        launch_latency_ps=topology.launch_latency_ps,
        algorithms=topology.algorithms,
    )


def _latency_ps(classes: tuple[LinkClass, ...], route: list[int]) -> int:
    crossed = [(link, hops) for link, hops in zip(classes, route, strict=True) if hops]
    ends = max((link.endpoint_latency_ps for link, _ in crossed), default=0)
    return sum(link.latency_ps * hops for link, hops in crossed) + ends
