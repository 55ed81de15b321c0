"""Other schedules and numbers of microbatches of a run whose pipeline is known."""

import numpy as np

from stepsim.base.errors import PlanError, ScheduleError, TraceError
from stepsim.explain.changes.made import Changes, ProfileChange, UntoldChange
from stepsim.explain.pipelined import Orders, Pipelined, pipelined
from stepsim.explain.rescheduled import rescheduled
from stepsim.measured.layers import WEIGHT_GRAD_SHARE
from stepsim.measured.profile.waits import Waits
from stepsim.measured.recognise import whole_schedules
from stepsim.parallel.schedules import Schedule, build

_MOST_OFF = 0.02
"""A run that is rebuilt worse tells nothing of other orders."""
_FAMILY = "other-schedules"


def schedule_changes(waits: Waits) -> Changes:
    """Other orders of the run's forwards and backwards, and twice the microbatches."""
    try:
        run = pipelined(waits)
    except PlanError as error:
        yield UntoldChange(name=_FAMILY, why=str(error))
        return
    base = waits.steps_ps(waits.own_ps, waits.delay_ps)
    rebuilt, own, delay = rescheduled(
        run, run.orders, chunks=run.chunks, microbatches=run.microbatches
    )
    off = float(np.abs(rebuilt.steps_ps(own, delay) / np.maximum(base, 1) - 1).mean())
    if off > _MOST_OFF:
        why = f"its own order, rebuilt, is {off:.1%} off: ranks do not follow one order"
        yield UntoldChange(name=_FAMILY, why=why)
        return
    for name, chunks, microbatches in _candidates(run):
        yield _rescheduled(run, name, chunks, microbatches, off)


def _candidates(run: Pipelined) -> list[tuple[str, int, int]]:
    """Names of schedules, chunks of a rank and microbatches."""
    now, had, count = _followed(run), run.chunks, run.microbatches
    more = [("interleaved", 2 * had, count)]
    if had == 1:
        more += [("1f1b", 1, count)] if now != "1f1b" else []
        more.append(("zb-h1", 1, count))
    else:
        more += [("interleaved", had, count)] if now != "interleaved" else []
        more += [("1f1b", 1, count), ("interleaved-zb", had, count)]
    if now:
        more.append((now, had, 2 * count))
    return more


def _followed(run: Pipelined) -> str | None:
    """The name of the schedule that the run followed, None if no known one."""
    known = whole_schedules(run.stages, run.microbatches, run.chunks)
    return next((schedule.name for schedule in known if _orders(schedule) == run.orders), None)


def _orders(schedule: Schedule) -> Orders:
    return {stage: [*schedule.actions(stage)] for stage in range(len(schedule.orders))}


def _rescheduled(
    run: Pipelined, name: str, chunks: int, microbatches: int, off: float
) -> ProfileChange | UntoldChange:
    """A change to a schedule, or why it cannot run."""
    more = microbatches != run.microbatches
    label = "twice-the-microbatches" if more else f"schedule-{name}"
    label += f"-{chunks}" if chunks > 1 and not more else ""
    try:
        schedule = build(name, ranks=run.stages, microbatches=microbatches, chunks=chunks)
        waits, own, delay = rescheduled(
            run, _orders(schedule), chunks=chunks, microbatches=microbatches
        )
        waits.check_order()
    except (ScheduleError, TraceError) as error:
        return UntoldChange(name=label, why=str(error).splitlines()[0])
    what = f"{microbatches} microbatches in place of {run.microbatches}, under {name}"
    return ProfileChange(
        name=label,
        what=what if more else f"the pipeline runs {schedule.label}",
        assumed=_assumed(run, schedule, off),
        waits=waits,
        own_ps=own,
        delay_ps=delay,
        best_ps=run.busiest_ps,
    )


def _assumed(run: Pipelined, schedule: Schedule, off: float) -> str:
    """What has to hold for a schedule."""
    told = ["activations fit", f"the run's own order, rebuilt, is {off:.2%} off"]
    if schedule.splits_backward:
        told.insert(0, f"weight gradients are {WEIGHT_GRAD_SHARE:.0%} of a backward")
    if schedule.placement.chunks != run.chunks:
        told.insert(0, "a rank's layers are shared out evenly over its chunks")
        told += ["messages block no compute"] if run.blocks else []
    if schedule.microbatches != run.microbatches:
        told.insert(0, "half a microbatch takes half as long")
    return "; ".join(told)
