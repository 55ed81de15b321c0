"""The program of a general pipeline runtime: torch's `_PipelineScheduleRuntime`.

Ranks are walked through in rounds; whenever the next entry of a rank has its inputs, it is ordered,
its sends are posted right after it, and the matching receives are posted on the other ranks at that
point of theirs. Compute waits only for what it needs; sends are waited for at the end of the step.
"""

from collections.abc import Callable

import numpy as np

from stepsim.base.arrays import Ints, divided
from stepsim.base.errors import ScheduleError
from stepsim.parallel.p2p import P2PProgram, StepKind
from stepsim.parallel.p2p.columns import exchanges, far_ranks
from stepsim.parallel.schedules import Schedule
from stepsim.parallel.schedules.check import stuck_words

_COMPUTE, _POST, _WAIT = (int(kind) for kind in StepKind)
_KINDS = len(StepKind)
"""A step is written as one number: what it is of, times this, and its kind."""
_RECEIPT = _KINDS
"""From the number of a send's post to that of its receipt's: the end after it."""
_WAITED = _RECEIPT + _WAIT - _POST
"""From the number of a send's post to that of the wait for its receipt."""


def overlapped(schedule: Schedule) -> list[P2PProgram]:
    """Programs of all ranks. Raises ScheduleError when no order of the entries is possible."""
    moved = [exchanges(schedule, rank) for rank in range(len(schedule.orders))]
    needed = [_steps(each.received, _WAIT) for each in moved]
    leaving = [_steps(each.sent, _POST) for each in moved]
    steps: list[list[int]] = [[] for _ in moved]
    post = {}
    for each in moved:
        post |= _receipts(schedule, each.sent, steps)
    posted: set[int] = set()
    place = [0] * len(moved)
    waiting = list(range(len(moved)))
    while waiting:
        before = sum(place)
        for rank in waiting:
            here, own = place[rank], steps[rank]
            if not posted.issuperset(needed[rank][here]):
                continue
            own += needed[rank][here]
            own.append(_KINDS * here + _COMPUTE)
            for send in leaving[rank][here]:
                own.append(send)
                post[send](send + _RECEIPT)
                posted.add(send + _WAITED)
            place[rank] = here + 1
        waiting = [rank for rank in waiting if place[rank] < len(needed[rank])]
        if waiting and sum(place) == before:
            raise ScheduleError(f"schedule {schedule.name}: {stuck_words(schedule, place)}")
    return [_program(each) for each in steps]


def _steps(ends: Ints, kind: int) -> list[list[int]]:
    """For every entry the steps of a kind for its ends of messages."""
    return [[_KINDS * end + kind for end in several if end >= 0] for several in ends.tolist()]


def _receipts(
    schedule: Schedule, sent: Ints, steps: list[list[int]]
) -> dict[int, Callable[[int], None]]:
    """What adds a step to those of the receiver, by the number of the send's post."""
    ends = sent[sent >= 0]
    posts = (_KINDS * ends + _POST).tolist()
    far = far_ranks(schedule, ends).tolist()
    return {post: steps[rank].append for post, rank in zip(posts, far, strict=True)}


def _program(steps: list[int]) -> P2PProgram:
    what, kind = divided(np.array(steps, dtype=np.int32), _KINDS)
    return P2PProgram(kind=kind.astype(np.int8), what=what, alone=np.zeros(len(steps), dtype=bool))
