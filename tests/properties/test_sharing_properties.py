"""Max-min levels of random networks: what defines them, and a second way to find them."""

from dataclasses import dataclass
from math import inf

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, strategies as st
from scipy.optimize import linprog

from stepsim.base.arrays import Floats
from stepsim.network.fair_rates import fair_levels

TOLERANCE = 1e-9
LOADS = st.sampled_from([1.0, 1.0, 1.0, 2.0, 3.0, 0.5, 0.25, 17.0])
CAPACITIES = st.sampled_from([1.0, 2.0, 10.0, 47e9, 450e9, 370.8e9, 1e-3]) | st.integers(1, 100)


@dataclass(frozen=True, kw_only=True)
class Case:
    """`loads[t, l]` is what transfer t puts on link l, 0 where it does not cross it."""

    loads: Floats
    capacity: Floats

    def levels(self, order: np.ndarray[tuple[int], np.dtype[np.intp]] | None = None) -> Floats:
        """Max-min levels, rows of the crossings in another order if one is given."""
        transfer, link = np.nonzero(self.loads)
        if order is not None:
            transfer, link = transfer[order], link[order]
        rows = transfer.astype(np.int64), link.astype(np.int64), self.loads[transfer, link]
        return fair_levels(*rows, self.capacity, len(self.loads))


@st.composite
def cases(
    draw: st.DrawFn, most: int = 12, capacities: st.SearchStrategy[float] = CAPACITIES
) -> Case:
    """Up to `most` transfers on as many links; a few cross nothing."""
    transfers, links = draw(st.integers(1, most)), draw(st.integers(1, most))
    loads = np.zeros((transfers, links))
    for row in loads:
        for link in draw(st.lists(st.integers(0, links - 1), max_size=4, unique=True)):
            row[link] = draw(LOADS)
    capacity = [draw(capacities) for _ in range(links)]
    return Case(loads=loads, capacity=np.array(capacity, dtype=np.float64))


def carried(case: Case, levels: Floats) -> Floats:
    """What crosses each link; infinite levels cross none."""
    rates: Floats = np.where(np.isfinite(levels), levels, 0) @ case.loads
    return rates


@given(cases())
def test_no_link_carries_more_than_it_can(case: Case) -> None:
    levels = case.levels()
    assert (levels > 0).all()
    assert (carried(case, levels) <= case.capacity * (1 + TOLERANCE)).all()


@given(cases(capacities=CAPACITIES | st.just(inf)))
def test_every_transfer_has_a_bottleneck(case: Case) -> None:
    """A full link that it crosses, on which nobody has a higher level."""
    levels = case.levels()
    full = carried(case, levels) >= case.capacity * (1 - TOLERANCE)
    for transfer, level in enumerate(levels.tolist()):
        crossed = np.flatnonzero(case.loads[transfer])
        if not np.isfinite(case.capacity[crossed]).any():
            assert level == inf
            continue
        assert any(
            full[link] and levels[case.loads[:, link] > 0].max() <= level * (1 + TOLERANCE)
            for link in crossed
        )


@given(cases(), st.integers(0, 2**32 - 1))
def test_the_order_of_rows_links_and_transfers_changes_no_digit(case: Case, seed: int) -> None:
    generator = np.random.default_rng(seed)
    levels = case.levels()
    rows = generator.permutation(np.count_nonzero(case.loads))
    assert (case.levels(rows) == levels).all()
    links = generator.permutation(len(case.capacity))
    renumbered = Case(loads=case.loads[:, links], capacity=case.capacity[links])
    assert (renumbered.levels() == levels).all()
    transfers = generator.permutation(len(case.loads))
    renamed = Case(loads=case.loads[transfers], capacity=case.capacity)
    assert (renamed.levels() == levels[transfers]).all()


@given(cases(), st.integers(-20, 20), st.floats(0.1, 10))
def test_levels_scale_with_the_links_and_against_the_loads(
    case: Case, power: int, factor: float
) -> None:
    levels = case.levels()
    faster = Case(loads=case.loads, capacity=case.capacity * 2.0**power)
    assert (faster.levels() == levels * 2.0**power).all()
    heavier = Case(loads=case.loads * factor, capacity=case.capacity)
    assert heavier.levels() == pytest.approx(levels / factor, rel=TOLERANCE)


@given(cases(), st.integers(2, 5))
def test_equal_transfers_are_one_of_their_load(case: Case, copies: int) -> None:
    """What folding relies on."""
    apart = Case(
        loads=np.concatenate([case.loads[:1]] * copies + [case.loads[1:]]), capacity=case.capacity
    )
    loads = case.loads.copy()
    loads[0] *= copies
    together = Case(loads=loads, capacity=case.capacity).levels()
    expected = np.concatenate([together[:1]] * copies + [together[1:]])
    assert (apart.levels() == expected).all()


@given(cases(most=6), cases(most=6))
def test_separate_networks_do_not_touch_each_other(one: Case, other: Case) -> None:
    apart = np.concatenate((one.levels(), other.levels()))
    loads = np.zeros((len(apart), len(one.capacity) + len(other.capacity)))
    loads[: len(one.loads), : len(one.capacity)] = one.loads
    loads[len(one.loads) :, len(one.capacity) :] = other.loads
    both = Case(loads=loads, capacity=np.concatenate((one.capacity, other.capacity)))
    assert (both.levels() == apart).all()


@given(cases(), st.integers(0, 11))
def test_one_transfer_fewer_never_lowers_the_lowest_level(case: Case, gone: int) -> None:
    """Others may lose: what one gains on a link it takes from them on the next."""
    rest = np.delete(case.loads, gone % len(case.loads), axis=0)
    lowest = case.levels().min()
    assert Case(loads=rest, capacity=case.capacity).levels().min(initial=inf) >= lowest * (
        1 - TOLERANCE
    )


def lexicographic(case: Case) -> Floats:
    """The highest lowest level, then the highest second lowest, and so on, by linear programs.

    Each round raises the levels that are not fixed as far as all of them go, then fixes those that
    cannot go further.
    """
    count = len(case.loads)
    fixed = np.full(count, np.nan)
    while np.isnan(fixed).any():
        left = np.flatnonzero(np.isnan(fixed))
        lowest = highest(case, fixed, 0.0, left)
        stuck = [
            i for i in left if highest(case, fixed, lowest, np.array([i])) <= lowest * (1 + 1e-7)
        ]
        assert stuck
        fixed[stuck] = lowest
    return fixed


def highest(
    case: Case, fixed: Floats, least: float, raised: np.ndarray[tuple[int], np.dtype[np.intp]]
) -> float:
    """The highest level that all of `raised` can have; those not `fixed` have at least `least`."""
    count = len(case.loads)
    limits = np.hstack((case.loads.T, np.zeros((len(case.capacity), 1))))
    above = np.zeros((len(raised), count + 1))
    above[np.arange(len(raised)), raised] = -1
    above[:, -1] = 1
    bounds = [(least, None) if np.isnan(level) else (level, level) for level in fixed.tolist()]
    found = linprog(
        np.array([0.0] * count + [-1.0]),
        A_ub=np.vstack((limits, above)),
        b_ub=np.concatenate((case.capacity, np.zeros(len(raised)))),
        bounds=[*bounds, (0, None)],
    )
    assert found.x is not None, found.message
    return float(found.x[-1])


@examples(60)
@given(
    cases(most=5, capacities=st.integers(1, 20)).filter(lambda case: case.loads.any(axis=1).all())
)
def test_levels_are_those_of_linear_programs(case: Case) -> None:
    assert case.levels() == pytest.approx(lexicographic(case), rel=1e-6)
