"""Groups that run the same collective at the same time, and what they put on links together.

The flows of a step share a link evenly, whichever group they are of, so a group waits for all bytes
on the busiest link it crosses. That is the max-min fair time of the slowest group (Bertsekas and
Gallager, Data Networks, 1992, section 6.5.2): progressive filling stops first at the link with the
most bytes over capacity, and there all flows have one rate. A group that is not slowed by that link
may share one with a group that is; then it is priced as if the other took its whole share, so its
time is at most too long.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Ints, mark_of
from stepsim.base.structs import replace
from stepsim.network.collectives.flows import FlowStep, StepShape, step_load
from stepsim.network.topology import Layout, Topology
from stepsim.network.topology.links import Load, sum_loads

_SAME = 1 + 1e-9  # sums of loads in another order differ by less


class Siblings(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Groups of NPUs that act together: `groups[i]` (a row per group) look like `looks[i]`.

    What they put on links is traced when first asked for.
    """

    topology: Topology
    looks: tuple[Ints, ...]
    groups: tuple[Ints, ...]
    _parts: dict[tuple[int, bytes], Load] = field(default_factory=dict)
    _totals: dict[tuple[bytes, ...], Load] = field(default_factory=dict)

    @cached_property
    def count(self) -> int:
        """Number of groups."""
        return sum(len(each) for each in self.groups)

    @cached_property
    def key(self) -> bytes:
        """What equal siblings share."""
        return mark_of((*self.looks, *self.groups))

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """How groups of each look lie."""
        return tuple(self.topology.layout(look) for look in self.looks)

    def loads(self, look: int, steps: Sequence[FlowStep]) -> Load:
        """What all groups put on the links that groups of a look cross; `steps[i]` is of look i."""
        keys = tuple(step.key() for step in steps)
        for each, (key, step) in enumerate(zip(keys, steps, strict=True)):
            if (each, key) not in self._parts:
                self._parts[each, key] = step_load(self.topology, self.groups[each], step)
        parts = [self._parts[each, key] for each, key in enumerate(keys)]
        if len(parts) == 1:
            return parts[0]
        if keys not in self._totals:
            loads = [(part.links, part.loads) for part in parts]
            self._totals[keys] = sum_loads(loads, parts[0].hops)
        total = self._totals[keys]
        crossed = np.isin(total.links, parts[look].links, assume_unique=True)
        return replace(total, links=total.links[crossed], loads=total.loads[crossed])


class Beside(Struct, frozen=True, kw_only=True, eq=False):
    """The place of a group among its siblings: its look."""

    siblings: Siblings
    look: int

    def key(self) -> bytes:
        """What tells it from other places."""
        return self.siblings.key + str(self.look).encode()

    def shared(self, shape: StepShape, steps: Sequence[FlowStep]) -> StepShape:
        """A step's shape with the flows of all siblings on its links; `steps[i]` is of look i."""
        if self.siblings.count == 1 or not np.any(shape.loads):
            return shape
        load = self.siblings.loads(self.look, steps)
        most = np.zeros_like(shape.loads)
        np.maximum.at(most, self.siblings.topology.link_class(load.links), load.loads)
        more = most > shape.loads * _SAME
        return replace(shape, shared=np.where(more, most, shape.loads)) if more.any() else shape
