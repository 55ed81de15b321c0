"""Options of a step of a model with what measured steps said of its machine."""

from dataclasses import replace

from stepsim.base.errors import CalibrationError
from stepsim.options import StepOptions
from stepsim.workload.model.calibration import ModelCalibration
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.plan import Precision


def with_model_calibration(
    options: StepOptions, calibration: ModelCalibration
) -> tuple[StepOptions, list[str]]:
    """The options with device and framework as measured, and what that rests on.

    Raises CalibrationError where no device is known: times of a workload file are not predicted.
    """
    device, framework = options.device, options.framework
    if not isinstance(device, Device) or not isinstance(framework, Framework):
        raise CalibrationError(
            "this calibration is of predictions of models: expected a model on a known device"
        )
    precision = options.precision or Precision.BF16
    changed, as_measured = calibration.apply(device, framework, precision)
    options = replace(options, device=changed, framework=as_measured)
    machine = f"{device.name}, {framework.name}, {precision}"
    found = calibration.factor_of(device, framework, precision)
    if found is None:
        return options, [f"the calibration has no factor of {machine}: predicted without"]
    return options, [
        f"calibrated: compute takes {found.factor:.3f} of the prediction on {machine}, from "
        f"{found.runs} steps, each within {found.spread:.1%}"
    ]
