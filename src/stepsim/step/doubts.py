"""What the doubts about a workload are worth: the step run again as it would be without each."""

from collections.abc import Callable, Iterable
from math import inf

from stepsim.base.errors import StepsimError
from stepsim.options import StepOptions
from stepsim.results.findings import WEIGHTY, Finding, by_weight
from stepsim.results.report import Report
from stepsim.step.inputs import scaled_workload
from stepsim.workload.placeholders import doubt_placeholders
from stepsim.workload.rows import CollectiveKind, Doubt, Group, Work, Workload

_Rates = dict[tuple[str, str], float]
"""The slowest picoseconds per byte of communications of a kind in a group."""


def doubts_of(workload: Workload, options: StepOptions) -> tuple[Doubt, ...]:
    """What a workload can hardly mean and the options do not mend."""
    bare = None if options.fill_placeholders else doubt_placeholders(workload)
    return (*workload.doubts, *([bare] if bare else []))


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
        bound = _bound_ps(workload, scaled_workload(doubt.mended, options)[0], report) / step
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
    passes = (report.microbatches + stages - 1) * max(before.made_for.pp / stages, 1)
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
