"""Calibration of predictions from measured steps: a factor on the compute of each machine."""

from collections.abc import Iterable, Sequence

import numpy as np

from stepsim.base.arrays import Floats, rows_of
from stepsim.base.errors import CalibrationError, StepsimError
from stepsim.base.structs import replace
from stepsim.files.model_steps import PublishedStep
from stepsim.runs.published import PublishedRun, model_of
from stepsim.workload.model.calibration import (
    MachineFactor,
    MeasuredRate,
    ModelCalibration,
    slowed,
)
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.step_time import StepModel

_ROUNDS = 12
_SLOWEST = 0.1, 10.0  # of compute, measured over predicted

_Machine = tuple[str, str, Precision]


def calibrate_steps(
    steps: Iterable[PublishedStep], rates: Sequence[MeasuredRate] = ()
) -> tuple[ModelCalibration, list[PublishedRun]]:
    """A factor for each device, framework and precision among complete measured steps.

    With it come the steps that were fitted. Measured `rates` of matrix products are part of it:
    they replace those of their device first. Steps that no plan expresses are left out with a note,
    and so are machines that are off beyond reason. Raises CalibrationError where nothing is left.
    """
    notes: list[str] = []
    measured = ModelCalibration(rates=tuple(rates))
    groups = _by_machine(steps, measured, notes)
    factors: list[MachineFactor] = []
    rows: list[PublishedRun] = []
    for machine, several in groups.items():
        try:
            factor, found = _calibrate(machine, several)
        except CalibrationError as error:
            notes.append(str(error))
            continue
        factors.append(factor)
        rows += found
    if not factors:
        why = notes[0] if notes else "expected complete rows with step_s"
        raise CalibrationError(f"no measured step: {why}")
    return replace(measured, factors=tuple(factors), notes=tuple(notes)), rows


def _by_machine(
    steps: Iterable[PublishedStep], measured: ModelCalibration, notes: list[str]
) -> dict[_Machine, list[tuple[PublishedStep, StepModel]]]:
    """Complete measured steps of each machine with what prices them; notes say what is left out."""
    groups: dict[_Machine, list[tuple[PublishedStep, StepModel]]] = {}
    for step in steps:
        if not (step.is_complete and step.measured_s):
            continue
        try:
            model = model_of(step, measured)
            model.seconds([step.plan])
        except StepsimError as error:
            notes.append(f"{step.source} {step.name} is left out: {error}")
            continue
        key = (model.device.name, model.framework.name, step.plan.precision)
        groups.setdefault(key, []).append((step, model))
    return groups


def _calibrate(
    machine: _Machine, several: Sequence[tuple[PublishedStep, StepModel]]
) -> tuple[MachineFactor, list[PublishedRun]]:
    """The machine's factor and its steps."""
    measured = np.array([step.measured_s for step, _ in several], np.float64)
    before = _predicted(several, 1.0)
    factor, left = _factor(several, measured)
    device, framework, precision = machine
    after = measured * np.exp(left)
    rows = [
        PublishedRun(step=step, predicted_s=a, calibrated_s=b)
        for (step, _), a, b in rows_of(several, before, after)
    ]
    found = MachineFactor(
        device=device,
        framework=framework,
        precision=precision,
        factor=round(factor, 4),
        runs=len(several),
        spread=round(float(np.abs(after / measured - 1).max()), 4),
    )
    return found, rows


def _factor(
    several: Sequence[tuple[PublishedStep, StepModel]], measured: Floats
) -> tuple[float, Floats]:
    """The factor on compute whose predictions are right in the geometric mean, and what is left."""
    low, high = _SLOWEST
    for _ in range(_ROUNDS):
        middle = float(np.sqrt(low * high))
        left = np.log(_predicted(several, middle) / measured)
        low, high = (middle, high) if left.mean() < 0 else (low, middle)
    factor = float(np.sqrt(low * high))
    if not 1.01 * _SLOWEST[0] < factor < _SLOWEST[1] / 1.01:
        step = several[0][0]
        raise CalibrationError(
            f"{step.source} {step.name} and those of its machine: compute would be less than "
            f"{_SLOWEST[0]} or over {_SLOWEST[1]:.0f} times the prediction on {step.device}: "
            "expected seconds of a step, and the right GPU"
        )
    return factor, np.log(_predicted(several, factor) / measured)


def _predicted(several: Sequence[tuple[PublishedStep, StepModel]], factor: float) -> Floats:
    """Predictions with compute `factor` times as slow.

    Steps of one model on one network are priced together.
    """
    alike: dict[object, list[int]] = {}
    for place, (_, model) in enumerate(several):
        alike.setdefault((model.architecture, model.interconnect), []).append(place)
    found = np.empty(len(several))
    for places in alike.values():
        model = several[places[0]][1]
        changed = replace(model, device=slowed(model.device, factor))
        found[places] = changed.seconds([several[place][0].plan for place in places])
    return found
