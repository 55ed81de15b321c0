"""The program of a general pipeline runtime: torch's `_PipelineScheduleRuntime`.

Ranks are walked through in rounds; whenever the next entry of a rank has its inputs, it is ordered,
its sends are posted right after it, and the matching receives are posted on the other ranks at that
point of theirs. Compute waits only for what it needs; sends are waited for at the end of the step.
"""

import numpy as np

from stepsim.base.arrays import Ints, ints
from stepsim.parallel.p2p import P2PProgram, StepKind
from stepsim.parallel.p2p.plain import MessageEnds, Steps, exchanges, far_ranks, program_of
from stepsim.parallel.schedules import Schedule

# The turn of what is not sent yet.
_NEVER = 1 << 62


def overlapped(schedule: Schedule) -> list[P2PProgram]:
    """Programs of all ranks of a schedule that can run (see `check_schedule`)."""
    moved = [exchanges(schedule, rank) for rank in range(len(schedule.orders))]
    steps = [list[Steps]() for _ in moved]
    for own, turn, ends in zip(steps, _turns(schedule, moved), moved, strict=True):
        own.extend(Steps(StepKind.WAIT, turn, received) for received in ends.received.T)
        own.append(Steps(StepKind.COMPUTE, turn, np.arange(len(turn))))
        for sent in ends.sent.T:
            own.append(Steps(StepKind.POST, turn, sent))
            far = far_ranks(schedule, sent)
            for rank in np.flatnonzero(np.bincount(far[sent >= 0])).tolist():
                receipts = np.where((far == rank) & (sent >= 0), sent + 1, -1)
                steps[rank].append(Steps(StepKind.POST, turn, receipts))
    return [program_of(each) for each in steps]


def _turns(schedule: Schedule, moved: list[MessageEnds]) -> list[Ints]:
    """The turn of every entry of every rank.

    Rank r of P has the turns r, P + r, 2P + r, ... An entry has the first after that of the entry
    before it and those in which its inputs are sent.
    """
    needed, sent = ([each[part].tolist() for each in moved] for part in range(2))
    turns: list[list[int]] = [[] for _ in moved]
    # by end of a message; the last is that of no message, which nobody waits for
    sent_in = [_NEVER] * (4 * schedule.placement.stages * schedule.microbatches) + [-1]
    waiting = list(range(len(moved)))
    while waiting:
        before = sum(map(len, turns))
        for rank in waiting:
            own = turns[rank]
            last = own[-1] if own else -1
            for place in range(len(own), len(needed[rank])):
                for end in needed[rank][place]:
                    last = max(last, sent_in[end])
                if last == _NEVER:
                    break
                last += 1 + (rank - last - 1) % len(moved)
                own.append(last)
                for end in sent[rank][place]:
                    sent_in[end + 1] = last
        waiting = [rank for rank in waiting if len(turns[rank]) < len(needed[rank])]
        assert not waiting or sum(map(len, turns)) > before  # see check_schedule
    return [ints(own) for own in turns]
