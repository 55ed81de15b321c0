"""The network of a step as a page draws it: its levels, and what its links carry."""

from collections import defaultdict

from stepsim.base.arrays import distinct
from stepsim.base.axes import ParallelAxis
from stepsim.base.units import format_bandwidth, format_size_bytes
from stepsim.explain.report import LinkUse
from stepsim.network.topology import NestedTopology
from stepsim.step.prepared import SimulatedStep

_AXES = tuple(ParallelAxis)


def network_load(run: SimulatedStep) -> dict[str, object]:
    """Levels of the network, innermost first, and every class of links with its load.

    A network that is a list of links has no levels. A class says what share of the step its busiest
    link sends, and which parallel axes use it: bit i of `axes` is axis i.
    """
    topology, used = run.prices.topology, defaultdict[int, int](int)
    for (_, _, axis), (links, _) in run.traffic.items():
        for link in distinct(topology.link_class(links)).tolist():
            used[link] |= 1 << _AXES.index(axis)
    levels = topology.dimensions if isinstance(topology, NestedTopology) else ()
    return {
        "levels": [
            {"name": level.link.name, "kind": str(level.kind), "size": level.size}
            for level in levels
        ],
        "links": [_link(use, used[i]) for i, use in enumerate(run.report.links)],
    }


def _link(use: LinkUse, axes: int) -> dict[str, object]:
    bandwidth = use.bandwidth_bytes_per_s
    mostly = f", mostly {use.users[0].group} {use.users[0].kind}" if use.users else ""
    sent, most = map(format_size_bytes, (use.total_bytes, use.busiest_bytes))
    return {
        "name": use.name,
        "bandwidth": "no limit" if bandwidth is None else format_bandwidth(bandwidth),
        "share": use.utilisation,
        "words": (
            f"{sent} over {use.used} of {use.links} links, one way. Busiest: "
            f"{use.busiest or 'none'}, {most}{mostly}. The share is of the step in which it sends."
        ),
        "axes": axes,
    }
