"""Max-min levels: the worked cases of textbooks, each computed by hand."""

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest

from stepsim.network.fair_rates import fair_levels, rounded


def levels(transfers: Sequence[dict[int, float]], *capacity: float) -> list[float]:
    """Levels of transfers given as {link: load}."""
    rows = [(i, link, load) for i, each in enumerate(transfers) for link, load in each.items()]
    transfer, link, load = zip(*rows, strict=True) if rows else ((), (), ())
    found: list[float] = fair_levels(
        np.array(transfer, dtype=np.int64),
        np.array(link, dtype=np.int64),
        np.array(load, dtype=np.float64),
        np.array(capacity),
        len(transfers),
    ).tolist()
    return found


def crossing(*links: int) -> dict[int, float]:
    """A transfer of one flow over these links."""
    return dict.fromkeys(links, 1.0)


def test_bertsekas_and_gallager() -> None:
    """Data Networks, 2nd ed., section 6.5.2: five sessions, all links of capacity 1.

    Link (2,3) carries sessions 2, 3 and 5: a third each. Link (3,5) carries 1 and 5: 5 has its
    third, so 1 gets the other two. Link (4,5) is session 4's own. Link (1,3) has room left.
    """
    l13, l23, l35, l45 = range(4)
    sessions = [
        crossing(l13, l35),
        crossing(l23),
        crossing(l23),
        crossing(l45),
        crossing(l23, l35),
    ]
    assert levels(sessions, 1, 1, 1, 1) == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1, 1 / 3], rel=1e-11)


def test_parking_lot_that_fills_up() -> None:
    """Link k carries the long session and k + 1 of its own, all of capacity 12.

    The last link (3 of its own) stops the long one at 12 / 4 = 3. The others share what is left:
    9 for the one on the first link, 9 / 2 for each of the two on the second.
    """
    sessions = [crossing(0, 1, 2)] + [crossing(k) for k in range(3) for _ in range(k + 1)]
    assert levels(sessions, 12, 12, 12) == [3, 9, 4.5, 4.5, 3, 3, 3]


def test_a_chain_of_bottlenecks() -> None:
    """Each link frees a share for the next: 1/2 of 1, then 2 - 1/2, then 4 - 3/2."""
    sessions = [crossing(0), crossing(0, 1), crossing(1, 2), crossing(2)]
    assert levels(sessions, 1, 2, 4) == [0.5, 0.5, 1.5, 2.5]


def test_a_transfer_of_many_flows_has_as_many_shares() -> None:
    """Three flows against one: the link of 8 is cut in four, and the transfer carries 3 * 2."""
    assert levels([{0: 3.0}, {0: 1.0}], 8) == [2, 2]


def test_loads_differ_from_link_to_link() -> None:
    """Two flows on link 0 (capacity 6), half a flow on link 1 (capacity 2), one other on each.

    Link 0 stops at 6 / 3 = 2. Link 1 has 2 - 0.5 * 2 left for its other one: 1, which it would
    have reached at 2 / 1.5 = 1.33 had both gone on, so link 1 stops first: both have 4 / 3 there,
    and link 0 leaves 6 - 2 * 4 / 3 = 10 / 3 to its other one.
    """
    found = levels([{0: 2.0, 1: 0.5}, {0: 1.0}, {1: 1.0}], 6, 2)
    assert found == pytest.approx([4 / 3, 10 / 3, 4 / 3], rel=1e-11)


def test_links_that_never_fill() -> None:
    """An infinite link limits nobody; who crosses no other is not limited at all."""
    assert levels([crossing(0, 1), crossing(0)], inf, 3) == [3, inf]
    assert levels([crossing(0), crossing(0)], inf) == [inf, inf]


def test_who_crosses_nothing_is_not_limited() -> None:
    assert levels([]) == []
    assert levels([], 1.0) == []
    assert levels([{}, crossing(0), {}], 5) == [inf, 5, inf]


def test_many_flows_leave_a_lone_one_its_share() -> None:
    """A million flows and one: the last digits of the shares do not leave it without any."""
    crowd = {0: 1e6, 1: 1e6}
    found = levels([crowd, crossing(0), crossing(1)], 1e9 + 1e3, 3e9)
    assert found == pytest.approx([999.999998, 999.999998, 3e9 - 1e6 * 999.999998], rel=1e-6)


@pytest.mark.parametrize("value", [0.0, inf, 1.0, 0.5, 3.0, 50e9, 2.0**-30, 1e9])
def test_short_numbers_are_kept(value: float) -> None:
    assert rounded(value) == value


@pytest.mark.parametrize("value", [1 / 3, 4.5e11 / 7, 1e-300 / 3, 0.1 + 0.2])
def test_long_numbers_lose_their_last_digits(value: float) -> None:
    """Half a unit in the last of 40 bits at most, and the next numbers give the same."""
    near = rounded(value)
    assert near == pytest.approx(value, rel=2.0**-40)
    assert rounded(near) == near
    assert (
        rounded(float(np.nextafter(value, inf))) == rounded(float(np.nextafter(value, 0))) == near
    )
