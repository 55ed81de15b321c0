"""The program of a general pipeline runtime: torch's `_PipelineScheduleRuntime`.

Ranks are walked through in rounds; whenever the next entry of a rank has its inputs, it is ordered,
its sends are posted right after it, and the matching receives are posted on the other ranks at that
point of theirs. Compute waits only for what it needs; sends are waited for at the end of the step.
"""

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.errors import ScheduleError
from stepsim.parallel.p2p import P2PProgram, StepKind
from stepsim.parallel.p2p.columns import exchanges, far_ranks
from stepsim.parallel.schedules import Schedule
from stepsim.parallel.schedules.check import stuck_words

_COMPUTE, _POST, _WAIT = (int(kind) for kind in StepKind)


def overlapped(schedule: Schedule) -> list[P2PProgram]:
    """Programs of all ranks. Raises ScheduleError when no order of the entries is possible."""
    moved = [exchanges(schedule, rank) for rank in range(len(schedule.orders))]
    needed, leaving = ([_present(each[i]) for each in moved] for i in range(2))
    far = [_receivers(schedule, each.sent) for each in moved]
    steps: list[list[tuple[int, int]]] = [[] for _ in moved]
    posted: set[int] = set()
    place = [0] * len(moved)
    waiting = list(range(len(moved)))
    while waiting:
        before = sum(place)
        for rank in waiting:
            here = place[rank]
            if here == len(needed[rank]) or not posted.issuperset(needed[rank][here]):
                continue
            steps[rank] += [(_WAIT, end) for end in needed[rank][here]]
            steps[rank].append((_COMPUTE, here))
            for end in leaving[rank][here]:
                steps[rank].append((_POST, end))
                steps[far[rank][end]].append((_POST, end + 1))
                posted.add(end + 1)
            place[rank] += 1
        waiting = [rank for rank in waiting if place[rank] < len(needed[rank])]
        if waiting and sum(place) == before:
            raise ScheduleError(f"schedule {schedule.name}: {stuck_words(schedule, place)}")
    return [_program(each) for each in steps]


def _present(ends: Ints) -> list[list[int]]:
    return [[end for end in several if end >= 0] for several in ends.tolist()]


def _receivers(schedule: Schedule, sent: Ints) -> dict[int, int]:
    """Rank that receives each message that is sent, by its end."""
    ends = sent[sent >= 0]
    return dict(zip(ends.tolist(), far_ranks(schedule, ends).tolist(), strict=True))


def _program(steps: list[tuple[int, int]]) -> P2PProgram:
    columns = np.array(steps, dtype=np.int32).reshape(-1, 2)
    return P2PProgram(
        kind=columns[:, 0].astype(np.int8),
        what=columns[:, 1],
        alone=np.zeros(len(columns), dtype=bool),
    )
