"""What measured steps and kernels say of a machine: factors and rates.

A factor multiplies a prediction's compute, or that of one class of kernels; it belongs to a device,
a framework and a precision. Steps that predictions were held against say how far off the next is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Self

import numpy as np
from msgspec import Meta, field

from stepsim.base.structs import AtLeastOne, Count, Names, Positive, Share, TomlTable, replace
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.device import Device, MatrixRate
from stepsim.workload.model.evidence import ErrorBand
from stepsim.workload.model.framework import Framework, error_band
from stepsim.workload.plan import Plan


class MachineFactor(TomlTable):
    """`[[factor]]`: measured over predicted compute of a device, a framework and a precision."""

    device: str
    framework: str
    precision: Precision
    factor: Positive
    runs: AtLeastOne
    spread: Annotated[Share, Meta(description="largest residual of a step", ge=0, le=1e9)]


class MeasuredRate(MatrixRate):
    """`[[rate]]`: rate and start of matrix products on a device."""

    device: str
    precision: Precision
    shapes: AtLeastOne
    spread: Annotated[Share, Meta(description="mean residual of a shape", ge=0, le=1e9)]


_StepSeconds = Annotated[float, Meta(ge=1e-9, le=1e9, description="seconds")]


class MeasuredKernels(TomlTable):
    """`[[kernels]]`: how long kernels of a class took over their prediction, all of them together.

    Predictions of `operators`, as PyTorch calls them, take `factor` times as long. `count` kernels
    were measured; `rate` says in words what they reached.
    """

    device: str
    framework: str
    precision: Precision
    kernels: str
    operators: Names
    factor: Positive
    count: Count
    rate: str = ""


class HeldStep(TomlTable):
    """`[[held]]`: a measured step, and its prediction by what traces of other jobs told.

    `job` names the model and its plan. The model has `experts` or none, and `mixes` usual layers
    with others or does not.
    """

    source: str
    job: str
    device: str
    framework: str
    precision: Precision
    experts: bool
    mixes: bool = False
    npus: Count
    sequence: Count
    cp: Count = 1
    predicted_s: _StepSeconds
    measured_s: _StepSeconds

    @property
    def error(self) -> float:
        """The prediction over the measured step, minus 1."""
        return self.predicted_s / self.measured_s - 1


LEAST_JOBS = 3
"""Fewer jobs do not tell how far off the prediction of another one is."""
# Standard deviations above which a tenth of normal draws are: between both limits lie 80 %.
_TENTH = 1.2816


def bands_of(held: Iterable[HeldStep]) -> tuple[ErrorBand, ...]:
    """What errors of held steps say of the next job, for every kind of model on a machine.

    A kind of fewer jobs than `LEAST_JOBS` has none.
    """
    kinds: dict[tuple[object, ...], dict[str, list[HeldStep]]] = {}
    for step in held:
        kind = (step.device, step.framework, step.precision, step.experts, step.mixes)
        kinds.setdefault(kind, {}).setdefault(step.job, []).append(step)
    return tuple(_band(jobs) for jobs in kinds.values() if len(jobs) >= LEAST_JOBS)


def _band(jobs: Mapping[str, Sequence[HeldStep]]) -> ErrorBand:
    """The errors of steps by job: traces of one job count once.

    80 % of further jobs are in the interval of prediction of normal draws, here of the logarithms
    of measured over predicted: mean +- t s sqrt(1 + 1/n).
    """
    steps = [step for alike in jobs.values() for step in alike]
    errors = [float(np.mean([abs(step.error) for step in alike])) for alike in jobs.values()]
    logs = [-float(np.mean([np.log1p(step.error) for step in alike])) for alike in jobs.values()]
    middle, spread = float(np.mean(logs)), float(np.std(logs, ddof=1))
    wide = _tenth_of_t(len(jobs) - 1) * spread * float(np.sqrt(1 + 1 / len(jobs)))
    return ErrorBand(
        device=steps[0].device,
        sparse=steps[0].experts,
        mixes=steps[0].mixes,
        error=float(np.mean(errors)),
        median=float(np.median(errors)),
        ninety=float(np.quantile(errors, 0.9)),
        runs=len(steps),
        source="traces that the calibration was held against",
        low=float(np.exp(middle - wide)),
        high=float(np.exp(middle + wide)),
        others=len(jobs),
        traced=True,
        most_npus=max(step.npus for step in steps),
        most_sequence=max(step.sequence for step in steps),
        most_cp=max(step.cp for step in steps),
    )


def _tenth_of_t(freedom: int) -> float:
    """What a tenth of draws of Student's t are above: Abramowitz and Stegun 26.7.5, to 0.4 %."""
    x = _TENTH
    return float(
        x
        + (x**3 + x) / (4 * freedom)
        + (5 * x**5 + 16 * x**3 + 3 * x) / (96 * freedom**2)
        + (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / (384 * freedom**3)
    )


class ModelCalibration(TomlTable):
    """Everything that measurements said; `notes` are what they could not say, `path` its file."""

    factors: tuple[MachineFactor, ...] = field(default=(), name="factor")
    rates: tuple[MeasuredRate, ...] = field(default=(), name="rate")
    kernels: tuple[MeasuredKernels, ...] = ()
    held: tuple[HeldStep, ...] = ()
    sources: Names = ()
    notes: Names = ()
    path: str = ""

    def of(self, device: Device, framework: Framework, precision: Precision) -> Self:
        """What was measured on a machine, beside the rates of all devices."""
        machine = (device.name, framework.name, precision)
        here = {
            name: tuple(
                each
                for each in getattr(self, name)
                if (each.device, each.framework, each.precision) == machine
            )
            for name in ("factors", "kernels", "held")
        }
        return replace(self, **here)

    def apply(
        self, device: Device, framework: Framework, precision: Precision
    ) -> tuple[Device, Framework]:
        """Device and framework as calibrated in one precision; as they are where unknown.

        Errors of enough traces stand before those of published runs.
        """
        own = self.of(device, framework, precision)
        measured = {each.precision: each for each in self.rates if each.device == device.name}
        device = replace(device, rates={**device.rates, **measured})
        slower = {operator: each.factor for each in own.kernels for operator in each.operators}
        device = replace(device, slower={**device.slower, **slower})
        framework = replace(framework, errors=(*bands_of(own.held), *framework.errors))
        return slowed(device, own.factors[0].factor) if own.factors else device, framework

    def said(self, device: Device, framework: Framework, precision: Precision) -> Iterator[str]:
        """What a prediction with it rests on."""
        own = self.of(device, framework, precision)
        kernels = own.kernels
        rates = [
            one for one in self.rates if (one.device, one.precision) == (device.name, precision)
        ]
        for each in rates:
            yield (
                f"calibrated: products of {device.name} in {precision} at "
                f"{each.rate / 1e12:.0f} TFLOP/s, from {each.shapes} shapes"
            )
        if kernels:
            factors = ", ".join(f"{each.kernels} {each.factor:.3f}" for each in kernels)
            count = sum(each.count for each in kernels)
            yield f"calibrated: kernels take of their prediction, from {count:,} kernels: {factors}"
        machine = f"{device.name}, {framework.name}, {precision}"
        if own.factors:
            found = own.factors[0]
            yield (
                f"calibrated: compute takes {found.factor:.3f} of the prediction on {machine}, "
                f"from {found.runs} steps, each within {found.spread:.1%}"
            )
        elif not (rates or kernels):
            yield f"the calibration has no factor of {machine}: predicted without"

    def said_of_interval(
        self, device: Device, framework: Framework, plan: Plan, architecture: Architecture
    ) -> Iterator[str]:
        """Why the interval of a step that traces calibrated is not theirs."""
        if not self.of(device, framework, plan.precision).kernels:
            return
        kind = architecture.is_sparse, architecture.mixes
        if any(each.traced and (each.sparse, each.mixes) == kind for each in framework.errors):
            band = error_band(framework, device, plan, architecture)
            if not (band and band.traced):
                yield (
                    "the interval is not that of the calibration: the step is larger, its sequence "
                    "longer or its cp higher than those of the traces that it was held against"
                )
            return
        jobs = {each.job for each in self.held if (each.experts, each.mixes) == kind}
        yield (
            f"the interval is not that of the calibration: it was held against {len(jobs)} jobs of "
            f"this kind of model, and {LEAST_JOBS} are needed"
        )


def slowed(device: Device, factor: float) -> Device:
    """The device with everything that computes `factor` times as slow."""
    attention = {
        name: replace(rate, rate=rate.rate / factor) for name, rate in device.attention.items()
    }
    scans = {
        name: replace(
            rate, step_ps=round(rate.step_ps * factor), start_ps=round(rate.start_ps * factor)
        )
        for name, rate in device.scans.items()
    }
    return replace(
        device,
        sustained=device.sustained / factor,
        group_start_ps=round(device.group_start_ps * factor),
        scans=scans,
        vector_rate=device.vector_rate / factor,
        memory_bandwidth=device.memory_bandwidth / factor,
        kernel_floor_ps=round(device.kernel_floor_ps * factor),
        attention=attention,
    )
