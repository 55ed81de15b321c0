"""What is worth a second run: doubts, groups that lie in several nodes, and what overlap costs.

A doubt is worth the difference to the step as it would be without it. What it costs that groups lie
in several nodes or racks is the difference to a step in which they do not. Overlap is free unless a
step asks otherwise: constants that were set again with its cost make published runs of several
sources worse (docs/decisions/0084). So an answer says what it leaves out.
"""

from collections.abc import Iterator

from stepsim.base.errors import StepsimError
from stepsim.base.structs import Values, replace
from stepsim.base.units import format_time_ps
from stepsim.explain.report import Finding, Report, by_weight
from stepsim.files.asked import StepInputs
from stepsim.network.placement import SIZES_OF_GROUPS, Crossing, whole_degrees
from stepsim.network.prices import Known
from stepsim.options import OPTIONS, StepOptions
from stepsim.parallel.modes import Sharing
from stepsim.step.prepared import PreparedStep, prepare
from stepsim.workload.overlap import CommSms
from stepsim.workload.rows import Doubt


def weighed(report: Report, ready: PreparedStep) -> Report:
    """The report of a step with what doubts about its workload are worth, and what crossing costs.

    The weightiest doubt comes first.
    """
    if ready.doubts:
        found = sorted((_weigh(each, ready, report) for each in ready.doubts), key=by_weight)
        said = tuple(each.text for each in found if each.is_negligible)
        kept = (*report.findings, *(each for each in found if not each.is_negligible))
        report = replace(report, findings=kept, notes=(*report.notes, *said))
    if ready.crossing is None or not report.step_time_ps:
        return report
    return _with_crossing(report, ready, ready.crossing)


def _weigh(doubt: Doubt, ready: PreparedStep, report: Report) -> Finding:
    """What a doubt about the workload is worth.

    The step of the other workload is asked for; its text where that cannot be.
    """
    step, options = report.step_time_ps, ready.job.options
    if doubt.mended is None or not step:
        return Finding(text=doubt.text)
    try:
        asked = replace(ready.job.asked, workload=doubt.mended, options=options)
        worth = prepare(asked, known=ready.prices.known).step_time_ps() / step - 1
    except StepsimError as error:
        return Finding(text=f"{doubt.text} ({error})")
    said = f"the step takes {abs(worth):.1%} {'longer' if worth > 0 else 'shorter'}"
    remedy = f" ({doubt.remedy})" if doubt.remedy else ""
    return Finding(text=f"{doubt.text}: with {doubt.instead} {said}{remedy}", worth=worth)


def _with_crossing(report: Report, ready: PreparedStep, crossing: Crossing) -> Report:
    """The report with what a crossing costs: beside it the first other step that runs and fits.

    A crossing that nothing runs without, or only slower, is a warning beside others.
    """
    for flags, options in _without_crossing(ready, crossing):
        try:
            other = prepare(replace(ready.job.asked, options=options))
            if other.unfit and not ready.unfit:
                continue
            step_ps = other.step_time_ps()
        except StepsimError:
            continue
        worth = step_ps / report.step_time_ps - 1
        beside = f"{abs(worth):.1%} {'longer' if worth > 0 else 'shorter'}"
        said = f"{crossing.text}{flags}: a step of {format_time_ps(step_ps)}, {beside}"
        if crossing.is_avoidable or worth < 0:
            return replace(report, findings=(Finding(text=said, worth=worth), *report.findings))
        return replace(report, warnings=(said, *report.warnings))
    return replace(report, warnings=(crossing.text, *report.warnings))


def _without_crossing(ready: PreparedStep, crossing: Crossing) -> Iterator[tuple[str, StepOptions]]:
    """Options of steps whose groups may lie in one node or rack, and flags that are no remedy.

    That is another placement; else, of a model, smaller degrees of the first kind of groups that
    cross, the largest first. The job keeps its size and its batch.
    """
    if crossing.is_avoidable:
        placed = {"placement": crossing.other_placement, "rank_order": crossing.other_order}
        yield "", replace(ready.job.asked.options, **placed)
        return
    plan, group = ready.graph.plan, crossing.groups[0]
    name, batch = SIZES_OF_GROUPS[group], plan.global_batch
    same = replace(ready.job.options, npus=plan.npus, microbatches=None, global_batch=batch)
    degrees = whole_degrees(ready.job.asked.topology, plan, crossing.placement, group)
    for degree in degrees if ready.job.setup else ():
        words = " ".join(OPTIONS[name].words(str(degree), short=True))
        changed: Values = {name: degree}
        yield f", with {words} they fit in one", replace(same, **changed)


FREE = "overlap is free: communication does not slow the compute beside it; with --overlap-cost on"
WORTH_SAYING = 0.005
"""What overlap costs is said from this share of a step on."""


def slowed_ps(asked: StepInputs, known: Known | None = None) -> int | None:
    """The step with what overlap costs, in ps.

    None where it has that already, or the law is not known: of workload files, on devices whose
    multiprocessors are not counted or are shared, of links shared in time, of measured memory.
    """
    from stepsim.workload.model.device import Device

    options, device = asked.options, asked.options.device
    is_free = not options.overlap_cost and options.contention is not Sharing.FAIR
    if not (is_free and isinstance(device, Device)):
        return None
    # a compute unit of CDNA runs blocks of several kernels: there the law is worse than no slowdown
    has_law = device.processors is not None and not device.generation.startswith("cdna")
    if not has_law or options.activation_size_bytes is not None:
        return None
    slowed = asked.asking(overlap_cost=CommSms(), engine=None)
    return prepare(slowed, known=known, quick=True).step_time_ps()


def said_of_step(ready: PreparedStep, step_ps: int) -> Iterator[str]:
    """What overlap would cost a step that took so long, where that is worth a line."""
    asked = replace(ready.job.asked, options=ready.job.options)
    slowed = slowed_ps(asked, ready.prices.known) or 0
    if slowed > step_ps * (1 + WORTH_SAYING):
        more = f"{slowed / step_ps - 1:+.1%}"
        yield f"{FREE} the step takes {format_time_ps(slowed)} ({more})"
