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
    orders = {trace.rank: _order_of(trace) for trace in run.ranks}
    for schedule in _candidates(run, orders[run.ranks[0].rank]):
        planned = [
            [(action.kind, action.microbatch) for action in schedule.actions(stage)]
            for stage in range(run.degrees.pp)
        ]
        if all(orders[trace.rank] == planned[trace.stage] for trace in run.ranks):
            return schedule
    return None


def _candidates(run: MeasuredRun, order: _Steps) -> Iterator[Schedule]:
    """Schedules with whole backwards that have as many forwards as the trace."""
    ranks, count = run.degrees.pp, run.degrees.microbatches
    chunks = sum(kind is ActionKind.FORWARD for kind, _ in order) // count
    for name in BUILDERS:
        try:
            schedule = build(name, ranks=ranks, microbatches=count, chunks=chunks)
        except ScheduleError:
            continue
        if not schedule.splits_backward:
            yield schedule
