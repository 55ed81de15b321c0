"""Laws of factors by tables: those of lognormal numbers drawn one by one, their sums and maxima."""

import numpy as np
import pytest
from helpers import apart

from stepsim.base.arrays import Floats
from stepsim.explore.noise.factors import FactorLaw, lognormal

DRAWS = 100_000


def one_by_one(variation: float, weights: tuple[float, ...], members: int) -> Floats:
    """The same by numpy's normal numbers."""
    random = np.random.default_rng(1)
    parts = [lognormal(random.standard_normal((members, DRAWS)), variation) for _ in weights]
    whole = np.sum([w * part for w, part in zip(weights, parts, strict=True)], axis=0)
    return np.asarray(whole.max(axis=0))


@pytest.mark.parametrize(
    ("variation", "weights", "members"),
    [
        (0.02, (1.0,), 1),
        (0.1, (1.0,), 8),
        (5.0, (1.0,), 3),
        (0.02, (0.2, 0.3, 0.5), 1),
        (0.2, (0.9, 0.1), 1),
        (0.1, (1e-12, 0.5, 1e-9, 0.5, 1e-11), 8),
        (0.1, (0.5, *[0.001] * 10), 2),
    ],
)
def test_draws_have_the_law(variation: float, weights: tuple[float, ...], members: int) -> None:
    law = FactorLaw.of(variation, weights, members)
    drawn = law.draw(np.random.default_rng(2), (DRAWS // 100, 100))
    assert drawn.shape == (DRAWS // 100, 100)
    assert apart(drawn, one_by_one(variation, weights, members)) < 1.63  # one in a hundred is above


def test_tails_go_on_beyond_the_cells() -> None:
    """Of 65,536 cells the last begins at 4.2 deviations; one of 10 million draws is beyond 5.3."""
    law = FactorLaw.of(0.05)
    drawn = np.log(law.draw(np.random.default_rng(3), (10_000_000,)))
    deviation = np.sqrt(np.log(1 + 0.05**2))
    normal = drawn / deviation + deviation / 2
    assert (np.abs(normal) > 4.5).sum() == pytest.approx(68, abs=35)  # 6.8e-6 of them
    assert 4.9 < normal.max() < 6.5
    assert 4.9 < -normal.min() < 6.5


def test_means_and_deviations_are_those_of_the_law() -> None:
    law = FactorLaw.of(0.1, (0.25, 0.75))
    drawn = law.draw(np.random.default_rng(4), (1_000_000,))
    assert drawn.mean() == pytest.approx(1, abs=4e-4)
    assert drawn.std() == pytest.approx(0.1 * (0.25**2 + 0.75**2) ** 0.5, rel=4e-3)
