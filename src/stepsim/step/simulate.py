"""One training step, from what a user says to what is reported."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import ParamSpec

from stepsim.base import garbage as collector
from stepsim.engine.prices import Prices
from stepsim.engine.timeline import Timeline
from stepsim.results.report import Report, make_report
from stepsim.step.prepare import Job, prepare, run_graph
from stepsim.step.settings import changed_settings

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, kw_only=True, repr=False)
class SimulatedStep:
    """A step that has run: what is reported, when every task ran, and at which prices."""

    report: Report
    timeline: Timeline
    prices: Prices

    @property
    def step_time_s(self) -> float:
        """Step time in seconds."""
        return self.report.step_time_s


def run_job(job: Job, settings: Mapping[str, str]) -> SimulatedStep:
    """Run a job and analyse what happened; the report records the `settings` that made it."""
    timeline = run_graph(
        job.graph,
        job.prices,
        fold_ranks=job.fold_ranks,
        slow=job.slow,
        sharing=job.sharing,
        progress=job.progress,
    )
    report = make_report(
        timeline,
        job.prices,
        workload=job.workload.source,
        schedule=job.schedule,
        p2p=job.options.p2p,
        contention=job.sharing,
        activation_bytes=job.activation_bytes,
        settings=settings,
        warnings=job.warnings,
    )
    return SimulatedStep(report=report, timeline=timeline, prices=job.prices)


def _running(prepare: Callable[Arguments, Job]) -> Callable[Arguments, SimulatedStep]:
    """The function that also runs what a function prepares; its help says that it does."""
    taken = signature(prepare)
    defaults = {each.name: each.default for each in taken.parameters.values()}

    @wraps(prepare)
    def simulate(*args: Arguments.args, **options: Arguments.kwargs) -> SimulatedStep:
        with collector.paused():
            return run_job(prepare(*args, **options), changed_settings(options, defaults))

    simulate.__name__ = simulate.__qualname__ = "simulate"
    about = (prepare.__doc__ or "").partition("\n\n")[2]
    simulate.__doc__ = f"Simulate one training step.\n\n{about}"
    # what help() shows; mypy does not know functions to have it
    simulate.__signature__ = taken.replace(return_annotation=SimulatedStep)  # type: ignore[attr-defined]
    return simulate


simulate = _running(prepare)
