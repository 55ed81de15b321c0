"""Which pipeline schedule a run followed, told by the order of its forwards and backwards."""

from collections.abc import Iterator

from stepsim.base.errors import ScheduleError
from stepsim.measured.profile.events import Events
from stepsim.measured.run import OpKind
from stepsim.measured.run_profile import RunProfile, of_kinds
from stepsim.parallel.schedules import BUILDERS, ActionKind, Schedule, build

_ACTIONS = {OpKind.FORWARD: ActionKind.FORWARD, OpKind.BACKWARD: ActionKind.BACKWARD}

_Steps = list[tuple[ActionKind, int]]
"""Forwards and backwards of a rank in order, with their microbatches."""


def recognise(run: RunProfile) -> Schedule | None:
    """The first schedule whose order every traced rank followed, None if there is none."""
    degrees, orders = run.degrees, [_order_of(run.of_rank(i)) for i in range(len(run.ranks))]
    forwards = sum(kind is ActionKind.FORWARD for kind, _ in orders[0])
    chunks = forwards // degrees.microbatches
    for schedule in whole_schedules(degrees.pp, degrees.microbatches, chunks):
        planned = [
            [(action.kind, action.microbatch) for action in schedule.actions(stage)]
            for stage in range(degrees.pp)
        ]
        pairs = zip(run.ranks, orders, strict=True)
        if all(order == planned[rank.stage or 0] for rank, order in pairs):
            return schedule
    return None


def _order_of(events: Events) -> _Steps:
    """Forwards and backwards of a rank as its trace has them."""
    places = of_kinds(events, *_ACTIONS)
    pairs = zip(events.name[places].tolist(), events.microbatch[places].tolist(), strict=True)
    return [(_ACTIONS[OpKind(kind)], microbatch) for kind, microbatch in pairs]


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
