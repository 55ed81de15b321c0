"""A second look at a step of a model: other answers to the same question, and where they differ.

A step is held against the peak of its device, the closed form of its plan, and the published run
that is most like it. Where it is further from one of these than predictions of its kind are from
measured steps, something is wrong with the question or with the answer, and that is said.
"""

from collections.abc import Iterator
from math import log

from msgspec import Struct

from stepsim.base.option import Panel
from stepsim.base.units import PS_PER_S, format_time_ps
from stepsim.explain.report import Finding
from stepsim.options import OPTIONS, StepOptions
from stepsim.parallel.schedules import Schedule
from stepsim.parallel.schedules.combined_1f1b import PAIRED
from stepsim.step.inputs import BuiltModel
from stepsim.step.model_plan import slowing_of
from stepsim.workload.model.coverage import said_of_device
from stepsim.workload.model.effort import Effort
from stepsim.workload.model.framework import PublishedRate
from stepsim.workload.model.step_time import StepModel

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

_MOST_UNLIKE = 2.0
"""A run is like a step up to so many times its parameters, work of a token and sequence."""
_MOST_UNLIKE_JOB = 4.0
"""A run is like a step up to so many times its NPUs, and tokens of one in a step."""
_OTHER_DEVICE = 0.5
"""How unlike a device of the same generation is, where 1 is the limit."""
_SAME = 0.05
"""A run is of the same size where it is no further than this share of the limit."""
_WIDER = 1.5
"""A guess: the power of the range where a run is not of the same size, as beyond the largest."""


class SecondLook(Struct, frozen=True, kw_only=True):
    """What else is known of a step of a model that was `built`, of an `effort`.

    `asked` are the options that it was asked with, `schedule` is what became of its schedule.
    """

    built: BuiltModel
    effort: Effort
    asked: StepOptions
    schedule: str | Schedule

    def findings(self, step_time_ps: int) -> Iterator[Finding]:
        """Where a step time is further from another answer than predictions are known to be.

        That nothing is known of the device is said first.
        """
        if not step_time_ps:
            return
        built = self.built
        sparse = built.architecture.is_sparse
        said = said_of_device(built.device, built.framework.name, sparse=sparse)
        if said and self.effort.band is None:
            yield Finding(text=said)
        step_s, effort = step_time_ps / PS_PER_S, self.effort
        rate = effort.hardware_flops / self.built.plan.npus / step_s
        if rate > effort.peak_flops:
            yield Finding(
                text=f"no {effort.device} is so fast: {rate / 1e12:,.0f} TFLOP/s in "
                f"{self.built.plan.precision}, of which it has {effort.peak_flops / 1e12:,.0f}"
            )
        if all(option.name in _COUNTED for option in self.asked.changed()):
            off = tuple(self._off_closed_form(step_s))
            yield from off
            yield from self._off_published(step_s, doubtful=bool(off))

    def closed_form_s(self) -> float | None:
        """Seconds of the step by the closed form of its plan; None where there is none."""
        built = self.built
        if built.interconnect is None or self.schedule not in _CLOSED_FORMS:
            return None
        model = StepModel(
            architecture=built.architecture,
            device=built.device,
            framework=built.framework,
            interconnect=built.interconnect,
            slowing=slowing_of(self.asked, built.device, built.framework),
        )
        return float(model.seconds([built.plan])[0])

    def nearest(self) -> PublishedRate | None:
        """The published run that is most like the step; None where none is like it.

        It has the same framework, generation of devices, precision and kind of model; at most twice
        or half the parameters, floating-point operations of a token and sequence; and four times or
        a quarter of the NPUs and of their tokens in a step.
        """
        built = self.built
        alike = (built.device.generation, built.plan.precision, built.architecture.is_sparse)
        runs = [
            run
            for run in built.framework.rates
            if (run.generation, run.precision, run.experts) == alike and max(self._unlike(run)) <= 1
        ]
        return min(runs, key=lambda run: sum(self._unlike(run)), default=None)

    def _unlike(self, run: PublishedRate) -> tuple[float, ...]:
        """How far a run is from the step in each respect: 0 for the same, 1 at the limit."""
        plan, effort = self.built.plan, self.effort
        device = 0.0 if run.device == effort.device else _OTHER_DEVICE
        ratios = (
            (effort.parameters / run.parameters, _MOST_UNLIKE),
            (effort.model_flops / effort.tokens / run.flops_per_token, _MOST_UNLIKE),
            (plan.sequence / run.sequence, _MOST_UNLIKE),
            (plan.npus / run.npus, _MOST_UNLIKE_JOB),
            (effort.tokens * run.npus / (run.tokens * plan.npus), _MOST_UNLIKE_JOB),
        )
        return device, *(abs(log(ratio)) / log(most) for ratio, most in ratios)

    def _range(self, power: float = 1.0) -> tuple[float, float]:
        """Factors between which a step of its kind is expected, to a power."""
        band = self.effort.band
        low, high = (band.low, band.high) if band and band.others else _RANGE
        return low**power, high**power

    def _off_closed_form(self, step_s: float) -> Iterator[Finding]:
        seconds, (low, high) = self.closed_form_s(), self._range()
        if seconds is not None and not low <= seconds / step_s <= high:
            said = format_time_ps(round(seconds * PS_PER_S))
            yield Finding(
                text=f"the closed form of this plan says {said}: "
                "what it leaves out (groups that share links, stages that differ) is more than "
                "predictions of this kind are off; the parts of the step say what it is"
            )

    def _off_published(self, step_s: float, *, doubtful: bool) -> Iterator[Finding]:
        """How far the published run is; the prediction is `doubtful` where its closed form is."""
        run = self.nearest()
        if run is None:
            return
        effort = self.effort
        mfu = effort.model_flops / effort.peak_flops / self.built.plan.npus / step_s
        low, high = self._range(_WIDER if max(self._unlike(run)) > _SAME else 1.0)
        wrong = ", or the prediction is wrong" if doubtful else ""
        if not low <= mfu / run.mfu <= high:
            yield Finding(
                text=f"this step has an MFU of {mfu:.0%}; {said_of(run)} reached {run.mfu:.0%}, "
                f"and {low:.2f} to {high:.2f} times as much is expected: plan, settings or links "
                f"differ from those of that run{wrong}"
            )


def said_of(run: PublishedRate) -> str:
    """A published run in words."""
    size = f"{run.parameters / 1e9:.3g} billion parameters, sequence {run.sequence:,}"
    return f"{run.model} ({size}) on {run.npus:,} {run.device} in {run.precision} ({run.source})"
