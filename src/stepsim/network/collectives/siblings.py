"""Groups that run the same collective at the same time, and what they put on links together.

The flows of a step share a link evenly, whichever group they are of, so a group waits for all bytes
on the busiest link it crosses. That is the max-min fair time of the slowest group: progressive
filling stops first at the link with the most bytes over capacity, and there all flows have one
rate. A group that is not slowed by that link may share one with a group that is; then it is priced
as if the other took its whole share, so its time is at most too long.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.network.collectives.flows import FlowStep, StepShape, step_load
from stepsim.network.topology import Topology
from stepsim.network.topology.links import Load, sum_loads

_SAME = 1 + 1e-9  # sums of loads in another order differ by less


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Siblings:
    """Groups of NPUs that act together: `groups[i]` (a row per group) look like `looks[i]`.

    The group that is priced looks like the first.
    """

    looks: tuple[Ints, ...]
    groups: tuple[Ints, ...]

    @property
    def count(self) -> int:
        """Number of groups."""
        return sum(len(each) for each in self.groups)

    def key(self) -> bytes:
        """A digest that equal siblings share."""
        digest = blake2b(digest_size=16)
        for part in (*self.looks, *self.groups):
            digest.update(np.ascontiguousarray(part).data)
        return digest.digest()


def shared_shape(
    topology: Topology, shape: StepShape, siblings: Siblings, steps: Sequence[FlowStep]
) -> StepShape:
    """A step's shape with the flows of all siblings on its links; `steps[i]` is that of look i."""
    if siblings.count == 1 or not np.any(shape.loads):
        return shape
    parts = [
        step_load(topology, groups, step)
        for groups, step in zip(siblings.groups, steps, strict=True)
    ]
    most = _largest(topology, parts)
    more = most > shape.loads * _SAME
    return replace(shape, shared=np.where(more, most, shape.loads)) if more.any() else shape


def _largest(topology: Topology, parts: Sequence[Load]) -> Floats:
    """The most that all parts put on a link of each class that the first crosses."""
    total = parts[0]
    if len(parts) > 1:
        total = sum_loads([(part.links, part.loads) for part in parts], parts[0].hops)
        crossed = np.isin(total.links, parts[0].links)
        total = replace(total, links=total.links[crossed], loads=total.loads[crossed])
    largest = np.zeros(len(topology.link_classes))
    np.maximum.at(largest, topology.link_class(total.links), total.loads)
    return largest
