"""Lognormal factors of mean 1, sums and maxima of them: drawn by the inverse distribution.

A lognormal factor of mean 1 and coefficient of variation c is exp of a normal variable of variance
v = ln(1 + c**2) and mean -v / 2 (closed form of its moments). The largest of n factors is below x
where all are: its distribution is the n-th power of one's, so one uniform number draws it.
"""

from math import log, prod, sqrt
from typing import Self

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Bools, Floats

_CELLS = 1 << 16
"""Cells of equal probability: as many as there are numbers of 16 bits."""

_POINTS = 1 << 13
"""Points at which the distribution of one factor is known."""

_POINTS_A_DEVIATION = 256
"""Points of the distribution of a sum; parts that are narrower than one are taken together."""

_WIDEST = 9.0
"""Normal numbers on either side: one in 1e18 is beyond."""

_MOST_VARIATION = 0.2
_MOST_WEIGHTS = 16
"""What sums are tabulated of, in 10 to 100 ms: points are evenly apart, so tails must be near."""


def has_table(variation: float, weights: tuple[float, ...]) -> bool:
    """Whether sums of factors of this variation by these weights can be tabulated."""
    return len(weights) == 1 or (variation <= _MOST_VARIATION and len(weights) <= _MOST_WEIGHTS)


def lognormal(normal: Floats, variation: float) -> Floats:
    """Factors of mean 1 with a coefficient of variation, of standard normal numbers."""
    variance = log(1 + variation**2)
    return np.asarray(np.exp(sqrt(variance) * normal - variance / 2))


class FactorLaw(Struct, frozen=True, kw_only=True, eq=False):
    """A law of factors, to be drawn.

    A draw is the middle of one of 65,536 cells of equal probability, `middles`; one in the first or
    the last cell is drawn again from within the cell, so that tails are those of the law. A draw
    takes 3 ns so, and 20 ns and more by the normal numbers of numpy's generators.
    """

    middles: Floats
    tails: "_Tails"

    @classmethod
    def of(cls, variation: float, weights: tuple[float, ...] = (1.0,), members: int = 1) -> Self:
        """The law of sums of factors of one variation, by their weights.

        They must be such that `has_table` says so.
        """
        values, weight = _sums(variation, weights) if len(weights) > 1 else _one(variation)
        weight /= weight.sum()
        tails = _Tails(
            members=members,
            values=values,
            below=np.cumsum(weight),
            falling=values[-2::-1].copy(),
            above=np.cumsum(weight[:0:-1]),
        )
        shares = (np.arange(_CELLS // 2) + 0.5) / _CELLS
        return cls(tails=tails, middles=np.append(tails.low(shares), tails.high(shares)[::-1]))

    def draw(self, random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """So many independent draws."""
        count = prod(shape)
        cells = random.bit_generator.random_raw(-(-count // 4)).view(np.uint16)[:count]
        drawn = self.middles.take(cells.astype(np.intp), mode="wrap")
        turned = cells + np.uint16(1)
        if turned.min() < 2:
            outer = np.flatnonzero(turned < 2)
            drawn[outer] = self._outer(cells[outer] > 0, random)
        return drawn.reshape(shape)

    def _outer(self, last: Bools, random: np.random.Generator) -> Floats:
        """Draws from within the last cell where `last`, from within the first elsewhere."""
        shares = (1 - random.random(len(last))) / _CELLS
        return np.where(last, self.tails.high(shares), self.tails.low(shares))


class _Tails(Struct, frozen=True, kw_only=True, eq=False):
    """The largest of `members` values: one is at most `values` in the shares `below` of all cases.

    It is more than `falling`, all values but the largest, in the shares `above`. Shares ascend.
    """

    members: int
    values: Floats
    below: Floats
    falling: Floats
    above: Floats

    def low(self, shares: Floats) -> Floats:
        """What the largest is below in these shares of all cases."""
        return np.interp(shares ** (1 / self.members), self.below, self.values)

    def high(self, shares: Floats) -> Floats:
        """What the largest is above in these shares of all cases."""
        one = -np.expm1(np.log1p(-shares) / self.members)
        return np.interp(one, self.above, self.falling)


def _one(variation: float) -> tuple[Floats, Floats]:
    """Values of a factor, ascending, and how likely it is from the one before to each."""
    normal: Floats = np.linspace(-_WIDEST, _WIDEST, _POINTS)
    half = _WIDEST / (_POINTS - 1)
    return lognormal(normal + half, variation), np.exp(-(normal**2) / 2)


def _sums(variation: float, weights: tuple[float, ...]) -> tuple[Floats, Floats]:
    """As `_one`, of the sum of factors by their weights: densities are folded into each other."""
    apart = variation * sqrt(sum(weight**2 for weight in weights)) / _POINTS_A_DEVIATION
    wide = [weight for weight in weights if weight * variation >= apart]
    narrow = sqrt(max(0.0, sum(weight**2 for weight in weights) - sum(w**2 for w in wide)))
    if narrow * variation >= apart:
        wide.append(narrow)
    variance, lowest, density = log(1 + variation**2), sum(weights) - sum(wide), np.ones(1)
    for weight in wide:
        first, last = weight * lognormal(np.array([-_WIDEST, _WIDEST]), variation)
        value = np.arange(first, last + apart, apart)
        normal = (np.log(value / weight) + variance / 2) / sqrt(variance)
        density = np.convolve(density, np.exp(-(normal**2) / 2) / value)
        density /= density.sum()
        lowest += first
    values: Floats = lowest + apart * (np.arange(len(density), dtype=np.float64) + 0.5)
    return values, density
