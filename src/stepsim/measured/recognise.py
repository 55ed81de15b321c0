"""Which pipeline schedule a run followed, told by the order of its forwards and backwards."""

from collections.abc import Iterator

from stepsim.base.errors import ScheduleError
from stepsim.measured.run import MeasuredRun, OpKind, RankTrace
from stepsim.parallel.schedules import BUILDERS, ActionKind, Schedule, build

_ACTIONS = {OpKind.FORWARD: ActionKind.FORWARD, OpKind.BACKWARD: ActionKind.BACKWARD}

_Steps = list[tuple[ActionKind, int]]
"""Forwards and backwards of a rank in order, with their microbatches."""


def _order_of(trace: RankTrace) -> _Steps:
    """Forwards and backwards as a trace has them."""
    return [
        (_ACTIONS[OpKind(int(trace.kind[place]))], int(trace.microbatch[place]))
        for place in trace.of(*_ACTIONS)
    ]


def recognise(run: MeasuredRun) -> Schedule | None:
    """The first schedule whose order every traced rank followed, None if there is none."""
    degrees, orders = run.degrees, {trace.rank: _order_of(trace) for trace in run.ranks}
    forwards = sum(kind is ActionKind.FORWARD for kind, _ in orders[run.ranks[0].rank])
    chunks = forwards // degrees.microbatches
    for schedule in whole_schedules(degrees.pp, degrees.microbatches, chunks):
        planned = [
            [(action.kind, action.microbatch) for action in schedule.actions(stage)]
            for stage in range(degrees.pp)
        ]
        if all(orders[trace.rank] == planned[trace.stage] for trace in run.ranks):
            return schedule
    return None


def whole_schedules(ranks: int, microbatches: int, chunks: int) -> Iterator[Schedule]:
    """Every schedule of a shape that does not split backwards: those that a run may have followed.

    Schedules that refuse the shape are left out.
    """
    for name in BUILDERS:
        try:
            schedule = build(name, ranks=ranks, microbatches=microbatches, chunks=chunks)
        except ScheduleError:
            continue
        if not schedule.splits_backward:
            yield schedule
