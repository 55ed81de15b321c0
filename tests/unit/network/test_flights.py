"""Transfers in flight: how long they take when they meet, each case computed by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from fluid import levels
from hypothesis import given, strategies as st

from stepsim.base.arrays import Floats
from stepsim.network.fair_rates import rounded
from stepsim.network.flights import (
    Fabric,
    Transfer,
    TransferPhase,
    meeting,
    time_left_ps,
)


def phase(
    alone_ps: int,
    loads: dict[int, float],
    capacity: Sequence[float] = (1e9, 1e9, 1e9),
    *,
    latency_ps: int = 0,
    copies: int = 1,
) -> TransferPhase:
    """Flows per link; `copies` transfers that do the same at the same time."""
    rates = np.array([capacity[link] for link in loads])
    load = np.array(list(loads.values()), dtype=np.float64)
    return TransferPhase(
        latency_ps=latency_ps,
        alone_ps=alone_ps,
        link=np.array(list(loads), dtype=np.int64),
        load=load * copies,
        own_level=_level(load, rates),
        level=_level(load * copies, rates),
    )


def _level(load: Floats, capacity: Floats) -> float:
    """Rate of a flow when such loads share the links; infinite without links."""
    return float(rounded(float((capacity / load).min(initial=inf))))


@dataclass(kw_only=True)
class Clock:
    """Runs a fabric as an engine does, and keeps what it said."""

    fabric: Fabric
    now: int = 0
    forecasts: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)

    def run(self, until: float = inf) -> None:
        """Let flights end up to a time."""
        self.settle()
        while self.forecasts and min(self.forecasts.values()) <= until:
            self.now = min(self.forecasts.values())
            for flight in [f for f, end in self.forecasts.items() if end == self.now]:
                self.ended[flight] = self.now
                del self.forecasts[flight]
                self.fabric.leave(flight)
            self.settle()

    def enter(self, flight: int, each: TransferPhase, now: int) -> None:
        self.run(until=now)
        self.now = now
        end = self.fabric.enter(flight, each, now)
        if end is not None:
            self.forecasts[flight] = end

    def settle(self) -> None:
        self.forecasts.update(self.fabric.settle(self.now))


def ends(
    *flights: tuple[int, TransferPhase], capacity: Sequence[float] = (1e9, 1e9, 1e9)
) -> list[int]:
    """Ends of flights that enter at these times, ascending."""
    time = Clock(fabric=Fabric(capacity=np.array(capacity)))
    for number, (now, each) in enumerate(flights):
        time.enter(number, each, now)
    time.run()
    return [time.ended[number] for number in range(len(flights))]


ONE = phase(1_000, {0: 1})


@pytest.mark.parametrize("flights", [2, 4, 5, 10])
def test_equal_flights_on_one_link_share_it(flights: int) -> None:
    assert ends(*[(0, ONE)] * flights) == [flights * 1_000] * flights


def test_three_in_a_chain_of_arrivals() -> None:
    """At 0, 300 and 600.

    The first has 700 left at 300, 550 at 600, then a third of the speed: it would end at 2250. The
    second has 850 left at 600, 300 at 2250, then half the speed: until 2850. The third has 450 left
    at 2250, 150 at 2850, alone until 3000.
    """
    assert ends((0, ONE), (300, ONE), (600, ONE)) == [2_250, 2_850, 3_000]


def test_only_who_is_slowed_or_freed_is_forecast_anew() -> None:
    """Flights 2 and 3 share link 1; flight 1 joins 2 on link 0, which is twice as wide.

    Link 1 leaves 2 only a quarter of link 0, so 1 gets three quarters and 2 goes on as before. When
    3 has left, 2 and 1 have half of link 0 each.
    """
    capacity = (2e9, 1e9)
    fabric = Fabric(capacity=np.array(capacity))
    fabric.enter(2, phase(1_000, {0: 1, 1: 1}, capacity), 0)
    fabric.enter(3, phase(1_000, {1: 1}, capacity), 0)
    assert list(fabric.settle(0)) == [(2, 2_000), (3, 2_000)]
    fabric.enter(1, phase(1_500, {0: 1}, capacity), 1_000)
    assert list(fabric.settle(1_000)) == [(1, 1_000 + 2_000)]
    fabric.leave(3)
    assert list(fabric.settle(1_000)) == [(1, 1_000 + 3_000), (2, 1_000 + 500)]


def test_who_enters_and_leaves_at_once_slows_nobody() -> None:
    fabric = Fabric(capacity=np.array([1e9]))
    assert fabric.enter(1, ONE, 0) == 1_000
    assert fabric.enter(2, ONE, 100) is None
    fabric.leave(2)
    assert list(fabric.settle(100)) == []


def test_a_flight_without_bytes_ends_where_it_begins() -> None:
    assert ends((0, ONE), (100, phase(0, {0: 1})), (100, ONE)) == [1_900, 100, 2_000]


def test_a_flight_on_no_link_is_never_slowed() -> None:
    assert ends((0, phase(700, {})), (0, ONE), (0, ONE)) == [700, 2_000, 2_000]


def test_many_flows_against_one() -> None:
    """An all-to-all of three flows and a message: four shares.

    Alone three flows have a third each, now a quarter: 3/4 of the speed. The message has 1/4: it
    ends after 800, when the others have done 600 of 900.
    """
    assert ends((0, phase(900, {0: 3})), (0, phase(200, {0: 1}))) == [1_100, 800]


def test_a_flight_goes_as_fast_as_its_slowest_link_alone() -> None:
    """On a link of 1 GB/s it leaves three of four shares of the other link to one more."""
    capacity = (1e9, 4e9)
    flights = (0, phase(1_000, {0: 1, 1: 1}, capacity)), (0, phase(3_000, {1: 1}, capacity))
    # alone the second has 4 GB/s: 3000 ps; beside the first 3 GB/s until 1000 ps, 2250 left.
    assert ends(*flights, capacity=capacity) == [1_000, 3_250]


def test_copies_of_a_transfer_are_slowed_by_each_other() -> None:
    """What a folded flight stands for: alone on its links, yet k of them."""
    folded = phase(1_000, {0: 1}, copies=4, latency_ps=70)
    assert folded.speed == 0.25
    assert folded.duration_ps == 70 + 4_000
    assert ends((0, folded)) == [4_000]
    assert ends((0, folded), (0, phase(100, {0: 1}))) == [4_100, 500]


def test_a_transfer_is_the_sum_of_its_phases() -> None:
    phases = phase(100, {0: 1}, latency_ps=7), phase(50, {0: 2}, copies=2, latency_ps=3)
    assert Transfer(phases=phases).duration_ps == 7 + 100 + 3 + 100
    assert Transfer(phases=()).duration_ps == 0


@pytest.mark.parametrize(("left", "speed", "takes"), [(10, 1, 10), (10, 0.3, 34), (0, 0.1, 0)])
def test_time_left_is_rounded_up(left: float, speed: float, takes: int) -> None:
    assert time_left_ps(left, speed) == takes


def test_last_digits_do_not_cost_a_picosecond() -> None:
    assert time_left_ps(0.1 + 0.2, 0.3) == 1
    assert time_left_ps(3 * (1 - 1e-12), 1.0) == time_left_ps(3 * (1 + 1e-12), 1.0) == 3
    assert time_left_ps(-1e-9, 0.5) == 0


CAPACITY = (1e9, 3e9, 7e9)
PHASES = st.builds(
    phase,
    st.integers(0, 10**7),
    st.dictionaries(st.integers(0, 2), st.sampled_from([1.0, 2.0, 0.5, 5.0]), max_size=3),
    st.just(CAPACITY),
)


@given(st.lists(st.tuples(st.integers(0, 10**7), PHASES), min_size=1, max_size=6))
def test_speed_times_time_is_the_time_alone(flights: list[tuple[int, TransferPhase]]) -> None:
    """Speeds are found by another program; ends are rounded up to whole picoseconds."""
    flights.sort(key=lambda each: each[0])
    ended = ends(*flights, capacity=CAPACITY)
    done = [0.0] * len(flights)
    for begin, end in pairwise(sorted({*ended, *(now for now, _ in flights)})):
        going = [i for i, (now, _) in enumerate(flights) if now <= begin < ended[i]]
        crossed = [dict(zip(f.link.tolist(), f.load.tolist(), strict=True)) for _, f in flights]
        found = levels([crossed[i] for i in going], dict(enumerate(CAPACITY)))
        for i, level in zip(going, found, strict=True):
            own = flights[i][1].own_level
            done[i] += (end - begin) * (level / own if own < inf else 1)
    assert done == pytest.approx([each.alone_ps for _, each in flights], rel=1e-9, abs=1.5)


def test_transfers_meet_that_cross_one_link_at_the_same_time() -> None:
    """Nodes 0 and 1 cross link 0, node 2 link 1 alone; node 3 is no transfer."""
    both, other = Transfer(phases=(ONE,)), Transfer(phases=(phase(1_000, {1: 1}),))
    start = np.array([[0, 0, 5, 5], [5, 4, 0, 7], [0, 0, 0, 0], [0, 0, 0, 0]])
    end = np.array([[5, 5, 9, 9], [9, 9, 5, 7], [9, 9, 9, 9], [9, 9, 9, 9]])
    assert meeting({0: both, 1: both, 2: other}, start, end).tolist() == [False, True, False, True]
    assert not meeting({0: both, 2: other}, start, end).any()
