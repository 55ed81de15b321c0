"""Transfers in flight on shared links: how fast each goes, and when it will end.

Time is passed in; nothing here waits. A transfer has phases: a latency that uses no link, then
bytes that go at full speed when alone and slower when its links are shared.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from math import ceil

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Bools, Floats, Ints, rows_of
from stepsim.base.structs import Noun
from stepsim.network.fair_rates import fair_levels

_SLACK_PS = 1e-6
_ROUNDING = 2e-12  # of levels, which have 40 bits
_SLOWEST = 1e-12


class TransferPhase(Noun, eq=False):
    """A part of a transfer: `latency_ps` without traffic, then bytes that take `alone_ps` alone.

    `load[i]` flows cross each of `link[i]` while they go, counting those of all transfers that do
    the same at the same time; `own_level` is the rate of one flow, in bytes/s, if only its own
    transfer used the links, `level` if all that do the same do.
    """

    latency_ps: int
    alone_ps: int
    link: Ints
    load: Floats
    own_level: float
    level: float

    @property
    def speed(self) -> float:
        """Share of the speed alone, when nothing else uses the links."""
        return _speed(self.level, self.own_level)

    @property
    def duration_ps(self) -> int:
        """Picoseconds when nothing else uses the links."""
        return self.latency_ps + time_left_ps(self.alone_ps, self.speed)


class Transfer(Noun, eq=False, dict=True):
    """A collective or a message as a sequence of phases."""

    phases: tuple[TransferPhase, ...]

    @cached_property
    def duration_ps(self) -> int:
        """Picoseconds when nothing else uses the links."""
        return sum(phase.duration_ps for phase in self.phases)

    @property
    def alone_ps(self) -> int:
        """Picoseconds when not even those that do the same at the same time use the links."""
        return sum(phase.latency_ps + phase.alone_ps for phase in self.phases)


def _speed(level: float, own_level: float) -> float:
    """Share of the speed alone at a level; never nothing, so that every transfer ends."""
    return min(1.0, max(level / own_level, _SLOWEST)) if own_level < np.inf else 1.0


def time_left_ps(remaining_ps: float, speed: float) -> int:
    """Whole picoseconds until `remaining_ps` of time alone have passed at `speed`."""
    time = remaining_ps / speed
    near = round(time)
    if abs(time - near) <= _SLACK_PS + _ROUNDING * time:
        return max(near, 0)
    return max(ceil(time), 0)


def meeting(transfers: Mapping[int, Transfer], start_ps: Ints, end_ps: Ints) -> Bools:
    """In which cases two transfers are under way at the same time and cross one link.

    `transfers` are those of some nodes. Start and end of all nodes, of shape (nodes, cases), are
    those in which every transfer takes its `duration_ps`.

    Where none meet, these are the times of links that are shared. If they are so until a moment,
    what enters a link at this moment finds none on it but those that end now, or take no time:
    these are gone before time passes. It then has its links to itself, goes at the `speed` of its
    phase and ends after its `duration_ps`. So times are the same until the next moment, too.

    For example transfers from 0 to 5 and 5 to 9 do not meet, from 0 to 5 and 4 to 9 they do.
    """
    users: dict[int, set[int]] = defaultdict(set)
    for node, transfer in transfers.items():
        for link in {link for phase in transfer.phases for link in phase.link.tolist()}:
            users[link].add(node)
    found = np.zeros(start_ps.shape[1], bool)
    for nodes in {tuple(sorted(several)) for several in users.values()}:
        begin, until = start_ps.take(nodes, axis=0), end_ps.take(nodes, axis=0)
        order = begin.argsort(axis=0, kind="stable")
        begin, until = (np.take_along_axis(times, order, axis=0) for times in (begin, until))
        latest = np.maximum.accumulate(until, axis=0)
        found |= (begin[1:] < latest[:-1]).any(axis=0)
    return found


class _Flight(Struct, kw_only=True):
    """The bytes of one phase on their way: `remaining_ps` of time alone were left at `since_ps`."""

    phase: TransferPhase
    remaining_ps: float
    since_ps: int
    speed: float = 0.0


class Fabric(Struct, kw_only=True):
    """The links, of `capacity` bytes/s, and the flights; these are named by numbers.

    Those that are `touched` have begun, or share a link with one that has ended: `settle` is due.
    """

    capacity: Floats
    touched: set[int] = set()
    _flights: dict[int, _Flight] = {}
    _users: dict[int, set[int]] = {}

    def enter(self, flight: int, phase: TransferPhase, now_ps: int) -> int | None:
        """Begin to send a phase's bytes: when they end, in ps; None if `settle` says it."""
        state = _Flight(phase=phase, remaining_ps=float(phase.alone_ps), since_ps=now_ps)
        self._flights[flight] = state
        users = [self._users.setdefault(link, set()) for link in phase.link.tolist()]
        if any(users):
            self.touched.add(flight)
        for others in users:
            others.add(flight)
        if flight in self.touched:
            return None
        state.speed = phase.speed
        return now_ps + time_left_ps(state.remaining_ps, state.speed)

    def leave(self, flight: int) -> None:
        """End a flight; those that shared its links are faster after `settle`."""
        phase = self._flights.pop(flight).phase
        self.touched.discard(flight)
        for link in phase.link.tolist():
            self._users[link].discard(flight)
            self.touched |= self._users[link]

    def settle(self, now_ps: int) -> Iterator[tuple[int, int]]:
        """(flight, end in ps) of all flights whose speed the last changes have changed."""
        while self.touched:
            flights = sorted(self._reached(min(self.touched)))
            self.touched.difference_update(flights)
            for flight, speed in zip(flights, self._speeds(flights), strict=True):
                state = self._flights[flight]
                if speed != state.speed:
                    state.remaining_ps -= (now_ps - state.since_ps) * state.speed
                    state.since_ps, state.speed = now_ps, speed
                    yield flight, now_ps + time_left_ps(state.remaining_ps, speed)

    def _reached(self, flight: int) -> set[int]:
        """Flights joined to one through shared links: all whose speed may change with it."""
        reached, stack = {flight}, [flight]
        while stack:
            for link in self._flights[stack.pop()].phase.link.tolist():
                for other in self._users[link] - reached:
                    reached.add(other)
                    stack.append(other)
        return reached

    def _speeds(self, flights: list[int]) -> list[float]:
        phases = [self._flights[flight].phase for flight in flights]
        if len(phases) == 1:
            return [phases[0].speed]
        counts = [len(phase.link) for phase in phases]
        links, place = np.unique(
            np.concatenate([phase.link for phase in phases]), return_inverse=True
        )
        crossing = np.repeat(np.arange(len(phases), dtype=np.int64), counts)
        load = np.concatenate([phase.load for phase in phases])
        capacity = self.capacity[links]
        levels = fair_levels(crossing, place, load, capacity, len(phases))
        return [_speed(level, phase.own_level) for level, phase in rows_of(levels, phases)]
