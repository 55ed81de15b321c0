"""Rates of a device that profiles tell: matrix products by the shapes of their operators."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from stepsim.base.errors import CalibrationError
from stepsim.base.structs import Numbers, replace
from stepsim.base.units import PS_PER_S
from stepsim.measured.calibration.products import fit_products
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.kernel_classes import KernelWorks
from stepsim.workload.model.calibration import MeasuredRate
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.device import Device

_SUMS = re.compile("reduce", re.IGNORECASE)


def recorded_rate(
    profiles: Sequence[Profile], device: Device, precision: Precision
) -> MeasuredRate:
    """Rate and start of the products that profiles recorded, all in one precision.

    A product and its gradients have the same sides: each counts once, with the median of its times,
    so that slower weight gradients do not. What training keeps of the rates of short runs, the
    device's `sustained`, is taken out again, as predictions put it in. Raises CalibrationError for
    fewer than three shapes, and for a rate beyond the device's peak.
    """
    times: dict[Numbers, list[int]] = {}
    for profile in profiles:
        for sides, time_ps in _products(profile):
            times.setdefault(sides, []).append(time_ps)
    shapes = sorted(times)
    seconds = [float(np.median(times[shape])) / PS_PER_S for shape in shapes]
    found, peak = fit_products(shapes, seconds, device, precision), device.rate_of(precision).peak
    if found.rate > peak:
        raise CalibrationError(
            f"products run at {found.rate / 1e12:.0f} TFLOP/s, and the peak of {device.name} in "
            f"{precision} is {peak / 1e12:.0f}: is it the device and the precision of the trace?"
        )
    return replace(found, rate=found.rate / device.sustained)


def _products(profile: Profile) -> Iterator[tuple[Numbers, int]]:
    """Sides and time of every kernel that multiplies and whose operator has shapes."""
    events, known = profile.events, KernelWorks.of(profile)
    # a kernel may add up the parts of a product that others computed
    counts = (events.duration_ps > 0) & ~profile.called(_SUMS.search)
    chosen = known.products(events)
    for place in chosen[counts[chosen]].tolist():
        if sides := known.works[known.number[place]].sides:
            yield sides, int(events.duration_ps[place])
