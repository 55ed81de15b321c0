"""Protocols on the links of a topology: what they make of capacities, latencies and the launch.

What protocols are, and which one NCCL takes, is in its `tuning.cc`: the one that ends first.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints, distinct
from stepsim.base.units import PS_PER_S
from stepsim.network.collectives.algorithms import FLAT, Algorithm
from stepsim.network.topology import Topology
from stepsim.network.topology.library import Library, Protocol
from stepsim.workload.rows import CollectiveKind

Links = tuple[Floats, Floats, Floats]
"""Capacity (bytes/s), latency and endpoint latency (ps), each of shape (scenarios, classes)."""


class Carrier(Struct, frozen=True, kw_only=True, eq=False):
    """A protocol in a group: `rates` (bytes/s) and `steps_ps` by link class, and what comes once.

    `shared_rates` (bytes/s) hold for it and its siblings together. `copy_ps_per_byte` is for each
    byte of the collective.
    """

    name: str
    launch_ps: int
    copy_ps_per_byte: float
    rates: Floats
    shared_rates: Floats
    steps_ps: Floats

    def links(self, links: Links) -> Links:
        """The links with the protocol's steps; their capacity is that of all who share them."""
        capacity, latency, endpoint = links
        return capacity * self.shared_rates, latency, endpoint + self.steps_ps

    def once_ps(self, size_bytes: Floats) -> Floats:
        """Launch and local copy of each size, whole ps."""
        once: Floats = np.rint(self.launch_ps + size_bytes * self.copy_ps_per_byte)
        return once


def carriers(
    topology: Topology,
    library: Library,
    members: Ints,
    kind: CollectiveKind,
    algorithm: Algorithm,
    beside: Sequence[Ints] = (),
) -> tuple[Carrier, ...]:
    """The protocols of a library that carry a kind with an algorithm among these NPUs.

    Those that name the kind stand for those that name none. `beside` are the NPUs of the group and
    its siblings.
    """
    names = [link.name for link in topology.link_classes]
    filled = _in_nodes(topology, members)
    nodes = int(np.count_nonzero(filled))
    serving = [each for each in library.protocols if each.serves(kind, algorithm, nodes)]
    named = [each for each in serving if each.kinds] or serving
    flat = FLAT.get(algorithm) if kind is not CollectiveKind.SEND_RECV else None
    copied = 1 / members.shape[-1] if flat and flat.copies_own else 0.0
    reach = reach_all = np.ones(len(names))
    if named and library.reach:
        reach = _reach(library, names, int(filled.max()))
        everyone = [members, *(each.reshape(-1) for each in beside)]
        reach_all = _reach(library, names, int(_in_nodes(topology, np.concatenate(everyone)).max()))
    return tuple(_carrier(protocol, names, (reach, reach_all), copied) for protocol in named)


def _in_nodes(topology: Topology, npus: Ints) -> Ints:
    """How many of some NPUs are in each node."""
    return np.bincount(distinct(npus) // topology.node_size).astype(np.int64)


def _reach(library: Library, names: list[str], together: int) -> Floats:
    """Share of each class's links that so many ranks of a node use together."""
    reach = np.ones(len(names))
    for link, links in library.reach:
        reach[names.index(link)] = min(1.0, links / together)
    return reach


def _carrier(
    protocol: Protocol, names: list[str], reach: tuple[Floats, Floats], copied: float
) -> Carrier:
    """The protocol; `reach` is that of the group, and of the group with its siblings."""
    rates, steps = dict(protocol.rates), dict(protocol.steps_ps)
    own = np.array([rates.get(name, 1.0) for name in names])
    return Carrier(
        name=protocol.name,
        launch_ps=protocol.launch_ps,
        copy_ps_per_byte=copied / protocol.copy_bandwidth * PS_PER_S,
        rates=own * reach[0] / reach[1],
        shared_rates=reach[1],
        steps_ps=np.array([float(steps.get(name, 0)) for name in names]),
    )
