"""A second look at a step of a model: other answers to the same question, and where they differ.

A step is held against the peak of its device and the closed form of its plan. Where it is further
from it than predictions of its kind are from measured steps, something is wrong with the question
or with the answer, and that is said.
"""

from collections.abc import Iterator

from stepsim.base.option import Panel
from stepsim.base.units import PS_PER_S, format_time_ps
from stepsim.explain.report import Finding
from stepsim.options import OPTIONS
from stepsim.parallel.schedules.combined_1f1b import PAIRED
from stepsim.step.job import Job
from stepsim.workload.model.device import Device
from stepsim.workload.model.evidence import Effort, Evidence, source_of
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import PlanTable

_COUNTED = frozenset(
    name
    for name, option in OPTIONS.items()
    if option.panel in (Panel.JOB, Panel.MODEL, Panel.RUN)
    or name in ("schedule", "chunks", "dp_overlap", "contention")
)
"""Options that the other answers know of, too, or that change a step by little."""

_CLOSED_FORMS = ("1f1b", "interleaved", PAIRED)
"""Schedules that the closed form of a plan knows."""

_RANGE = (0.8, 1.25)
"""A guess: factors on a step where nothing is known of predictions of its kind."""


def second_look(job: Job, step_time_ps: int) -> Iterator[Finding]:
    """Where a step time is further from another answer than predictions are known to be.

    That nothing is known of the device is said first. Nothing is said of a workload file's step.
    """
    setup, effort = job.setup, job.given.effort
    if not (setup and effort and step_time_ps):
        return
    sparse = setup.architecture.is_sparse
    said = _said_of_device(setup.device, setup.framework.name, sparse=sparse)
    if said and effort.band is None:
        yield Finding(text=said)
    step_s = step_time_ps / PS_PER_S
    rate = effort.hardware_flops / job.plan.npus / step_s
    if rate > effort.peak_flops:
        yield Finding(
            text=f"no {effort.device} is so fast: {rate / 1e12:,.0f} TFLOP/s in "
            f"{job.plan.precision}, of which it has {effort.peak_flops / 1e12:,.0f}"
        )
    if all(option.name in _COUNTED for option in job.asked.changed()):
        yield from _off_closed_form(closed_form_s(job, setup), effort, step_s)


def closed_form_s(job: Job, setup: StepModel) -> float | None:
    """Seconds of the step by the closed form of its plan; None where there is none."""
    if not setup.interconnect.is_known or job.options.schedule not in _CLOSED_FORMS:
        return None
    return float(setup.seconds(PlanTable(plans=[job.plan]))[0])


def _off_closed_form(seconds: float | None, effort: Effort, step_s: float) -> Iterator[Finding]:
    """That a step is not within the factors in which one of its kind is expected."""
    band = effort.band
    low, high = (band.low, band.high) if band and band.others else _RANGE
    if seconds is not None and not low <= seconds / step_s <= high:
        said = format_time_ps(round(seconds * PS_PER_S))
        yield Finding(
            text=f"the closed form of this plan says {said}: "
            "what it leaves out (groups that share links, stages that differ) is more than "
            "predictions of this kind are off; the parts of the step say what it is"
        )


def _said_of_device(device: Device, framework: str, *, sparse: bool) -> str:
    """That no run on a device told how fast steps on it are; empty where some did.

    The words are of steps with a framework, of models that are `sparse` or dense: no run of that
    kind on the device was compared.
    """
    sustained = source_of(device.sources.get("sustained"))
    if sustained.evidence in (Evidence.UNSAID, Evidence.FITTED):
        return ""
    rate = source_of(device.sources.get("rate"))
    kind = "model with experts" if sparse else "dense model"
    return (
        f"no run of a {kind} on {device.name} with {framework} was held against predictions: the "
        f"error of the step is unknown (rates of products are {rate.brief})"
    )
