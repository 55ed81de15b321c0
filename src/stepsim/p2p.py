"""Point-to-point programs: when each rank posts its messages and what it waits for.

The program is all that tells the runtimes apart: a schedule says what is computed in which order,
a program adds POST and WAIT to it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from stepsim.errors import ScheduleError
from stepsim.schedules import Action, ActionKind, Schedule
from stepsim.schedules.one_f_one_b import warm_up


class P2PMode(StrEnum):
    """How point-to-point messages are sent, see `program`."""

    EAGER = "eager"
    BLOCKING = "blocking"


class Direction(StrEnum):
    """Which end of a message a rank holds."""

    SEND = "send"
    RECV = "recv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The output of an action on its way to the action that needs it.

    `kind` is F for activations, B for gradients; `source` and `target` are virtual stages.
    """

    kind: ActionKind
    source: int
    target: int
    microbatch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Run an action."""

    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Post messages together. `wait`: go on when all are over.

    Without `queued` a message is free: it leaves when it is posted, overtaking others, and is
    received when it comes.
    """

    messages: tuple[tuple[Direction, Message], ...]
    wait: bool
    queued: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Go on when these received messages are there."""

    messages: tuple[Message, ...]


Step = Compute | Post | Wait


def default_mode(schedule: Schedule) -> P2PMode:
    """What the schedule's runtime does unless asked otherwise."""
    return P2PMode.BLOCKING if schedule.name == "1f1b" else P2PMode.EAGER


def program(schedule: Schedule, mode: P2PMode, rank: int) -> Iterator[Step]:
    """Steps of one rank.

    `eager`: the consumer may start one hop after the producer ended; senders never wait. Defined
    for every schedule. `blocking`: Megatron-LM's runtime without overlap
    (`forward_backward_pipelining_without_interleaving`, every p2p call waits). Raises
    ScheduleError where a schedule does not define the mode.
    """
    if mode is P2PMode.EAGER:
        return _eager(schedule, rank)
    if schedule.name != "1f1b":
        raise ScheduleError(f"schedule {schedule.name} does not define p2p {mode}: expected eager")
    return _blocking_1f1b(schedule, rank)


def input_message(schedule: Schedule, action: Action) -> Message | None:
    """What an action receives, None at the ends of the pipeline."""
    if action.kind is ActionKind.FORWARD:
        source, kind = action.stage - 1, ActionKind.FORWARD
    else:
        source, kind = action.stage + 1, ActionKind.BACKWARD
    if not 0 <= source < schedule.placement.stages:
        return None
    return Message(kind=kind, source=source, target=action.stage, microbatch=action.microbatch)


def output_message(schedule: Schedule, action: Action) -> Message | None:
    """What an action sends, None at the ends of the pipeline."""
    if action.kind is ActionKind.FORWARD:
        target, kind = action.stage + 1, ActionKind.FORWARD
    else:
        target, kind = action.stage - 1, ActionKind.BACKWARD
    if not 0 <= target < schedule.placement.stages:
        return None
    return Message(kind=kind, source=action.stage, target=target, microbatch=action.microbatch)


def _eager(schedule: Schedule, rank: int) -> Iterator[Step]:
    for action in schedule.orders[rank]:
        received = input_message(schedule, action)
        if received:
            yield Post(messages=((Direction.RECV, received),), wait=False, queued=False)
            yield Wait(messages=(received,))
        yield Compute(action=action)
        sent = output_message(schedule, action)
        if sent:
            yield Post(messages=((Direction.SEND, sent),), wait=False, queued=False)


def _blocking_1f1b(schedule: Schedule, rank: int) -> Iterator[Step]:
    """K x ([recv F], F, [send F]); [recv F]; (F, [send F, recv B], B, [send B, recv F]); drain."""
    ranks, count = schedule.placement.ranks, schedule.microbatches
    lead = warm_up(rank, ranks, count)
    order = schedule.orders[rank]

    def post(*ends: tuple[Direction, Action]) -> Iterator[Step]:
        return _batch(schedule, ends)

    for forward in order[:lead]:
        yield from post((Direction.RECV, forward))
        yield Compute(action=forward)
        yield from post((Direction.SEND, forward))
    steady = order[lead : 2 * count - lead]
    if steady:
        yield from post((Direction.RECV, steady[0]))
    for i in range(0, len(steady), 2):
        forward, backward = steady[i], steady[i + 1]
        following = [(Direction.RECV, steady[i + 2])] if i + 2 < len(steady) else []
        yield Compute(action=forward)
        yield from post((Direction.SEND, forward), (Direction.RECV, backward))
        yield Compute(action=backward)
        yield from post((Direction.SEND, backward), *following)
    for backward in order[2 * count - lead :]:
        yield from post((Direction.RECV, backward))
        yield Compute(action=backward)
        yield from post((Direction.SEND, backward))


def _batch(schedule: Schedule, ends: Sequence[tuple[Direction, Action]]) -> Iterator[Step]:
    """One batch: absent neighbours drop out, an empty batch is free."""
    messages = tuple(
        (direction, message)
        for direction, action in ends
        if (
            message := output_message(schedule, action)
            if direction is Direction.SEND
            else input_message(schedule, action)
        )
    )
    if messages:
        yield Post(messages=messages, wait=True)
