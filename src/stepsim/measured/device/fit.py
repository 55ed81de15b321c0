"""What times of kernels say of a device: rate and start of products, shape of attention's rate."""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats
from stepsim.base.errors import CalibrationError
from stepsim.base.units import PS_PER_S
from stepsim.workload.model.device import AttentionRate, MatrixRate

_PS_PER_NS = 1000
LEAST_SHAPES = 3
_LEAST_SIDE = 1024
_HALF_SEQUENCES = np.concatenate([[0.0], np.geomspace(50, 5e4, 31)])
_HALF_WORKS = np.concatenate([[0.0], np.geomspace(500, 5e5, 31)])


class FittedRate(Struct, frozen=True, kw_only=True):
    """Rate and start of products, from so many shapes; `residual` is their mean, a share."""

    rate: MatrixRate
    shapes: int
    residual: float


class FittedAttention(Struct, frozen=True, kw_only=True):
    """The rate of a family of kernels; `residual` is the mean of its shapes, a share."""

    rate: AttentionRate
    shapes: int
    residual: float


def fit_rate(flops: Sequence[float], seconds: Sequence[float], peak: float | None) -> FittedRate:
    """Rate and start of products: seconds = flops / rate + start, residuals relative.

    The start is at least 0. The peak is the rate where none is known. Raises CalibrationError for
    fewer than three products.
    """
    if len(flops) < LEAST_SHAPES:
        raise CalibrationError(f"{len(flops)} shapes: expected at least {LEAST_SHAPES}")
    work, measured = np.array(flops), np.array(seconds)
    columns = np.stack([work / measured, 1 / measured], axis=1)
    (per_flop, start), *_ = np.linalg.lstsq(columns, np.ones(len(work)), rcond=None)
    if start < 0 or per_flop <= 0:
        start, per_flop = 0.0, float(np.mean(measured / work))
    residuals = (work * per_flop + start) / measured - 1
    rate = float(1 / per_flop)
    return FittedRate(
        rate=MatrixRate(
            rate=rate,
            peak=peak or rate,
            start_ps=round(float(start) * PS_PER_S / _PS_PER_NS) * _PS_PER_NS,
        ),
        shapes=len(work),
        residual=float(np.abs(residuals).mean()),
    )


def fit_products(
    sides: Sequence[tuple[float, ...]], seconds: Sequence[float], peak: float | None
) -> FittedRate:
    """As `fit_rate`, of products by their three sides.

    Those of at least 1,024 a side count, all where there are none. Raises CalibrationError for
    fewer than three.
    """
    timed = list(zip(sides, seconds, strict=True))
    large = [each for each in timed if min(each[0]) >= _LEAST_SIDE] or timed
    flops = [2.0 * math.prod(each) for each, _ in large]
    return fit_rate(flops, [time for _, time in large], peak)


class AttentionSample(Struct, frozen=True, kw_only=True):
    """A timed pass of attention: `rows` are batch x heads."""

    sequence: int
    rows: int
    flops: float
    seconds: float


def fit_attention(
    forward: Sequence[AttentionSample], backward: Sequence[AttentionSample]
) -> FittedAttention:
    """The rate of attention's forward over sequence and work, and the backward's share of it.

    `AttentionRate` has the formula; halves are looked for on a grid, the rate is then the geometric
    mean. Raises CalibrationError where a pass has no sample.
    """
    if not forward or not backward:
        raise CalibrationError("attention: expected samples of both passes")
    rates = _rates(forward)
    best, found = np.inf, (0.0, 0.0)
    for half_sequence in _HALF_SEQUENCES:
        for half_work in _HALF_WORKS:
            left = float(np.std(rates - _filled(forward, half_sequence, half_work)))
            if left < best - 1e-9:
                best, found = left, (float(half_sequence), float(half_work))
    logs = rates - _filled(forward, *found)
    back = _rates(backward) - _filled(backward, found[0] / 2, found[1] / 2)
    residuals = np.concatenate([logs - logs.mean(), back - back.mean()])
    return FittedAttention(
        rate=AttentionRate(
            rate=float(np.exp(logs.mean())),
            half_sequence=found[0],
            half_work=found[1],
            backward=float(np.exp(back.mean() - logs.mean())),
        ),
        shapes=len(forward) + len(backward),
        residual=float(np.abs(np.expm1(residuals)).mean()),
    )


def _rates(samples: Sequence[AttentionSample]) -> Floats:
    """Logarithms of FLOP/s."""
    return np.log([each.flops / each.seconds for each in samples])


def _filled(samples: Sequence[AttentionSample], half_sequence: float, half_work: float) -> Floats:
    """Logarithms of the share of the longest rate that each sample reaches."""
    sequence = np.array([each.sequence for each in samples], dtype=np.float64)
    work = sequence * np.array([each.rows for each in samples])
    share = sequence / (sequence + half_sequence) * work / (work + half_work)
    return np.asarray(np.log(share))
