"""Which pipeline schedule a run followed, told by the order of what its ranks ran."""

from stepsim.base.arrays import rows_of
from stepsim.base.errors import ScheduleError
from stepsim.measured.profile.events import Events, Profile
from stepsim.measured.run import OpKind
from stepsim.measured.run_profile import of_kinds
from stepsim.parallel.schedules import (
    BUILDERS,
    Action,
    ActionKind,
    Placement,
    PlacementKind,
    Schedule,
    build,
    needs_times,
)
from stepsim.run.spans import UNKNOWN

_ACTIONS = {
    OpKind.FORWARD: ActionKind.FORWARD,
    OpKind.BACKWARD: ActionKind.BACKWARD,
    OpKind.WEIGHT_GRAD: ActionKind.WEIGHT_GRAD,
}

# Actions of a rank in order, with their microbatches and virtual stages.
_Steps = list[tuple[ActionKind, int, int]]


def recognise(run: Profile) -> Schedule | None:
    """The first schedule whose order every traced rank followed, None if there is none.

    Virtual stages count where the run tells those of its chunks apart. Schedules that refuse the
    run's shape, or are searched for by times, are left out.
    """
    orders = [_order_of(run.of_rank(i)) for i in range(len(run.ranks))]
    degrees = run.degrees
    forwards = [stage for kind, _, stage in orders[0] if kind is ActionKind.FORWARD]
    chunks, split = (
        len(forwards) // degrees.microbatches,
        any(kind is ActionKind.WEIGHT_GRAD for order in orders for kind, _, _ in order),
    )
    told = len(set(forwards)) == chunks

    def shown(kind: ActionKind, microbatch: int, stage: int) -> tuple[ActionKind, int, int]:
        return kind, microbatch, stage if told else UNKNOWN

    seen = [[shown(*step) for step in order] for order in orders]
    shape = {"ranks": degrees.pp, "microbatches": degrees.microbatches, "chunks": chunks}
    for name in BUILDERS:
        try:
            schedule = build(name, **shape)
        except ScheduleError:
            continue
        if schedule.splits_backward != split or needs_times(name):
            continue
        planned = [
            [shown(each.kind, each.microbatch, each.stage) for each in schedule.actions(stage)]
            for stage in range(degrees.pp)
        ]
        pairs = zip(run.ranks, seen, strict=True)
        if all(order == planned[rank.stage or 0] for rank, order in pairs):
            return schedule
    return None


def recorded_schedule(run: Profile) -> Schedule | None:
    """The order that a run of several chunks or of its own making followed, by a rank per stage.

    None where a stage was not traced. Virtual stages lie in turn, or down and up again.
    """
    pp = run.degrees.pp
    if len(run.stages) < pp:
        return None
    orders = [_order_of(run.of_rank(run.of_stage(stage)[0])) for stage in range(pp)]
    held = [sorted({stage for _, _, stage in order}) for order in orders]
    chunks = len(held[0])
    turned = chunks > 1 and held[0][1] != pp
    placement = Placement(
        ranks=pp, chunks=chunks, kind=PlacementKind.V if turned else PlacementKind.LOOP
    )
    actions = [
        tuple(
            Action(kind=kind, stage=stage, chunk=own.index(stage), microbatch=microbatch)
            for kind, microbatch, stage in order
        )
        for own, order in zip(held, orders, strict=True)
    ]
    return Schedule(
        name=RECORDED,
        placement=placement,
        microbatches=run.degrees.microbatches,
        orders=tuple(actions),
    )


RECORDED = "recorded"
"""Name of an order that is that of no schedule known here."""


def _order_of(events: Events) -> _Steps:
    """Actions of a rank in order; a backward whose weights are apart is that of its input."""
    places = of_kinds(events, *_ACTIONS)
    acted = events.taken(places)
    rows = rows_of(acted.name, acted.microbatch, acted.chunk)
    order = [(_ACTIONS[OpKind(kind)], number, stage) for kind, number, stage in rows]
    apart = {(number, at) for kind, number, at in order if kind is ActionKind.WEIGHT_GRAD}
    return [
        (ActionKind.INPUT_GRAD, number, at)
        if kind is ActionKind.BACKWARD and (number, at) in apart
        else (kind, number, at)
        for kind, number, at in order
    ]
