"""Links and what a set of flows puts on them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepsim.errors import TopologyError
from stepsim.units import MAX_INT64

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Part = tuple[Ints, Floats]
"""Link numbers and what is put on each; a link may occur several times."""

_SPARSE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkClass:
    """Links that are alike: bandwidth in bytes/s per direction, latency in ps of one hop.

    `endpoint_latency_ps` (software and NIC) is paid once per message that crosses the class;
    `efficiency` is the share of the bandwidth that payload gets.
    """

    name: str
    bandwidth: float
    latency_ps: int = 0
    endpoint_latency_ps: int = 0
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise TopologyError(f"{self.name}: bandwidth is {self.bandwidth}: it must be positive")
        if not 0 < self.efficiency <= 1:
            raise TopologyError(f"{self.name}: efficiency is {self.efficiency}: expected 0 to 1")
        if min(self.latency_ps, self.endpoint_latency_ps) < 0:
            raise TopologyError(f"{self.name}: a latency is negative")

    @property
    def capacity(self) -> float:
        """Payload bytes per second per direction."""
        return self.bandwidth * self.efficiency


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a set of simultaneous flows puts on the links.

    `links` are the distinct links crossed, ascending, and `loads` the flow weights (or shares of
    them, where a flow spreads) that cross each. `hops[p, c]` is the number of links of class c on
    the p-th distinct kind of path.
    """

    links: Ints
    loads: Floats
    hops: Ints


def sum_loads(parts: Sequence[Part], hops: Ints) -> Load:
    """Load of (links, loads) that may name a link several times; `hops` has a row per flow."""
    links, loads = add_up(parts)
    return Load(links=links, loads=loads, hops=distinct_rows(hops))


def add_up(parts: Sequence[Part]) -> Part:
    """The distinct numbers of all parts, ascending, and the sum of each one's values."""
    numbers = np.concatenate([np.zeros(0, dtype=np.int64), *(numbers for numbers, _ in parts)])
    values = np.concatenate([np.zeros(0), *(values for _, values in parts)])
    if not numbers.size:
        return numbers, values
    first = int(numbers.min())
    span = int(numbers.max()) - first + 1
    if span > _SPARSE * numbers.size:
        distinct, place = np.unique(numbers, return_inverse=True)
        return distinct, totals(place, values, len(distinct))
    present = np.flatnonzero(np.bincount(numbers - first, minlength=span)).astype(np.int64)
    return present + first, totals(numbers - first, values, span)[present]


def totals(places: Ints, values: Floats, size: int) -> Floats:
    """Sum of the values at each place from 0 to size - 1."""
    sums: Floats = np.bincount(places, values, size).astype(np.float64)
    return sums


def distinct_rows(rows: Ints) -> Ints:
    """Distinct rows of non-negative numbers, ascending: each row is told by one number."""
    if not rows.size:
        return np.unique(rows, axis=0)
    sizes = [int(most) + 1 for most in rows.max(axis=0)]
    code, room = np.zeros(len(rows), dtype=np.int64), 1
    for column, size in enumerate(sizes):
        room *= size
        if room > MAX_INT64:
            return np.unique(rows, axis=0)
        code = code * size + rows[:, column]
    if room <= _SPARSE * len(code):
        distinct = np.flatnonzero(np.bincount(code, minlength=room))
    else:
        distinct = np.unique(code)
    return np.stack(np.unravel_index(distinct, sizes), axis=1).astype(np.int64)
