"""Device and framework of a model's step with what was measured of them."""

from stepsim.options import StepOptions
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.plan import Precision


def as_measured(
    device: Device, framework: Framework, options: StepOptions
) -> tuple[Device, Framework]:
    """Both with the calibration asked for, in the precision asked for."""
    if options.calibration is None:
        return device, framework
    return options.calibration.apply(device, framework, options.precision or Precision.BF16)


def said_of_calibration(device: Device, framework: Framework, options: StepOptions) -> list[str]:
    """What the calibration asked for rests on."""
    if options.calibration is None:
        return []
    precision = options.precision or Precision.BF16
    machine = f"{device.name}, {framework.name}, {precision}"
    found = options.calibration.factor_of(device, framework, precision)
    rates = [
        f"calibrated: products of {device.name} in {precision} at {each.rate.rate / 1e12:.0f} "
        f"TFLOP/s, from {each.shapes} shapes"
        for each in options.calibration.rates
        if (each.device, each.precision) == (device.name, precision)
    ]
    if found:
        return [
            *rates,
            f"calibrated: compute takes {found.factor:.3f} of the prediction on {machine}, from "
            f"{found.runs} steps, each within {found.spread:.1%}",
        ]
    return rates or [f"the calibration has no factor of {machine}: predicted without"]
