"""Groups that form a regular grid: their levels, and a collective in all subgroups of a level."""

from math import prod

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints, distinct
from stepsim.network.collectives.flows import FlowStep
from stepsim.network.topology import DimensionKind, Layout


class Levels(Struct, frozen=True, kw_only=True):
    """Positions of a group's members as a grid, one axis per level.

    `grid` has the outermost level first; `kinds` and `sizes` are given innermost first. The
    innermost level is numbered 0.
    """

    grid: Ints
    kinds: tuple[DimensionKind, ...]
    reduces_inside: bool = False
    reduce_efficiency: float = 1.0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Members along each level, innermost first."""
        return self.grid.shape[::-1]

    def groups(self, level: int) -> Ints:
        """The subgroups of a level: rows of positions that differ along it only."""
        moved = np.moveaxis(self.grid, self.grid.ndim - 1 - level, -1)
        return moved.reshape(-1, self.sizes[level])

    def layout(self, level: int) -> Layout:
        """How each subgroup of a level lies."""
        places = np.arange(self.sizes[level], dtype=np.int64)
        return Layout(
            coordinates=places[:, None],
            kinds=(self.kinds[level],),
            orders=(places,),
            reduces=self.reduces_inside and level == 0,
            reduce_efficiency=self.reduce_efficiency,
        )

    def share(self, level: int) -> float:
        """What is left of the size when all levels inside have scattered it."""
        return 1 / prod(self.sizes[:level])

    def everywhere(self, steps: list[FlowStep], level: int, scale: float) -> list[FlowStep]:
        """Steps of one subgroup of a level, done by all of them at once on `scale` of the size."""
        groups = self.groups(level)
        return [
            FlowStep(
                sources=groups[:, step.sources].reshape(-1),
                destinations=groups[:, step.destinations].reshape(-1),
                fraction=np.tile(step.fraction, len(groups)) * scale
                if isinstance(step.fraction, np.ndarray)
                else step.fraction * scale,
                repeat=step.repeat,
                level=level,
            )
            for step in (each.listed for each in steps)
        ]


def levels_of(layout: Layout) -> Levels | None:
    """The grid that a group forms along the axes on which its members differ; None if irregular.

    Regular means that every block of an axis holds as many blocks of the axis inside it, not that
    these have the same coordinates.
    """
    order = np.lexsort(layout.coordinates.T)
    ordered = layout.coordinates[order]
    ends = np.ones(len(order), dtype=bool)
    shape, kinds, blocks = [], [], 1
    ends[1:] = False
    for axis in reversed(range(len(layout.kinds))):
        ends[1:] |= np.diff(ordered[:, axis]) != 0
        starts = np.flatnonzero(ends)
        if len(distinct(np.diff([*starts, len(order)]))) > 1 or len(starts) % blocks:
            return None
        if len(starts) > blocks:
            shape.append(len(starts) // blocks)
            kinds.append(layout.kinds[axis])
            blocks = len(starts)
    innermost = len(layout.kinds) > 0 and np.ptp(layout.coordinates[:, 0]) > 0
    return Levels(
        grid=order.reshape(shape).astype(np.int64),
        kinds=tuple(reversed(kinds)),
        reduces_inside=layout.reduces_inside and bool(innermost),
        reduce_efficiency=layout.reduce_efficiency,
    )
