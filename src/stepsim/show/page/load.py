"""The network of a step as a page draws it: its levels, and what its links carry."""

from collections import defaultdict

from stepsim.base.arrays import distinct
from stepsim.base.units import Quantity, format_size_bytes
from stepsim.explain.report import LinkUse
from stepsim.network.topology import NestedTopology, Topology
from stepsim.step.prepared import SimulatedStep
from stepsim.workload.axes import ParallelAxis

_AXES = tuple(ParallelAxis)


def network_load(run: SimulatedStep) -> dict[str, object]:
    """Levels of the network, innermost first, and every class of links with its load.

    A class says what share of the step its busiest link sends, and which parallel axes use it: bit
    i of `axes` is axis i of the answer's `axes`.
    """
    topology = run.prices.topology
    axes = _axes_of_classes(run)
    return {
        "levels": _levels(topology),
        "links": [_link(use, axes[i]) for i, use in enumerate(run.report.links)],
        "axes": [str(axis) for axis in _AXES],
    }


def _axes_of_classes(run: SimulatedStep) -> dict[int, int]:
    """The parallel axes that use links of every class, as bits."""
    bits = defaultdict[int, int](int)
    for (_, _, axis), (links, _) in run.traffic.items():
        for link in distinct(run.prices.topology.link_class(links)).tolist():
            bits[link] |= 1 << _AXES.index(axis)
    return bits


def _levels(topology: Topology) -> list[dict[str, object]]:
    """The dimensions of a nested network; none of one that is a list of links."""
    if not isinstance(topology, NestedTopology):
        return []
    return [
        {"name": level.link.name, "kind": str(level.kind), "size": level.size}
        for level in topology.dimensions
    ]


def _link(use: LinkUse, axes: int) -> dict[str, object]:
    bandwidth = use.bandwidth_bytes_per_s
    return {
        "name": use.name,
        "bandwidth": "no limit" if bandwidth is None else Quantity.BANDWIDTH.text(bandwidth),
        "share": use.utilisation,
        "bytes": format_size_bytes(use.total_bytes),
        "busiest": use.busiest,
        "busiest_bytes": format_size_bytes(use.busiest_bytes),
        "used": use.used,
        "links": use.links,
        "mostly": f"{use.users[0].group} {use.users[0].kind}" if use.users else "",
        "axes": axes,
    }
