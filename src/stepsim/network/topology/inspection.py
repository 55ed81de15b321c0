"""What a topology is made of: the numbers behind `stepsim inspect TOPOLOGY`."""

from typing import Self

from msgspec import Struct

from stepsim.base.documents import (
    Bytes,
    BytesPerSecond,
    Document,
    Entry,
    Names,
    Picoseconds,
    Share,
    finite,
)
from stepsim.network.topology import LinkClass, Topology
from stepsim.network.topology.links import Library, Protocol


class _LinkRow(Struct, frozen=True, kw_only=True):
    """Links of one class: how many, each direction counted, and what each is like."""

    link: LinkClass
    count: int


class TopologyInspection(Struct, frozen=True, kw_only=True):
    """A topology in numbers; bandwidths are bytes/s one way, of links as rated.

    `injection_bandwidth` is what an NPU can send over all its links at once. The diameter is the
    most links, and the most latency with the endpoints' share, of any route.
    `bisection_method` says how the halves were found. `grows` says that the outermost dimension
    takes the size a job needs; the other numbers are those of `npus`. `device` is the accelerator
    that the topology names, empty where it names none.
    """

    name: str
    device: str
    source: str
    npus: int
    node_size: int
    grows: bool
    links: tuple[_LinkRow, ...]
    injection_bandwidth: float
    bisection_bandwidth: float
    bisection_method: str
    diameter_hops: int
    diameter_ps: int
    launch_latency_ps: int
    algorithms: tuple[str, ...]
    library: Library

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


class _ProtocolNumbers(Entry, frozen=True, kw_only=True):
    """A protocol of the machine's library; steps and rates by links."""

    name: str
    algorithms: Names
    kinds: Names
    least_nodes: int
    most_nodes: int
    launch_ps: Picoseconds
    copy_bandwidth: BytesPerSecond | None
    steps_ps: dict[str, int]
    rates: dict[str, float]

    @classmethod
    def of(cls, protocol: Protocol) -> Self:
        """The entry of a protocol."""
        return cls.taken_from(
            protocol,
            copy_bandwidth=finite(protocol.copy_bandwidth),
            steps_ps=dict(protocol.steps_ps),
            rates=dict(protocol.rates),
        )


class _AccuracyNumbers(Entry, frozen=True, kw_only=True):
    """How far times are from measured ones, of up to so many ranks and nodes."""

    kind: str
    nodes: int
    most_ranks: int
    first_bytes: Bytes
    last_bytes: Bytes
    mean: Share
    largest: Share
    samples: int
    source: str


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
    protocols: tuple[_ProtocolNumbers, ...] = ()
    accuracy: tuple[_AccuracyNumbers, ...] = ()
    device: str = ""

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
            protocols=[_ProtocolNumbers.of(each) for each in seen.library.protocols],
            accuracy=[_AccuracyNumbers.taken_from(each) for each in seen.library.accuracy],
        )


def inspect_topology(topology: Topology) -> TopologyInspection:
    """Measure a topology."""
    classes, routes = topology.link_classes, topology.long_routes()
    bisection = topology.bisection()
    return TopologyInspection(
        name=topology.name,
        device=topology.device,
        source=" ".join(topology.source.split()),
        npus=topology.npus,
        node_size=topology.node_size,
        grows=topology.grows,
        links=tuple(
            _LinkRow(link=link, count=count)
            for link, count in zip(classes, topology.link_counts(), strict=True)
        ),
        injection_bandwidth=topology.injection(),
        bisection_bandwidth=bisection.bandwidth,
        bisection_method=bisection.method,
        diameter_hops=int(routes.sum(axis=1).max()),
        diameter_ps=max(_latency_ps(classes, route) for route in routes.tolist()),
        launch_latency_ps=topology.launch_latency_ps,
        algorithms=topology.algorithms,
        library=topology.library,
    )


def _latency_ps(classes: tuple[LinkClass, ...], route: list[int]) -> int:
    crossed = [(link, hops) for link, hops in zip(classes, route, strict=True) if hops]
    ends = max((link.endpoint_latency_ps for link, _ in crossed), default=0)
    return sum(link.latency_ps * hops for link, hops in crossed) + ends
