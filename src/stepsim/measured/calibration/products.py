"""What times of products say of a device: their rate and start."""

import math
from collections.abc import Sequence

import numpy as np

from stepsim.base.errors import CalibrationError
from stepsim.base.units import PS_PER_NS, PS_PER_S
from stepsim.workload.model.calibration import MeasuredRate
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.device import Device

_LEAST_SHAPES = 3
_LEAST_SIDE = 1024


def fit_products(
    sides: Sequence[tuple[float, ...]],
    seconds: Sequence[float],
    device: Device,
    precision: Precision,
) -> MeasuredRate:
    """Rate and start of products by their three sides: seconds = flops / rate + start.

    Those of at least 1,024 a side count, all where there are none. Residuals are relative, and
    `spread` is their mean. The start is at least 0. The peak is the rate where none is known.
    Raises CalibrationError for fewer than three products.
    """
    timed = list(zip(sides, seconds, strict=True))
    large = [each for each in timed if min(each[0]) >= _LEAST_SIDE] or timed
    if len(large) < _LEAST_SHAPES:
        raise CalibrationError(f"{len(large)} shapes: expected at least {_LEAST_SHAPES}")
    work = np.array([2.0 * math.prod(each) for each, _ in large])
    measured = np.array([time for _, time in large])
    columns = np.stack([work / measured, 1 / measured], axis=1)
    (per_flop, start), *_ = np.linalg.lstsq(columns, np.ones(len(work)), rcond=None)
    if start < 0 or per_flop <= 0:
        start, per_flop = 0.0, float(np.mean(measured / work))
    residuals = (work * per_flop + start) / measured - 1
    rate = float(1 / per_flop)
    return MeasuredRate(
        device=device.name,
        precision=precision,
        rate=rate,
        peak=device.rate_of(precision).peak or rate,
        start_ps=round(float(start) * PS_PER_S / PS_PER_NS) * PS_PER_NS,
        shapes=len(work),
        spread=float(np.abs(residuals).mean()),
    )
