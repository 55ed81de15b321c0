"""Steps of a point-to-point program: compute, post messages, wait for them."""

from dataclasses import dataclass
from enum import StrEnum

from stepsim.schedules import Action, ActionKind, Entry, Schedule


class P2PMode(StrEnum):
    """How point-to-point messages are sent, see `stepsim.p2p.program`."""

    EAGER = "eager"
    BLOCKING = "blocking"
    OVERLAP = "overlap"


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


End = tuple[Direction, Message]
"""One end of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Run entry number `place` of the rank's order."""

    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Post messages together; with `wait` go on when all are over."""

    ends: tuple[End, ...]
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Go on when these posted messages are over."""

    ends: tuple[End, ...]


Step = Compute | Post | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class P2POptions:
    """What a runtime is configured to do.

    `warmup_flush`: Megatron's `overlap_p2p_comm_warmup_flush`, the steady form in warm-up and
    cool-down too. `deallocate_outputs`: its `deallocate_pipeline_outputs`, every asynchronous
    forward send is waited for at once. `eager_transfers`: a transfer starts when its send is
    posted and sends are never waited for; otherwise it starts when both sides have posted.
    """

    warmup_flush: bool = False
    deallocate_outputs: bool = False
    eager_transfers: bool = False


def input_message(schedule: Schedule, action: Action) -> Message | None:
    """What an action needs from another rank; None at the ends and within a rank."""
    match action.kind:
        case ActionKind.FORWARD:
            return _message(schedule, ActionKind.FORWARD, action.stage - 1, action.stage, action)
        case ActionKind.BACKWARD | ActionKind.INPUT_GRAD:
            return _message(schedule, ActionKind.BACKWARD, action.stage + 1, action.stage, action)
        case ActionKind.WEIGHT_GRAD:
            return None


def output_message(schedule: Schedule, action: Action) -> Message | None:
    """What an action sends to another rank; None at the ends and within a rank."""
    match action.kind:
        case ActionKind.FORWARD:
            return _message(schedule, ActionKind.FORWARD, action.stage, action.stage + 1, action)
        case ActionKind.BACKWARD | ActionKind.INPUT_GRAD:
            return _message(schedule, ActionKind.BACKWARD, action.stage, action.stage - 1, action)
        case ActionKind.WEIGHT_GRAD:
            return None


def _message(
    schedule: Schedule, kind: ActionKind, source: int, target: int, action: Action
) -> Message | None:
    placement, j = schedule.placement, action.microbatch
    if not (0 <= source < placement.stages and 0 <= target < placement.stages):
        return None
    if placement.rank(source, j) == placement.rank(target, j):
        return None
    return Message(kind=kind, source=source, target=target, microbatch=j)


def received(schedule: Schedule, entry: Entry) -> tuple[End, ...]:
    """Ends of the messages an entry needs."""
    messages = (input_message(schedule, action) for action in entry.parts())
    return tuple((Direction.RECV, message) for message in messages if message)


def sent(schedule: Schedule, entry: Entry) -> tuple[End, ...]:
    """Ends of the messages an entry sends."""
    messages = (output_message(schedule, action) for action in entry.parts())
    return tuple((Direction.SEND, message) for message in messages if message)
