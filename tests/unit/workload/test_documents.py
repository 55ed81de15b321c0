"""Lengths of documents: laws keep their bounds and moments, and are read as they are written."""

from math import exp

import numpy as np
import pytest

from stepsim.base.errors import PlanError
from stepsim.workload.documents import (
    Fixed,
    ListedLengths,
    Lognormal,
    Mixture,
    Pareto,
    SiblingLengths,
    Uniform,
    parse_lengths,
)

COUNT = 200_000


def random() -> np.random.Generator:
    return np.random.default_rng(5)


def test_a_lognormal_law_has_its_mean() -> None:
    drawn = Lognormal(mu=5, sigma=0.5).draw(random(), COUNT)
    assert drawn.mean() == pytest.approx(exp(5 + 0.5**2 / 2), rel=0.01)


def test_draws_outside_the_bounds_move_to_the_edge() -> None:
    drawn = Lognormal(mu=5, sigma=1, least=16, most=1024).draw(random(), COUNT)
    assert drawn.min() == 16
    assert drawn.max() == 1024
    # the mean that the source of this law prints: 234.9 of 1,600 draws (transformers PR 47340)
    assert drawn.mean() == pytest.approx(234.9, rel=0.03)


def test_a_pareto_law_has_its_tail() -> None:
    drawn = Pareto(shape=1.5, least=100).draw(random(), COUNT)
    assert drawn.min() == 100
    assert (drawn > 400).mean() == pytest.approx(4**-1.5, rel=0.03)


def test_a_uniform_law_reaches_both_ends() -> None:
    drawn = Uniform(least=3, most=6).draw(random(), COUNT)
    assert np.bincount(drawn)[3:] / COUNT == pytest.approx([0.25] * 4, rel=0.02)


def test_a_mixture_draws_by_weight() -> None:
    law = Mixture(weights=(3.0, 1.0), laws=(Fixed(length=10), Fixed(length=1000)))
    assert (law.draw(random(), COUNT) == 1000).mean() == pytest.approx(0.25, rel=0.02)


def test_a_list_is_drawn_in_whole_rounds() -> None:
    drawn = ListedLengths(lengths=(1, 2, 3)).draw(random(), 6)
    assert sorted(drawn[:3]) == sorted(drawn[3:]) == [1, 2, 3]


def test_siblings_are_alike() -> None:
    law = SiblingLengths(law=Lognormal(mu=6, sigma=1), count=8, spread=0.1)
    families = np.log(law.draw(random(), 8000)).reshape(-1, 8)
    assert families.std(axis=1).mean() < 0.15
    assert families.mean(axis=1).std() > 0.9


def test_equal_seeds_draw_equal_lengths() -> None:
    law = parse_lengths(
        "0.9 lognormal(mu=6, sigma=1, siblings=4, spread=0.2) + 0.1 fixed(length=9)"
    )
    assert (law.draw(random(), 100) == law.draw(random(), 100)).all()


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("lognormal(mu=5, sigma=1, most=64)", Lognormal(mu=5, sigma=1, most=64)),
        (
            "3 fixed(length=1) + pareto(shape=2, least=8)",
            Mixture(weights=(3, 1), laws=(Fixed(length=1), Pareto(shape=2, least=8))),
        ),
        (
            "fixed(length=7, siblings=4, spread=0.5)",
            SiblingLengths(law=Fixed(length=7), count=4, spread=0.5),
        ),
    ],
)
def test_laws_are_read_as_they_are_written(text: str, law: object) -> None:
    assert parse_lengths(text) == law


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("normal(mu=5)", "law of lengths is 'normal': expected one of lognormal, pareto"),
        ("lognormal(mu=5)", "lognormal: sigma is missing"),
        ("lognormal(mu=5, sigma=x)", "lognormal has 'sigma=x': expected a name"),
        ("fixed(length=0)", "fixed: length is 0: expected 1 to"),
        ("uniform(least=9, most=2)", "lengths are 9 to 2: expected 1 <= least <= most"),
        ("4096", "expected a file of lengths, or a law"),
        ("fixed(length=7.5)", "fixed: length is 7.5: expected a whole number"),
        ("fixed(length=7, spread=0.3)", "spread is 0.3: expected beside siblings"),
        ("pareto(shape=0.05)", "pareto: shape is 0.05: expected a number >= 0.2"),
        ("1.2.3 fixed(length=5)", "lengths are '1.2.3 fixed"),
    ],
)
def test_laws_that_cannot_be_are_refused(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said.replace("(", r"\(")):
        parse_lengths(text)
