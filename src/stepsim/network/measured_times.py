"""Measured times of collectives, and what they say about sizes in between.

A curve holds the times of one collective over one group at ascending sizes. Between two sizes the
time is a monotone cubic in the logarithms of size and time (Fritsch and Butland, SIAM J. Sci. Stat.
Comput. 5, 1984): it passes through the measurements, stays between neighbouring ones, and does not
depend on units.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Annotated

import numpy as np
from msgspec import Meta

from stepsim.base.arrays import Floats, Ints, ints
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import CalibrationError
from stepsim.base.fields import Time
from stepsim.base.structs import Bytes, Names, Noun, TomlTable, replace
from stepsim.base.units import MAX_INT64, format_size_bytes, format_time_ps
from stepsim.network.collectives.flows import bus_factor

_OUTLIER_FACTOR = 1.5
FLOOR_BYTES = 1 << 16
_FLAT, _LINEAR = 1.15, 3.5
_FEWEST = 3

Degree = Annotated[int, Meta(ge=1, le=1 << 24)]


class MeasuredCurve(TomlTable):
    """`[[collective]]`: measured times of a collective over `ranks` ranks in `nodes` nodes.

    `machine` is the hardware and `source` the run; both are free text. Sizes ascend, and mean what
    they do in `CommOp`. Raises CalibrationError for columns that cannot be times.
    """

    machine: str
    source: str
    kind: CollectiveKind
    ranks: Degree
    nodes: Degree
    sizes: tuple[Bytes, ...]
    times_ps: tuple[Time, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= self.ranks:
            raise CalibrationError(
                f"{self.origin}: nodes is {self.nodes}: expected 1 to the {self.ranks} ranks"
            )
        if not self.sizes or len(self.sizes) != len(self.times_ps):
            raise CalibrationError(f"{self.label}: expected as many sizes as times, at least one")
        if self.sizes[0] < 1 or np.any(np.diff(self.sizes) <= 0):
            raise CalibrationError(f"{self.label}: sizes must be above 0 and ascend")
        if min(self.times_ps) < 1:
            raise CalibrationError(f"{self.label}: times must be above 0")

    @property
    def size_bytes(self) -> Ints:
        """Its sizes in bytes."""
        return ints(self.sizes)

    @property
    def time_ps(self) -> Ints:
        """Its times in picoseconds."""
        return ints(self.times_ps)

    @property
    def key(self) -> tuple[str, str, CollectiveKind, int, int]:
        """What no two curves of a table share."""
        return self.machine, self.source, self.kind, self.ranks, self.nodes

    @property
    def origin(self) -> str:
        """Machine and source as one text."""
        return ": ".join(text for text in (self.machine, self.source) if text)

    @property
    def label(self) -> str:
        """What was measured, and where."""
        return f"{group_text(self.kind, self.ranks, self.nodes)} ({self.origin})"

    def bus_bandwidth(self) -> Floats:
        """Bus bandwidth of every size, bytes/s."""
        factor = bus_factor(self.kind, self.ranks)
        speed: Floats = factor * self.size_bytes / self.time_ps * 1e12
        return speed

    def interpolate(self, size_bytes: Ints) -> Floats:
        """Times in ps of sizes within the measured range, not rounded."""
        known = np.log(self.size_bytes), np.log(self.time_ps)
        times: Floats = np.exp(_monotone_cubic(*known, np.log(size_bytes)))
        return times

    def duration_ps(self, size_bytes: int) -> int | None:
        """Picoseconds for a size, None where the measurements do not reach.

        Below a smallest size of up to 64 KiB its time stands, as latency, if four times the size
        takes at most 15 % longer: NCCL carries small sizes by another protocol, of which a table
        that begins above knows nothing. Above the largest size the time grows with the size, at
        the last bandwidth, if it is at least 3.5 times that of a quarter of the size. Raises
        CalibrationError above 2**63 - 1 ps.
        """
        first, last = self.sizes[0], self.sizes[-1]
        if first <= size_bytes <= last:
            return self._inside_ps(size_bytes)
        if 4 * first > last or size_bytes < 1:
            return None
        start, end = self.times_ps[0], self.times_ps[-1]
        if size_bytes < first:
            flat = first <= FLOOR_BYTES and self._inside_ps(4 * first) <= _FLAT * start
            return start if flat else None
        if end < _LINEAR * self._inside_ps((last + 3) // 4):
            return None
        time = round(end * size_bytes / last)
        if time > MAX_INT64:
            raise CalibrationError(
                f"{self.label}: {size_bytes} bytes take {time:.3g} ps: at most 2**63 - 1 ps"
            )
        return time

    def _inside_ps(self, size_bytes: int) -> int:
        place = bisect_left(self.sizes, size_bytes)
        if self.sizes[place] == size_bytes:
            return self.times_ps[place]
        return round(float(self.interpolate(np.array([size_bytes]))[0]))


class Outlier(Noun):
    """A measurement that was rejected: `factor` times what the sizes beside it say."""

    curve: str
    size_bytes: int
    time_ps: int
    factor: float

    def __str__(self) -> str:
        size, time = format_size_bytes(self.size_bytes), format_time_ps(self.time_ps)
        return f"{self.curve}: {size} in {time}, {self.factor:.1f} times what its neighbours say"


class CommTable(Noun):
    """Measured curves; `source` names the files, `warnings` says what was assumed while reading."""

    source: str
    curves: tuple[MeasuredCurve, ...]
    warnings: Names = ()

    def __post_init__(self) -> None:
        seen = set()
        for curve in self.curves:
            if curve.key in seen:
                raise CalibrationError(f"{self.source}: {curve.label}: expected each curve once")
            seen.add(curve.key)

    def choose(self, terms: str) -> "CommTable":
        """The curves whose machine or source holds every one of some texts, separated by commas.

        A text after `!` must not be there. Upper and lower case are alike. Raises CalibrationError
        when no curve is left.
        """
        wanted = [term.strip().casefold() for term in terms.split(",") if term.strip()]

        def fits(curve: MeasuredCurve) -> bool:
            origin = curve.origin.casefold()
            return all((t.lstrip("!") in origin) != t.startswith("!") for t in wanted)

        kept = tuple(curve for curve in self.curves if fits(curve))
        if not kept:
            raise CalibrationError(
                f"{self.source}: no curve whose source fits {terms!r}: expected texts of "
                f"{_listed(sorted({curve.origin for curve in self.curves}))}"
            )
        return replace(self, curves=kept)

    def curve(self, kind: CollectiveKind, ranks: int, nodes: int) -> MeasuredCurve | None:
        """The curve of a group, None where there is none; CalibrationError where there are more."""
        found = [c for c in self.curves if (c.kind, c.ranks, c.nodes) == (kind, ranks, nodes)]
        if len(found) > 1:
            raise CalibrationError(
                f"{self.source}: {len(found)} curves of {group_text(kind, ranks, nodes)}: expected "
                f"one: choose a source (--comm-source) by a text that only one of "
                f"{_listed([each.origin for each in found])} holds, or leave one out with !text"
            )
        return found[0] if found else None

    def time_ps(self, kind: CollectiveKind, ranks: int, nodes: int, size_bytes: int) -> int | None:
        """Picoseconds of a collective; None where no curve applies, see `MeasuredCurve`.

        A group of one rank has nothing to send: no curve applies. Raises CalibrationError when
        several curves apply, or the time is above 2**63 - 1 ps.
        """
        curve = self.curve(kind, ranks, nodes) if ranks > 1 else None
        return curve.duration_ps(size_bytes) if curve else None

    def without_outliers(self) -> "tuple[CommTable, tuple[Outlier, ...]]":
        """The table without outliers, and these.

        A time is an outlier if it is more than 1.5 times what log-log interpolation between
        the sizes beside it gives; of the smallest size, more than 1.5 times the next one's
        time; of the largest, more than 1.5 times what the one before takes at its bandwidth.
        The worst goes first, then its neighbours are looked at again; three sizes always stay.
        Too short a time is kept: disturbances only add time.
        """
        curves, rejected = [], []
        for curve in self.curves:
            kept = dict(zip(curve.sizes, curve.times_ps, strict=True))
            for place, excess in _outliers(curve):
                size = curve.sizes[place]
                rejected.append(
                    Outlier(
                        curve=curve.label, size_bytes=size, time_ps=kept.pop(size), factor=excess
                    )
                )
            curves.append(replace(curve, sizes=tuple(kept), times_ps=tuple(kept.values())))
        return replace(self, curves=tuple(curves)), tuple(rejected)


def group_text(kind: CollectiveKind, ranks: int, nodes: int) -> str:
    """A collective and its group in words."""
    return f"{kind} over {ranks} rank{'s' * (ranks > 1)} in {nodes} node{'s' * (nodes > 1)}"


def _outliers(curve: MeasuredCurve) -> Iterator[tuple[int, float]]:
    """Place and excess of each outlier; in a round those that stick out most among neighbours."""
    places = np.arange(len(curve.size_bytes))
    sizes, times = np.log(curve.size_bytes), np.log(curve.time_ps)
    while len(places) > _FEWEST:
        excess = _excess(sizes[places], times[places])
        beside = np.concatenate(([-np.inf], excess, [-np.inf]))
        worst = (excess > np.log(_OUTLIER_FACTOR)) & (excess > beside[:-2]) & (excess >= beside[2:])
        found = np.flatnonzero(worst)
        found = found[np.argsort(-excess[found], kind="stable")][: len(places) - _FEWEST]
        if not len(found):
            return
        for each in np.sort(found):
            yield int(places[each]), float(np.exp(excess[each]))
        places = np.delete(places, found)


def _excess(sizes: Floats, times: Floats) -> Floats:
    """Logarithm of each time over what its neighbours say; all arguments are logarithms."""
    share = (sizes[1:-1] - sizes[:-2]) / (sizes[2:] - sizes[:-2])
    between = times[:-2] * (1 - share) + times[2:] * share
    last = times[-2] + sizes[-1] - sizes[-2]
    return times - np.concatenate(([times[1]], between, [last]))


def _monotone_cubic(x: Floats, y: Floats, at: Floats) -> Floats:
    """Values at `at`, within x, of the cubic that is monotone between the points (x, y)."""
    if len(x) == 1:
        return np.full(len(at), y[0])
    width = np.diff(x)
    slope = _slopes(width, np.diff(y) / width)
    left = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    h = width[left]
    u = (at - x[left]) / h
    value: Floats = (
        y[left] * (1 + 2 * u) * (1 - u) ** 2
        + y[left + 1] * (3 - 2 * u) * u**2
        + h * u * (1 - u) * (slope[left] * (1 - u) - slope[left + 1] * u)
    )
    return value


def _slopes(width: Floats, secant: Floats) -> Floats:
    """Derivative at each point: a weighted harmonic mean of the secants, 0 where they turn."""
    if len(secant) == 1:
        return np.repeat(secant, 2)
    before, after = secant[:-1], secant[1:]
    heavy, light = 2 * width[1:] + width[:-1], width[1:] + 2 * width[:-1]
    same = before * after > 0
    safe = np.where(same, heavy * after + light * before, 1.0)
    inner = np.where(same, (heavy + light) * before * after / safe, 0.0)
    first = _end_slope(width[0], width[1], secant[0], secant[1])
    last = _end_slope(width[-1], width[-2], secant[-1], secant[-2])
    return np.concatenate(([first], inner, [last]))


def _end_slope(width: float, next_width: float, secant: float, next_secant: float) -> float:
    """Derivative of the parabola through three points at the outer one, kept monotone."""
    total = width + next_width
    slope = ((total + width) * secant - width * next_secant) / total
    if slope * secant <= 0:
        return 0.0
    return 3 * secant if abs(slope) > 3 * abs(secant) else slope


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:4])
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown
