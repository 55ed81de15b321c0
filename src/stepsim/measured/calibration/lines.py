"""Lines through measured times: latency plus size times a time per byte.

All fits make the sum of relative distances least, |fitted / measured - 1|: no size counts more than
another, and a few bad times move nothing. Nothing measured is negative, so no factor is.
"""

from itertools import combinations, pairwise
from typing import Annotated

import numpy as np
from msgspec import Meta
from msgspec.structs import force_setattr

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import CalibrationError
from stepsim.base.structs import Bytes, BytesPerSecond, Entry, Share
from stepsim.base.units import PS_PER_S

FEWEST_SIZES = 4
_MOST_REGIMES = 3
_ROUNDS = 60
_SMALLEST = 1e-6
_SETTLED = 1e-7


class FittedLine(Entry, frozen=True, kw_only=True):
    """Times of the sizes from `first_bytes` to `last_bytes`: latency in ps, and ps per byte.

    `residual` is the median relative distance of the `samples` measured times. `bandwidth` follows
    from the rest: bytes of the collective per second, without the latency; None where size costs
    nothing.
    """

    latency_ps: Annotated[float, Meta(description="picoseconds")]
    ps_per_byte: Annotated[float, Meta(description="picoseconds per byte")]
    first_bytes: Bytes
    last_bytes: Bytes
    residual: Share
    samples: int
    bandwidth: BytesPerSecond | None = None

    def __post_init__(self) -> None:
        if not (self.latency_ps >= 0 and self.ps_per_byte >= 0 and self.samples >= 1):
            raise CalibrationError(
                f"latency {self.latency_ps} ps, {self.ps_per_byte} ps per byte, {self.samples} "
                "samples: none can be below 0"
            )
        if self.ps_per_byte:
            force_setattr(self, "bandwidth", PS_PER_S / self.ps_per_byte)

    def times_ps(self, size_bytes: Ints) -> Floats:
        """Times of sizes."""
        return np.asarray(self.latency_ps + size_bytes * self.ps_per_byte, dtype=np.float64)


def fit_line(size_bytes: Ints, time_ps: Ints) -> FittedLine:
    """The line of a range of sizes, ascending."""
    sizes, times = size_bytes.astype(np.float64), time_ps.astype(np.float64)
    columns = np.stack([np.ones(len(sizes)), sizes], axis=1)
    latency, per_byte = least_distance(columns, times).tolist()
    return FittedLine(
        latency_ps=latency,
        ps_per_byte=per_byte,
        first_bytes=int(size_bytes[0]),
        last_bytes=int(size_bytes[-1]),
        residual=float(np.median(np.abs((latency + per_byte * sizes) / times - 1))),
        samples=len(sizes),
    )


def fit_regimes(size_bytes: Ints, time_ps: Ints) -> tuple[FittedLine, ...]:
    """Up to three lines, each over a range of at least four sizes: none for fewer sizes.

    NCCL carries small, middle and large sizes by other protocols (LL, LL128, Simple). Ranges meet
    at powers of two, where the sum of relative distances is least; a further line must lower the
    Bayesian information criterion of exponentially distributed distances (Schwarz, Annals of
    Statistics 6, 1978).
    """
    count = len(size_bytes)
    if count < FEWEST_SIZES:
        return ()
    powers = 2 ** np.arange(1, 63, dtype=np.int64)
    cuts = sorted(set(np.searchsorted(size_bytes, powers).tolist()) - {0, count})
    lines: dict[tuple[int, int], FittedLine] = {}
    best: tuple[float, tuple[FittedLine, ...]] | None = None
    for number in range(1, _MOST_REGIMES + 1):
        found = _best_cuts(size_bytes, time_ps, cuts, number, lines)
        if found is None:
            break
        distance, regimes = found
        score = 2 * count * np.log(max(distance / count, _SMALLEST))
        score += (3 * number - 1) * np.log(count)
        if best is None or score < best[0]:
            best = score, regimes
    return best[1] if best else ()


def _best_cuts(
    size_bytes: Ints,
    time_ps: Ints,
    cuts: list[int],
    number: int,
    lines: dict[tuple[int, int], FittedLine],
) -> tuple[float, tuple[FittedLine, ...]] | None:
    """Sum of relative distances and the lines of the best ranges; `lines` remembers all fitted."""
    best = None
    for chosen in combinations(cuts, number - 1):
        ranges = list(pairwise([0, *chosen, len(size_bytes)]))
        if min(end - start for start, end in ranges) < FEWEST_SIZES:
            continue
        for start, end in ranges:
            if (start, end) not in lines:
                lines[start, end] = fit_line(size_bytes[start:end], time_ps[start:end])
        total = sum(_distance(lines[r], size_bytes[slice(*r)], time_ps[slice(*r)]) for r in ranges)
        if best is None or total < best[0]:
            best = total, tuple(lines[r] for r in ranges)
    return best


def _distance(line: FittedLine, size_bytes: Ints, time_ps: Ints) -> float:
    return float(np.abs(line.times_ps(size_bytes) / time_ps - 1).sum())


def least_distance(columns: Floats, values: Floats) -> Floats:
    """Factors of 0 or more, one per column, that bring the columns' sum closest to the values.

    Closest means the least sum of |sum / value - 1|. Columns must be independent, values positive.
    Raises CalibrationError where no such factors are found.
    """
    scaled = columns / values[:, None]
    best: Floats | None = None
    least = np.inf
    every = range(columns.shape[1])
    for count in reversed(range(1, columns.shape[1] + 1)):
        for kept in combinations(every, count):
            part = _unbounded(scaled[:, kept])
            if (part < 0).any():
                continue
            total = float(np.abs(scaled[:, kept] @ part - 1).sum())
            if total < least:
                least, best = total, np.zeros(columns.shape[1])
                best[list(kept)] = part
        if best is not None and count == columns.shape[1]:
            break
    if best is None:
        raise CalibrationError("no factors of 0 or more fit these values")
    return best


def _unbounded(columns: Floats) -> Floats:
    """Factors that bring the columns' sum closest to 1, by reweighted least squares."""
    scale = np.abs(columns).max(axis=0)
    unit = columns / scale
    weight = np.ones(len(unit))
    factors = np.zeros(unit.shape[1])
    for _ in range(_ROUNDS):
        weighted = unit.T * weight
        new = np.linalg.solve(weighted @ unit, weighted.sum(axis=1))
        change = np.abs(new - factors).max()
        factors = new
        if change <= _SETTLED * np.abs(new).max():
            break
        weight = 1 / np.maximum(np.abs(unit @ factors - 1), _SMALLEST)
    result: Floats = factors / scale
    return result
