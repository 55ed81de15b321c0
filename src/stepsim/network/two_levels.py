"""A network in two levels, as closed forms see it: inside a node, and between nodes."""

from stepsim.base.errors import TopologyError
from stepsim.network.topology import Dimension, NestedTopology, Topology
from stepsim.workload.model.interconnect import Interconnect


def interconnect_of(topology: Topology) -> Interconnect:
    """The innermost dimension, and the slowest of those outside it.

    Raises TopologyError for listed links: they have no dimensions.
    """
    if not isinstance(topology, NestedTopology):
        raise TopologyError(f"{topology.name}: a closed form needs nested dimensions, not links")
    inside, *outside = topology.dimensions
    slowest = min(outside or [inside], key=_per_npu)
    return Interconnect(
        domain=inside.size,
        inner=_per_npu(inside),
        outer=_per_npu(slowest),
        launch_ps=topology.launch_latency_ps,
        inner_ps=inside.link.endpoint_latency_ps + 2 * inside.link.latency_ps,
        outer_ps=slowest.link.endpoint_latency_ps + 2 * slowest.link.latency_ps,
    )


def _per_npu(dimension: Dimension) -> float:
    """Payload bytes/s of an NPU's links, one way."""
    return dimension.link.capacity * dimension.ports.nics / dimension.ports.npus_per_nic
