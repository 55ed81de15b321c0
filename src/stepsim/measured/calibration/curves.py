"""A measured curve as lines: up to three over ranges of size, and one over all large sizes."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints
from stepsim.measured.calibration.lines import FEWEST_SIZES, FittedLine, fit_line, fit_regimes
from stepsim.network.measured_times import MeasuredCurve, bus_factor
from stepsim.workload.rows import CollectiveKind

_BULK_BYTES = 1 << 20


class FitRow(Struct, frozen=True, kw_only=True):
    """Measured and fitted time in ps of one size; `error` is fitted over measured, less 1."""

    machine: str
    source: str
    kind: CollectiveKind
    ranks: int
    nodes: int
    size_bytes: int
    measured_ps: int
    fitted_ps: int
    error: float
    bus_bandwidth: float


class CurveFit(Struct, frozen=True, kw_only=True):
    """A curve without outliers, its lines (none for fewer than four sizes), and its bulk line.

    The bulk line goes through all sizes from 1 MiB on; None for fewer than four.
    """

    curve: MeasuredCurve
    regimes: tuple[FittedLine, ...]
    bulk: FittedLine | None

    @property
    def bandwidth(self) -> float:
        """Size over time of the bulk line without its latency, bytes/s; 0 where it has none."""
        if self.bulk is None or self.curve.ranks < 2:
            return 0.0
        return self.bulk.bandwidth or 0.0

    @property
    def bus_bandwidth(self) -> float:
        """Bus bandwidth of the bulk line without its latency, bytes/s; 0 where it has none."""
        return bus_factor(self.curve.kind, self.curve.ranks) * self.bandwidth

    @property
    def ranks_per_node(self) -> int:
        """Members in the fullest node."""
        return -(-self.curve.ranks // self.curve.nodes)

    def times_ps(self, size_bytes: Ints) -> Floats:
        """Times by the lines; a size between two ranges belongs to the one below."""
        starts = np.array([line.first_bytes for line in self.regimes])
        place = np.maximum(np.searchsorted(starts, size_bytes, side="right") - 1, 0)
        latency = np.array([line.latency_ps for line in self.regimes])
        per_byte = np.array([line.ps_per_byte for line in self.regimes])
        times: Floats = latency[place] + size_bytes * per_byte[place]
        return times

    def rows(self) -> Iterator[FitRow]:
        """Every measured size; none where there are no lines."""
        curve = self.curve
        if not self.regimes:
            return
        columns = (curve.size_bytes, curve.time_ps, self.times_ps(curve.size_bytes))
        lists = [column.tolist() for column in (*columns, curve.bus_bandwidth())]
        for size, measured, fitted, speed in zip(*lists, strict=True):
            yield FitRow(
                machine=curve.machine,
                source=curve.source,
                kind=curve.kind,
                ranks=curve.ranks,
                nodes=curve.nodes,
                size_bytes=size,
                measured_ps=measured,
                fitted_ps=round(fitted),
                error=fitted / measured - 1,
                bus_bandwidth=speed,
            )


def fit_curve(curve: MeasuredCurve) -> CurveFit:
    """Lines of a curve that has no outliers."""
    large = curve.size_bytes >= _BULK_BYTES
    bulk = None
    if np.count_nonzero(large) >= FEWEST_SIZES:
        bulk = fit_line(curve.size_bytes[large], curve.time_ps[large])
    return CurveFit(curve=curve, regimes=fit_regimes(curve.size_bytes, curve.time_ps), bulk=bulk)
