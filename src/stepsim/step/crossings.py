"""What it costs that groups lie in several nodes or racks: a step in which they do not."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from stepsim.base.errors import StepsimError
from stepsim.base.structs import replace
from stepsim.base.units import format_time_ps
from stepsim.network.topology import Topology
from stepsim.options import OPTIONS, StepOptions
from stepsim.parallel.placement import SIZES_OF_GROUPS, Crossing, whole_degrees
from stepsim.parallel.ranks import ParallelPlan
from stepsim.results.findings import Finding
from stepsim.results.report import Report

if TYPE_CHECKING:
    from stepsim.workload.model.plan import ModelPlan

StepTime = Callable[[StepOptions], int | None]
"""The step time under other options, in ps; None where the job does not fit. Raises."""


def with_crossing(
    report: Report,
    crossing: Crossing,
    options: StepOptions,
    step_time: StepTime,
    smaller: Iterator[tuple[str, StepOptions]],
) -> Report:
    """The report with what a crossing costs.

    Another placement has a step, or the first of `smaller` degrees that runs: flags and options. A
    crossing that nothing runs without, or only slower, is a warning beside others.
    """
    if crossing.is_avoidable:
        order = crossing.other_order
        other = replace(options, placement=crossing.other_placement, rank_order=order)
        step = step_time(other)
        assert step is not None
        return _with_worth(report, crossing.text, step)
    for flag, other in smaller:
        try:
            step = step_time(other)
        except StepsimError:
            continue
        if step is None:
            continue
        text = f"{crossing.text}, with {flag} in one"
        if step < report.step_time_ps:
            return _with_worth(report, text, step)
        said = f"{text}: {_compared(step, report.step_time_ps)}"
        return replace(report, warnings=(said, *report.warnings))
    return replace(report, warnings=(crossing.text, *report.warnings))


def _with_worth(report: Report, text: str, step_ps: int) -> Report:
    """The report with another step time as what a finding is worth."""
    worth = step_ps / report.step_time_ps - 1
    found = Finding(text=f"{text}: {_compared(step_ps, report.step_time_ps)}", worth=worth)
    return replace(report, findings=(found, *report.findings))


def _compared(step_ps: int, than_ps: int) -> str:
    worth = step_ps / than_ps - 1
    way = "longer" if worth > 0 else "shorter"
    return f"a step of {format_time_ps(step_ps)}, {abs(worth):.1%} {way}"


def smaller_degrees(
    crossing: Crossing,
    topology: Topology,
    ranks: ParallelPlan,
    plan: "ModelPlan",
    options: StepOptions,
) -> Iterator[tuple[str, StepOptions]]:
    """Options of a model with smaller degrees of the first kind of groups that cross, with flags.

    The largest come first. The job keeps its size and its batch.
    """
    group = crossing.groups[0]
    name = SIZES_OF_GROUPS[group]
    same = replace(
        options, npus=plan.npus, microbatches=None, global_batch=plan.global_batch, plan=None
    )
    for degree in whole_degrees(topology, ranks, crossing.placement, group):
        words = OPTIONS[name].words(str(degree), short=True)
        changed: dict[str, Any] = {name: degree}
        yield " ".join(words), replace(same, **changed)
