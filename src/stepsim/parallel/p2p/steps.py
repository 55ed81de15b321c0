"""Steps of a point-to-point program: compute, post messages, wait for them."""

from enum import StrEnum
from typing import NamedTuple

from stepsim.base.records import dataclass
from stepsim.parallel.schedules import ActionKind, Schedule


class Direction(StrEnum):
    """Which end of a message a rank holds."""

    SEND = "send"
    RECV = "recv"


class Message(NamedTuple):
    """The output of an action on its way to the action that needs it.

    `kind` is F for activations, B for gradients; `source` and `target` are virtual stages.
    """

    kind: ActionKind
    source: int
    target: int
    microbatch: int


End = tuple[Direction, Message]
"""One end of a message."""


class Compute(NamedTuple):
    """Run entry number `place` of the rank's order."""

    place: int


class Post(NamedTuple):
    """Post messages together; with `wait` go on when all are over."""

    ends: tuple[End, ...]
    wait: bool = False


class Wait(NamedTuple):
    """Go on when these posted messages are over."""

    ends: tuple[End, ...]


Step = Compute | Post | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class P2POptions:
    """What a runtime is configured to do.

    `warmup_flush`: Megatron's `overlap_p2p_comm_warmup_flush`, the steady form in warm-up and
    cool-down too. `deallocate_outputs`: its `deallocate_pipeline_outputs`, every asynchronous
    forward send is waited for at once.
    """

    warmup_flush: bool = False
    deallocate_outputs: bool = False


class Exchange(NamedTuple):
    """Ends of the messages that an entry needs and of those it sends; none within a rank."""

    received: tuple[End, ...]
    sent: tuple[End, ...]


def exchanges(schedule: Schedule, rank: int) -> list[Exchange]:
    """What each entry of a rank's order exchanges with other ranks."""
    stages, rank_of = schedule.placement.stages, schedule.placement.rank
    found = []
    for entry in schedule.orders[rank]:
        needed: list[End] = []
        leaving: list[End] = []
        for action in entry.parts():
            stage, j = action.stage, action.microbatch
            if action.kind is ActionKind.WEIGHT_GRAD:
                continue
            forward = action.kind is ActionKind.FORWARD
            kind = ActionKind.FORWARD if forward else ActionKind.BACKWARD
            before, after = (stage - 1, stage + 1) if forward else (stage + 1, stage - 1)
            if 0 <= before < stages and rank_of(before, j) != rank:
                needed.append((Direction.RECV, Message(kind, before, stage, j)))
            if 0 <= after < stages and rank_of(after, j) != rank:
                leaving.append((Direction.SEND, Message(kind, stage, after, j)))
        found.append(Exchange(tuple(needed), tuple(leaving)))
    return found
