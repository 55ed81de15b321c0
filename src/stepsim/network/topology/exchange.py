"""What an exchange of all pairs puts on nested dimensions, without a flow per pair.

Routing is by dimensions, and the members are all combinations of some coordinates, so that copies
of a wiring are alike, and one tells the loads of all.
"""

from math import prod

import numpy as np

from stepsim.base.arrays import Ints, Summand, add_up, distinct, distinct_rows, slices
from stepsim.network.topology.dimension import Load
from stepsim.network.topology.nested import NestedTopology
from stepsim.network.topology.network import Topology
from stepsim.network.topology.placed import PlacedWiring
from stepsim.network.topology.wiring import Flows

_PAIRS_AT_ONCE = 1 << 20


def exchange(topology: Topology, members: Ints) -> Load | None:
    """What a flow of weight 1 between any two members puts on the links; paths are not counted.

    None where the members are not all combinations of some coordinates, or have none: NPUs of
    listed links need not look alike.
    """
    if not isinstance(topology, NestedTopology):
        return None
    axes, classes = topology.axes, len(topology.link_classes)
    counts = [len(distinct(axis.coordinates(members))) for axis in axes]
    if prod(counts) != len(members):
        return None
    parts: list[Summand] = []
    joined: list[Ints] = []
    walked = np.zeros((1, classes), np.int64)
    for k, axis in enumerate(axes):
        (links, loads), hops = _along(axis, distinct(axis.positions(members)))
        beyond = zip(counts[k + 1 :], axes[k + 1 :], strict=True)
        weight = prod(count for count, outer in beyond if not outer.joins_inside)
        weight *= 1 if axis.joins_inside else prod(counts[:k])
        first = axis.offset + distinct(axis.copy_of(members)) * axis.links_per_copy
        parts.append(((first[:, None] + links).reshape(-1), np.tile(loads * weight, len(first))))
        rows = np.zeros((len(hops), classes), np.int64)
        rows[:, axis.classes] = hops
        if axis.joins_inside:
            joined.append(rows)
        else:
            walked, *joined = (_and_perhaps(each, rows) for each in (walked, *joined))
    links, loads = add_up(parts)
    paths = distinct_rows(np.concatenate([walked[walked.any(axis=1)], *joined]))
    return Load(links, loads, paths, np.zeros(len(paths), np.int64))


def _and_perhaps(paths: Ints, more: Ints) -> Ints:
    """Kinds of paths that may go on as any of others."""
    both = (paths[:, None] + more[None]).reshape(-1, paths.shape[1])
    return distinct_rows(np.concatenate([paths, both]))


def _along(axis: PlacedWiring, positions: Ints) -> tuple[Summand, Ints]:
    """Loads in one copy of an axis of a flow between any two of these positions; kinds of paths.

    Positions of one block do not send to each other. About a million pairs are asked at a time.
    """
    wiring, block = axis.wiring, axis.outer_stride if axis.joins_inside else 1
    parts, hops = [], []
    for part in slices(len(positions), max(1, _PAIRS_AT_ONCE // len(positions))):
        start = np.repeat(positions[part], len(positions))
        end = np.tile(positions, len(positions[part]))
        every = Flows(np.zeros_like(start), start, end, np.ones(len(start)))
        flows = every.where(start // block != end // block)
        parts.append(add_up(wiring.load(flows)))
        hops.append(distinct_rows(wiring.hops(flows)))
    return add_up(parts), distinct_rows(np.concatenate(hops))
