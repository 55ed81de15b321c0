"""What times of products say of a device: their rate and start."""

import math
from collections.abc import Sequence

import numpy as np

from stepsim.base.errors import CalibrationError
from stepsim.base.structs import Noun
from stepsim.base.units import PS_PER_S
from stepsim.workload.model.device import MatrixRate

_PS_PER_NS = 1000
LEAST_SHAPES = 3
_LEAST_SIDE = 1024


class FittedRate(Noun):
    """Rate and start of products, from so many shapes; `residual` is their mean, a share."""

    rate: MatrixRate
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
