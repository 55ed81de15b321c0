"""Lognormal factors of mean 1, and the largest of several: drawn by the inverse distribution.

A lognormal factor of mean 1 and coefficient of variation c is exp of a normal variable of variance
v = ln(1 + c**2) and mean -v / 2 (closed form of its moments). The largest of n factors is below x
where all are: its distribution is the n-th power of one's, so one uniform number draws it.
"""

from collections.abc import Iterable
from math import expm1, log, log1p, prod, sqrt
from statistics import NormalDist
from typing import Self

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats

_CELLS = 1 << 16
"""Cells of equal probability: as many as there are numbers of 16 bits."""


def lognormal(normal: Floats, variation: float) -> Floats:
    """Factors of mean 1 with a coefficient of variation, of standard normal numbers."""
    variance = log(1 + variation**2)
    return np.asarray(np.exp(sqrt(variance) * normal - variance / 2))


class FactorLaw(Struct, frozen=True, kw_only=True, eq=False):
    """The largest of `members` factors with a coefficient of variation, to be drawn.

    A draw is the middle of one of 65,536 cells of equal probability, `middles`; one in the first or
    the last cell is drawn again from within the cell, so that tails are those of the law. A draw
    takes 2 ns so and 25 ns by the normal numbers of numpy's generators.
    """

    variation: float
    members: int
    middles: Floats

    @classmethod
    def of(cls, variation: float, members: int = 1) -> Self:
        """The law of so many members."""
        below = [(cell + 0.5) / _CELLS for cell in range(_CELLS // 2)]
        normal = [*_normal(below, members), *reversed(_normal_from_above(below, members))]
        return cls(
            variation=variation, members=members, middles=lognormal(np.array(normal), variation)
        )

    def draw(self, random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """So many independent draws."""
        count = prod(shape)
        cells = random.bit_generator.random_raw(-(-count // 4)).view(np.uint16)[:count]
        drawn = self.middles.take(cells.astype(np.intp), mode="wrap")
        outer = np.flatnonzero(cells + np.uint16(1) < 2)
        if len(outer):
            drawn[outer] = self._outer(cells[outer] > 0, random)
        return drawn.reshape(shape)

    def _outer(self, last: "np.ndarray[tuple[int], np.dtype[np.bool_]]", random: np.random.Generator) -> Floats:
        """Draws from within the last cell where `last`, from within the first elsewhere."""
        shares = (1 - random.random(len(last))) / _CELLS
        normal = np.empty(len(last))
        normal[last] = _normal_from_above(shares[last].tolist(), self.members)
        normal[~last] = _normal(shares[~last].tolist(), self.members)
        return lognormal(normal, self.variation)


def _normal(shares: Iterable[float], members: int) -> list[float]:
    """What the largest of so many normal numbers is below in these shares of all cases."""
    inverse, power = NormalDist().inv_cdf, 1 / members
    return [inverse(share**power) for share in shares]


def _normal_from_above(shares: Iterable[float], members: int) -> list[float]:
    """What the largest of so many normal numbers is above in these shares of all cases."""
    inverse = NormalDist().inv_cdf
    return [-inverse(-expm1(log1p(-share) / members)) for share in shares]
