"""Where a fit of protocols starts: NCCL's own constants, or those of a library that is there.

Launches and steps are `baseLat` and `hwLat` of NCCL's tuning.cc (2.2x, Hopper), rounded; LL sends
eight bytes of flags with eight of data, LL128 eight with 120. A tree is used over several nodes
only: inside a node NCCL's is a chain, which is no faster than a ring.
"""

from math import inf

from stepsim.base.structs import replace
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import Library, Protocol
from stepsim.workload.rows import CollectiveKind

_US = 1_000_000
_RING, _TREE, _NVLS, _DIRECT = "ring", "double_binary_tree", "nvls", "direct"
_MESSAGE = CollectiveKind.SEND_RECV.value


def start_of(topology: Topology, *, messages: bool) -> Library:
    """The topology's own library, or NCCL's constants; with `messages` these have their own."""
    own = topology.library
    links = fitted_links(topology)
    known = topology.algorithms
    found = own.protocols or tuple(
        each for each in _nccl(links) if not known or {*each.algorithms} & {*known, _DIRECT}
    )
    if messages and not any(_MESSAGE in each.kinds for each in found):
        sent = [each for each in found if _DIRECT in each.algorithms]
        found += tuple(replace(each, kinds=(_MESSAGE,), copy_bandwidth=inf) for each in sent)
    return Library(protocols=found, reach=own.reach)


def fitted_links(topology: Topology) -> tuple[str, ...]:
    """The links inside a node, and those that an NPU has to the outside: one class of each."""
    inside = topology.link_classes[0].name
    crossed = topology.long_routes()
    outside = [
        link.name
        for link, hops in zip(topology.link_classes[1:], crossed.T[1:], strict=True)
        if hops.any()
    ]
    return inside, *outside[:1]


def _nccl(links: tuple[str, ...]) -> tuple[Protocol, ...]:
    def protocol(
        name: str,
        algorithm: str,
        launch: float,
        steps: tuple[float, float],
        rates: tuple[float, float],
        copy: float = inf,
        nodes: tuple[int, int] = (1, 0),
    ) -> Protocol:
        return Protocol(
            name=name,
            algorithms=(algorithm,),
            least_nodes=nodes[0],
            most_nodes=nodes[1],
            launch_ps=round(launch * _US),
            steps_ps=tuple((link, round(s * _US)) for link, s in zip(links, steps, strict=False)),
            rates=tuple(zip(links, rates, strict=False)),
            copy_bandwidth=copy * 1e9,
        )

    return (
        protocol("LL", _RING, 5, (0.7, 2.7), (0.3, 0.3), 200),
        protocol("LL128", _RING, 10, (1.9, 4), (0.7, 0.7), 300),
        protocol("Simple", _RING, 20, (3.4, 14), (0.9, 0.94), 500),
        protocol("LL", _TREE, 6, (0.6, 5), (0.3, 0.3), nodes=(2, 0)),
        protocol("LL128", _TREE, 12, (1.2, 8.5), (0.7, 0.7), nodes=(2, 0)),
        protocol("Simple", _TREE, 20, (3, 14), (0.8, 0.94), nodes=(2, 0)),
        protocol("Simple", _NVLS, 20, (3, 14), (0.8, 0.94), nodes=(1, 1)),
        protocol("Simple", _NVLS, 40, (3, 14), (0.8, 0.94), nodes=(2, 0)),
        protocol("LL", _DIRECT, 6, (1, 4), (0.3, 0.3), 200),
        protocol("Simple", _DIRECT, 12, (2, 14), (0.8, 0.9), 500),
    )
