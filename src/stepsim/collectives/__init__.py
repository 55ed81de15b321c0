"""Collective algorithms, one file each, and their price on a topology.

The cost of a step is the longest path latency of its flows plus the largest bytes over capacity of
any link they cross; links faster never make it slower.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from stepsim.collectives.direct import direct_all_to_all
from stepsim.collectives.flows import FlowStep, StepShape, link_parameters, step_times_ps, trace
from stepsim.collectives.point_to_point import send_recv
from stepsim.collectives.ring import ring
from stepsim.collectives.tree import binomial_broadcast
from stepsim.errors import PlanError, SimulationError
from stepsim.topology import Layout, Topology
from stepsim.topology.links import Ints
from stepsim.units import MAX_INT64
from stepsim.workload import CollectiveKind


class Algorithm(StrEnum):
    """How a collective is carried out; `auto` takes the algorithm of its kind."""

    AUTO = "auto"
    RING = "ring"
    DIRECT = "direct"
    TREE = "tree"


_OF_KIND = {
    CollectiveKind.ALL_REDUCE: Algorithm.RING,
    CollectiveKind.ALL_GATHER: Algorithm.RING,
    CollectiveKind.REDUCE_SCATTER: Algorithm.RING,
    CollectiveKind.ALL_TO_ALL: Algorithm.DIRECT,
    CollectiveKind.BROADCAST: Algorithm.TREE,
    CollectiveKind.SEND_RECV: Algorithm.DIRECT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveShape:
    """What a collective's cost depends on, for one group on one topology."""

    steps: tuple[StepShape, ...]
    launches: bool


def flow_steps(
    kind: CollectiveKind, layout: Layout, algorithm: Algorithm = Algorithm.AUTO
) -> list[FlowStep]:
    """Steps of a collective over a group that lies so; none for a group of one.

    Raises PlanError when the algorithm does not carry out this kind.
    """
    if algorithm not in (Algorithm.AUTO, _OF_KIND[kind]):
        raise PlanError(f"{kind} has no {algorithm} algorithm: expected {_OF_KIND[kind]}")
    if layout.ranks < 2:
        return []
    match kind:
        case CollectiveKind.ALL_TO_ALL:
            return direct_all_to_all(layout.ranks)
        case CollectiveKind.BROADCAST:
            return binomial_broadcast(layout.ranks)
        case CollectiveKind.SEND_RECV:
            return send_recv()
        case _:
            return ring(kind, layout)


def collective_shape(
    topology: Topology,
    kind: CollectiveKind,
    members: Ints,
    algorithm: Algorithm = Algorithm.AUTO,
) -> CollectiveShape:
    """Trace a collective's flows over a topology."""
    steps = flow_steps(kind, topology.layout(members), algorithm)
    return CollectiveShape(
        steps=tuple(trace(topology, members, step) for step in steps),
        launches=bool(steps) and kind is not CollectiveKind.SEND_RECV,
    )


def collective_time_ps(topology: Topology, shape: CollectiveShape, size_bytes: int) -> int:
    """Picoseconds of a traced collective: launch latency and steps; 0 bytes take no time."""
    if size_bytes == 0 or not shape.steps:
        return 0
    size = np.array([float(size_bytes)])
    parameters = link_parameters(topology.link_classes)
    total = topology.launch_latency_ps if shape.launches else 0
    for step in shape.steps:
        time = float(step_times_ps(step, size, *parameters)[0])
        if not time * step.repeat < MAX_INT64:
            raise SimulationError(
                f"a collective of {size_bytes} bytes takes {time * step.repeat:.3g} ps on "
                f"{topology.name}: at most 2**63 - 1 ps (106 days) can be simulated"
            )
        total += int(time) * step.repeat
    return total


__all__ = ["Algorithm", "CollectiveShape", "collective_shape", "collective_time_ps", "flow_steps"]
