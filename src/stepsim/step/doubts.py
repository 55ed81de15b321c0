"""What is worth a second run: doubts, groups that lie in several nodes, and what overlap costs.

A doubt is worth the difference to the step as it would be without it. What it costs that groups lie
in several nodes or racks is the difference to a step in which they do not. Overlap is free unless a
step asks otherwise: constants that were set again with its cost make published runs of several
sources worse (docs/decisions/0084). So an answer says what it leaves out.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import inf
from typing import Any

from stepsim.base.errors import StepsimError
from stepsim.base.structs import replace
from stepsim.base.units import format_time_ps
from stepsim.explain.report import WEIGHTY, Finding, Report, by_weight
from stepsim.files.asked import StepInputs
from stepsim.network.placement import SIZES_OF_GROUPS, Crossing, whole_degrees
from stepsim.network.prices import Known
from stepsim.options import OPTIONS, StepOptions
from stepsim.parallel.modes import Sharing
from stepsim.step.job import scaled_workload
from stepsim.step.prepared import PreparedStep, prepare
from stepsim.workload.axes import CollectiveKind, Group
from stepsim.workload.overlap import CommSms
from stepsim.workload.rows import Doubt, StepItem, Work, Workload

# The slowest picoseconds per byte of communications of a kind in a group.
_Rates = dict[tuple[str, str], float]


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

    The step of the other workload is asked for where that may be weighty; else the bound is told:
    no chain of tasks meets a stage's rows more often than there are microbatches and stages.
    """
    step, options = report.step_time_ps, ready.job.options
    if doubt.mended is None or not step:
        return Finding(text=doubt.text)
    mended, _ = scaled_workload(doubt.mended, options)
    worth = _bound_ps(ready.workload, mended, report) / step
    said = f"the step changes by at most {worth:.1%}"
    if worth >= WEIGHTY:
        try:
            asked = replace(ready.job.asked, workload=doubt.mended, options=options)
            other = prepare(asked, known=ready.prices.known)
            worth = other.step_time_ps() / step - 1
        except StepsimError as error:
            return Finding(text=f"{doubt.text} ({error})")
        said = f"the step takes {abs(worth):.1%} {'longer' if worth > 0 else 'shorter'}"
    remedy = f" ({doubt.remedy})" if doubt.remedy else ""
    return Finding(text=f"{doubt.text}: with {doubt.instead} {said}{remedy}", worth=worth)


def _bound_ps(before: Workload, after: Workload, report: Report) -> float:
    """Picoseconds by which the step can change at most, infinite where that is not known."""
    if len(before.microbatches) != len(after.microbatches):
        return inf
    stages, rates = report.plan["pp"], _Rates()
    for use in report.comms:
        key = use.group, use.kind
        rates[key] = max(rates.get(key, 0.0), use.time_ps / use.size_bytes)
    passes = (report.microbatches + stages - 1) * max(before.degrees["pp"] / stages, 1)
    message = rates.get((Group.PP, CollectiveKind.SEND_RECV), inf if stages > 1 else 0.0)
    moved = abs(after.pp_comm_bytes - before.pp_comm_bytes)
    rows = _most_of_a_microbatch(before, after, rates)
    items = zip(before.per_step, after.per_step, strict=True)
    once = sum(_most_of_a_stage(old, new, rates) for old, new in items)
    return passes * (rows + (2 * moved * message if moved else 0.0)) + once


def _most_of_a_microbatch(before: Workload, after: Workload, rates: _Rates) -> float:
    """The largest change of one microbatch on a stage that holds all rows."""
    blocks = zip(before.microbatches, after.microbatches, strict=True)
    return max(
        sum(
            _change_ps(old_work, new_work, rates)
            for old, new in zip(one.rows(), other.rows(), strict=True)
            if old is not new
            for (_, old_work), (_, new_work) in zip(old.works(), new.works(), strict=True)
        )
        for one, other in blocks
    )


def _most_of_a_stage(before: StepItem, after: StepItem, rates: _Rates) -> float:
    """The largest change of an item on a stage with embedding and head, and on one without."""
    old, new = (
        each.times(compute=Fraction(1), sizes=1 - each.embedding_share - each.head_share).work
        for each in (before, after)
    )
    return max(_change_ps(before.work, after.work, rates), _change_ps(old, new, rates))


def _change_ps(before: Work, after: Work, rates: _Rates) -> float:
    """The most that a change of compute and of bytes can add or take."""
    if before is after:
        return 0.0
    sizes: dict[tuple[str, str], int] = {}
    for work, sign in ((after, 1), (before, -1)):
        for op in work.comms:
            key = op.group, op.kind
            sizes[key] = sizes.get(key, 0) + sign * op.size_bytes
    moved = sum(abs(size) * rates.get(key, inf) for key, size in sizes.items() if size)
    return abs(after.compute_ps - before.compute_ps) + moved


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
        changed: dict[str, Any] = {name: degree}
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
