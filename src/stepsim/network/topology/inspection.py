"""What a topology is made of: the numbers behind `stepsim inspect TOPOLOGY`."""

import numpy as np

from stepsim.base.structs import BytesPerSecond, Document, Entry, Names, Picoseconds, Share, finite
from stepsim.network.collectives.flows import StepShape, link_parameters, step_times_ps
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import Accuracy


class _LinkNumbers(Entry):
    """A class of links, as rated: `count` of them, each direction counted.

    `efficiency` is the share of the bandwidth that payload gets.
    """

    name: str
    bandwidth: BytesPerSecond | None
    latency_ps: Picoseconds
    endpoint_latency_ps: Picoseconds
    efficiency: Share
    count: int


class _ProtocolNumbers(Entry):
    """A protocol of the machine's library; None is an unbounded bandwidth."""

    name: str
    algorithms: Names
    kinds: Names
    least_nodes: int
    most_nodes: int
    launch_ps: Picoseconds
    copy_bandwidth: BytesPerSecond | None
    steps_ps: dict[str, int]
    rates: dict[str, float]


class TopologyNumbers(Document, kw_only=False):
    """`stepsim inspect TOPOLOGY --json`: a topology in numbers, of links as rated.

    A node has `node_size` NPUs. Bandwidths are one way, None where they are free;
    `injection_bandwidth` is what an NPU can send over all its links at once. The diameter is the
    most links, and the most latency with the endpoints' share, of any route.
    `bisection_method` says how the halves were found. `grows` says that the outermost dimension
    takes the size a job needs; the other numbers are those of `npus`. `device` is the accelerator
    that the topology names, empty where it names none.
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
    accuracy: tuple[Accuracy, ...] = ()
    device: str = ""

    @property
    def nodes(self) -> int:
        """Nodes, the last of which may be partly filled."""
        return -(-self.npus // self.node_size)


def inspect_topology(topology: Topology) -> TopologyNumbers:
    """Measure a topology."""
    classes, routes = topology.link_classes, topology.long_routes()
    bisection, method = topology.bisection()
    nothing = np.zeros(len(classes))
    step = StepShape(loads=nothing, hops=routes, shared=nothing)
    return TopologyNumbers.taken_from(
        topology,
        source=" ".join(topology.source.split()),
        links=tuple(
            _LinkNumbers.taken_from(link, bandwidth=finite(link.bandwidth), count=count)
            for link, count in zip(classes, topology.link_counts(), strict=True)
        ),
        injection_bandwidth=finite(topology.injection()),
        bisection_bandwidth=finite(bisection),
        bisection_method=method,
        diameter_hops=int(routes.sum(axis=1).max()),
        diameter_ps=int(step_times_ps(step, np.zeros(1), link_parameters(classes))[1][0]),
        protocols=tuple(
            _ProtocolNumbers.taken_from(each, copy_bandwidth=finite(each.copy_bandwidth))
            for each in topology.library.protocols
        ),
        accuracy=topology.library.accuracy,
    )
