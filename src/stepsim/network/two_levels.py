"""A network in two levels, as closed forms see it: inside a node, and between nodes."""

from collections.abc import Collection

from stepsim.base.errors import TopologyError
from stepsim.network.collectives import Algorithm
from stepsim.network.topology import Dimension, DimensionKind, NestedTopology, Topology
from stepsim.workload.model.interconnect import Interconnect


def interconnect_of(topology: Topology) -> Interconnect:
    """The innermost dimension, and the slowest of those outside it.

    Where NPUs of a domain are cabled to each other, an NPU has all its cables; of a ring or a torus
    it has the two of one axis, where the library sends both ways.
    Raises TopologyError for listed links: they have no dimensions.
    """
    if not isinstance(topology, NestedTopology):
        raise TopologyError(f"{topology.name}: a closed form needs nested dimensions, not links")
    inside, *outside = topology.dimensions
    slowest = min(outside or [inside], key=_per_npu)
    return Interconnect(
        domain=inside.size,
        inner=_per_npu(inside) * _links(inside, topology.algorithms),
        outer=_per_npu(slowest),
        launch_ps=topology.launch_latency_ps,
        inner_ps=inside.link.endpoint_latency_ps + 2 * inside.link.latency_ps,
        outer_ps=slowest.link.endpoint_latency_ps + 2 * slowest.link.latency_ps,
        meshed=inside.kind is DimensionKind.FULLY_CONNECTED and inside.size > 1,
        cables=_links(inside, topology.algorithms),
    )


def _links(dimension: Dimension, algorithms: Collection[str]) -> float:
    """Cables of an NPU that carry a collective; 1 where it is cabled to a switch.

    `algorithms` are those of the library, none for all of them.
    """
    match dimension.kind:
        case DimensionKind.FULLY_CONNECTED:
            return max(dimension.size - 1, 1)
        case DimensionKind.CABLES:
            return 2 * len(dimension.cables) / dimension.size if dimension.cables else 1
        case DimensionKind.RING | DimensionKind.TORUS:
            both_ways = not algorithms or Algorithm.BIDIRECTIONAL_RING in algorithms
            return 2 if both_ways else 1
        case _:
            return 1


def _per_npu(dimension: Dimension) -> float:
    """Payload bytes/s of an NPU's links, one way."""
    return dimension.link.capacity * dimension.ports.nics / dimension.ports.npus_per_nic
