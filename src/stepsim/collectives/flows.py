"""What a collective sends: steps of flows, and what a step costs on a topology.

An algorithm turns the ranks of a group into `FlowStep`s and knows no link. `trace` finds the links
the flows cross and keeps what the cost depends on (`StepShape`): it is found once per group
pattern and priced for any size, bandwidth and latency by one function, `step_times_ps`.
"""

from dataclasses import dataclass, replace

import numpy as np

from stepsim.topology import LinkClass, Load, Topology
from stepsim.topology.links import Floats, Ints, sum_loads
from stepsim.units import PS_PER_S

_FLOWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStep:
    """`repeat` equal steps, one after the other, of simultaneous flows between members of a group.

    Flow i takes `fraction` (or `fraction[i]`) of the collective's size from member `sources[i]` to
    member `destinations[i]`, counted from 0 in the group. A fraction of 0 costs latency alone: the
    stages through which a pipelined algorithm fills.
    """

    sources: Ints
    destinations: Ints
    fraction: float | Floats
    repeat: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """What the cost of a step depends on, per link class.

    `loads[c]`: the largest number of collective sizes that crosses one link of class c.
    `hops[p, c]`: links of class c on the p-th distinct kind of path.
    """

    repeat: int
    loads: Floats
    hops: Ints


def trace(topology: Topology, members: Ints, step: FlowStep) -> StepShape:
    """Find the links that a step's flows cross; `members` are the group's NPUs.

    The step takes the longest path latency plus the time of the link that the most bytes over
    capacity cross: all flows start together and share links fairly.
    """
    load = step_load(topology, members, step)
    largest = np.zeros(len(topology.link_classes))
    np.maximum.at(largest, topology.link_class(load.links), load.loads)
    return StepShape(repeat=step.repeat, loads=largest, hops=load.hops)


def step_load(topology: Topology, members: Ints, step: FlowStep) -> Load:
    """What a step puts on every link, in collective sizes.

    `members` has shape (ranks,) or (groups, ranks): then all groups step at once. Flows are traced
    a million at a time, so that an all-to-all of thousands of ranks fits.
    """
    sources = members[..., step.sources]
    uneven = isinstance(step.fraction, np.ndarray)
    weights = np.broadcast_to(step.fraction if uneven else 1.0, sources.shape).reshape(-1)
    sources = sources.reshape(-1)
    destinations = members[..., step.destinations].reshape(-1)
    parts, hops = [], [np.zeros((0, len(topology.link_classes)), dtype=np.int64)]
    for first in range(0, len(sources), _FLOWS_AT_ONCE):
        part = slice(first, first + _FLOWS_AT_ONCE)
        load = topology.load(sources[part], destinations[part], weights[part])
        parts.append((load.links, load.loads))
        hops.append(load.hops)
    load = sum_loads(parts, np.concatenate(hops))
    return load if uneven else replace(load, loads=load.loads * step.fraction)


def step_times_ps(
    shape: StepShape, size_bytes: Floats, capacity: Floats, latency_ps: Floats, endpoint_ps: Floats
) -> Floats:
    """Picoseconds of one step for many scenarios at once, rounded to whole ps.

    `size_bytes` has shape (scenarios,), the link parameters (scenarios, classes) in payload
    bytes/s and ps. The endpoint latency of a message is the largest of the classes it crosses.
    """
    crossed = shape.hops > 0
    endpoint = np.where(crossed, endpoint_ps[:, None, :], 0.0).max(axis=2, initial=0.0)
    path = (latency_ps @ shape.hops.T + endpoint).max(axis=1, initial=0.0)
    slowest = (shape.loads / capacity).max(axis=1, initial=0.0)
    times: Floats = np.rint(path + size_bytes * slowest * PS_PER_S)
    return times


def link_parameters(classes: tuple[LinkClass, ...]) -> tuple[Floats, Floats, Floats]:
    """Capacity (bytes/s), latency and endpoint latency (ps) as arrays of shape (1, classes)."""
    return (
        np.array([[link.capacity for link in classes]]),
        np.array([[float(link.latency_ps) for link in classes]]),
        np.array([[float(link.endpoint_latency_ps) for link in classes]]),
    )
