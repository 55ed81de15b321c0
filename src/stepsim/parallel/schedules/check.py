"""Whether an order can run: every action once, where its stage lies, after all that it needs.

A forward needs the output of the stage before. A backward, or its input-gradient part, needs its
own forward and the input gradient of the stage after; a weight gradient needs the input-gradient
part of its stage. What stands on another rank is waited for; what stands later on the same rank,
or in the same fused pair, never comes. Input and weight gradients are parts as in Qi et al.,
arXiv:2401.10241.
"""

from collections import Counter
from collections.abc import Iterator

from stepsim.base.errors import ScheduleError
from stepsim.base.structs import Noun
from stepsim.parallel.schedules.base import Action, ActionKind, OrderEntry, Schedule

_WHOLE = {ActionKind.FORWARD, ActionKind.BACKWARD}
_SPLIT = {ActionKind.FORWARD, ActionKind.INPUT_GRAD, ActionKind.WEIGHT_GRAD}
COMPLETE = (_WHOLE, _SPLIT)
"""What a stage may run of a microbatch: F and B, or F, I and W."""

# Output (F) or input gradient (I) of a stage and microbatch.
_Result = tuple[ActionKind, int, int]


class _Misplaced(Noun):
    """An entry of a rank's order that stands before one whose result it needs."""

    rank: int
    place: int
    needed: str


def check_schedule(schedule: Schedule) -> None:
    """Raise ScheduleError unless a schedule's orders are complete and can run."""
    _check_actions(schedule)
    found = find_misplaced(schedule)
    if found:
        token = schedule.orders[found.rank][found.place].token
        raise ScheduleError(
            f"schedule {schedule.name}: rank {found.rank} runs {token} at place {found.place}: "
            f"expected it after {found.needed}, whose result it needs"
        )


def find_misplaced(schedule: Schedule) -> _Misplaced | None:
    """The first entry, rank by rank, that can never run where it stands; None if all can.

    Raises ScheduleError where ranks wait for each other for ever.
    """
    places = _walk(schedule)
    if all(place == len(order) for place, order in zip(places, schedule.orders, strict=True)):
        return None
    for rank, place in enumerate(places):
        left = schedule.orders[rank][place:]
        if left:
            ahead = {
                result: action.token
                for entry in left
                for action in entry.parts()
                for result in _gives(action)
            }
            for needed in _needs(left[0], schedule.placement.stages):
                if needed in ahead:
                    return _Misplaced(rank=rank, place=place, needed=ahead[needed])
    waiting = (
        f"rank {rank} at {order[place].token}"
        for rank, (place, order) in enumerate(zip(places, schedule.orders, strict=True))
        if place < len(order)
    )
    raise ScheduleError(
        f"schedule {schedule.name}: deadlock, its actions wait for each other: {', '.join(waiting)}"
    )


def _walk(schedule: Schedule) -> list[int]:
    """How many entries of each rank can run; a rank that waits is woken by what it waits for."""
    places = [0] * len(schedule.orders)
    done: set[_Result] = set()
    waiting: dict[_Result, list[int]] = {}
    ready = list(range(len(places)))
    while ready:
        rank = ready.pop()
        while places[rank] < len(schedule.orders[rank]):
            entry = schedule.orders[rank][places[rank]]
            needs = _needs(entry, schedule.placement.stages)
            if missing := next((each for each in needs if each not in done), None):
                waiting.setdefault(missing, []).append(rank)
                break
            for result in _gives(entry):
                done.add(result)
                ready += waiting.pop(result, [])
            places[rank] += 1
    return places


def _needs(entry: OrderEntry, stages: int) -> Iterator[_Result]:
    for action in entry.parts():
        stage, microbatch = action.stage, action.microbatch
        if action.kind is ActionKind.FORWARD:
            if stage > 0:
                yield ActionKind.FORWARD, stage - 1, microbatch
        elif action.kind is ActionKind.WEIGHT_GRAD:
            yield ActionKind.INPUT_GRAD, stage, microbatch
        else:
            yield ActionKind.FORWARD, stage, microbatch
            if stage + 1 < stages:
                yield ActionKind.INPUT_GRAD, stage + 1, microbatch


def _gives(entry: OrderEntry) -> Iterator[_Result]:
    for action in entry.parts():
        if action.kind is ActionKind.FORWARD:
            yield ActionKind.FORWARD, action.stage, action.microbatch
        elif action.kind is not ActionKind.WEIGHT_GRAD:
            yield ActionKind.INPUT_GRAD, action.stage, action.microbatch


def _check_actions(schedule: Schedule) -> None:
    """Raise ScheduleError unless each stage runs each microbatch once, on the rank it lies on."""
    placement = schedule.placement
    if len(schedule.orders) != placement.ranks:
        raise ScheduleError(
            f"schedule {schedule.name}: orders of {len(schedule.orders)} ranks: expected "
            f"{placement.ranks}, those of the placement"
        )
    seen: dict[tuple[int, int], Counter[ActionKind]] = {}
    for rank in range(placement.ranks):
        for action in schedule.actions(rank):
            _check_place(schedule, rank, action)
            seen.setdefault((action.stage, action.microbatch), Counter())[action.kind] += 1
    for stage in range(placement.stages):
        for microbatch in range(schedule.microbatches):
            kinds = seen.get((stage, microbatch), Counter())
            if set(kinds) not in COMPLETE or kinds.total() != len(kinds):
                found = ", ".join(kinds.elements()) or "nothing"
                raise ScheduleError(
                    f"schedule {schedule.name}: stage {stage} runs {found} of microbatch "
                    f"{microbatch}: expected F and B, or F, I and W, each once"
                )


def _check_place(schedule: Schedule, rank: int, action: Action) -> None:
    """Raise ScheduleError unless an action is of the rank's chunk and of a microbatch there is."""
    placement = schedule.placement
    here = f"schedule {schedule.name}: rank {rank} runs {action.token} in chunk {action.chunk}"
    limits = {
        "microbatches": (action.microbatch, schedule.microbatches),
        "stages": (action.stage, placement.stages),
        "chunks": (action.chunk, placement.chunks),
    }
    for name, (number, count) in limits.items():
        if not 0 <= number < count:
            raise ScheduleError(f"{here}: expected {name} 0 to {count - 1}")
    expected = placement.stage(rank, action.chunk)
    if expected != action.stage:
        raise ScheduleError(f"{here}: expected stage {expected} in that chunk")
    owner = placement.rank(action.stage, action.microbatch)
    if owner != rank:
        raise ScheduleError(f"{here}: expected it on rank {owner}")
