"""What is worth a second run: doubts, groups that lie in several nodes, and what overlap costs.

A doubt is worth the difference to the step as it would be without it. What it costs that groups lie
in several nodes or racks is the difference to a step in which they do not. Overlap is free unless a
step asks otherwise: constants that were set again with its cost make published runs of several
sources worse (docs/decisions/0084). So an answer says what it leaves out.
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any

from stepsim.base.errors import StepsimError
from stepsim.base.structs import replace
from stepsim.base.units import format_time_ps
from stepsim.core.flat import Flat
from stepsim.core.timeline import Timeline
from stepsim.explain.report import WEIGHTY, Finding, Report, by_weight
from stepsim.network.placement import SIZES_OF_GROUPS, Crossing, whole_degrees
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.options import OPTIONS, StepOptions
from stepsim.parallel.modes import Sharing
from stepsim.step.job import WorkSource, scaled_workload
from stepsim.step.prepared import PreparedStep, prepare
from stepsim.workload.axes import CollectiveKind, Group
from stepsim.workload.model.model import Model
from stepsim.workload.overlap import CommSms
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Doubt, Work, Workload

_Rates = dict[tuple[str, str], float]
"""The slowest picoseconds per byte of communications of a kind in a group."""


def weighed(report: Report, ready: PreparedStep, flat: Flat) -> Report:
    """The report of a step with what doubts about its workload are worth, and what crossing costs.

    `flat` is the table that it was laid out in.
    """

    def again(workload: Workload) -> int:
        other = prepare(workload, ready.machine, ready.options, known=ready.prices.known)
        return other.step_time_ps(flat)

    def step_time(other: StepOptions) -> int | None:
        prepared = prepare(ready.source, ready.machine, other)
        return None if prepared.unfit and not ready.unfit else prepared.step_time_ps()

    if ready.doubts:
        found = weigh_doubts(ready.doubts, ready.workload, ready.options, report, again)
        said = tuple(each.text for each in found if each.is_negligible)
        kept = (*report.findings, *(each for each in found if not each.is_negligible))
        report = replace(report, findings=kept, notes=(*report.notes, *said))
    crossing = ready.crossing
    if crossing is None or not report.step_time_ps:
        return report
    smaller: Iterator[tuple[str, StepOptions]] = iter(())
    if ready.job.setup:
        plan = ready.graph.plan
        smaller = smaller_degrees(crossing, ready.machine, plan, ready.options)
    return with_crossing(report, crossing, ready.job.asked, step_time, smaller)


def weigh_doubts(
    doubts: Iterable[Doubt],
    workload: Workload,
    options: StepOptions,
    report: Report,
    again: Callable[[Workload], int],
) -> tuple[Finding, ...]:
    """What doubts about a workload that ran are worth, the weightiest first.

    `again` is the step time of a workload in ps. It is asked for those that may be weighty; of
    others the bound is told: no chain of tasks meets a stage's rows more often than there are
    microbatches and stages.
    """

    def weigh(doubt: Doubt) -> Finding:
        step = report.step_time_ps
        if doubt.mended is None or not step:
            return Finding(text=doubt.text)
        mended, _ = scaled_workload(doubt.mended, options)
        bound = _bound_ps(workload, mended, report) / step
        if bound < WEIGHTY:
            return _finding(doubt, f"the step changes by at most {bound:.1%}", bound)
        try:
            worth = again(doubt.mended) / step - 1
        except StepsimError as error:
            return Finding(text=f"{doubt.text} ({error})")
        way = "longer" if worth > 0 else "shorter"
        return _finding(doubt, f"the step takes {abs(worth):.1%} {way}", worth)

    return tuple(sorted(map(weigh, doubts), key=by_weight))


def _finding(doubt: Doubt, said: str, worth: float) -> Finding:
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
    once = sum(_change_ps(old.work, new.work, rates) for old, new in items)
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
        text = f"{crossing.text}, with {flag} they fit in one"
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
    plan: Plan,
    options: StepOptions,
) -> Iterator[tuple[str, StepOptions]]:
    """Options of a model with smaller degrees of the first kind of groups that cross, with flags.

    The largest come first. The job keeps its size and its batch.
    """
    group = crossing.groups[0]
    name = SIZES_OF_GROUPS[group]
    same = replace(options, npus=plan.npus, microbatches=None, global_batch=plan.global_batch)
    for degree in whole_degrees(topology, plan, crossing.placement, group):
        words = OPTIONS[name].words(str(degree), short=True)
        changed: dict[str, Any] = {name: degree}
        yield " ".join(words), replace(same, **changed)


FREE = "overlap is free: communication does not slow the compute beside it; with --overlap-cost on"
WORTH_SAYING = 0.005
"""What overlap costs is said from this share of a step on."""


def slowed_step_ps(
    source: WorkSource,
    topology: Topology,
    options: StepOptions,
    known: Known,
    like: Flat | None = None,
) -> int | None:
    """Step time in ps with what overlap costs; `known` is as `prepare` takes it, `like` a table.

    None where the step has it already, or the law is not known: of workload files, of devices whose
    multiprocessors are not counted or are shared, of links shared in time, of measured memory.
    """
    from stepsim.workload.model.device import Device

    device = options.device
    is_free = not options.overlap_cost and options.contention is not Sharing.FAIR
    has_law = isinstance(source, Model) and isinstance(device, Device) and device.law_holds
    if not (is_free and has_law) or options.activation_size_bytes is not None:
        return None
    asked = replace(options, overlap_cost=CommSms(), engine=None)
    return prepare(source, topology, asked, known=known, quick=True).step_time_ps(like)


def said_of_step(ready: PreparedStep, ran: Timeline) -> Iterator[str]:
    """What overlap would cost a step that ran, where that is worth a line."""
    step_ps, known = ran.step_time_ps, ready.prices.known
    slowed_ps = slowed_step_ps(ready.source, ready.machine, ready.options, known, ran.flat)
    if slowed_ps and slowed_ps > step_ps * (1 + WORTH_SAYING):
        more = f"{slowed_ps / step_ps - 1:+.1%}"
        yield f"{FREE} the step takes {format_time_ps(slowed_ps)} ({more})"
