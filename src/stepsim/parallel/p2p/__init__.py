"""Point-to-point programs: when each rank posts its messages and what it waits for.

The program is all that tells runtimes apart: a schedule says what is computed in which order, a
program adds POST and WAIT to it.
"""

from collections.abc import Iterable

from stepsim.base.errors import ScheduleError
from stepsim.parallel.modes import P2PMode
from stepsim.parallel.p2p.interleaved import interleaved_blocking, interleaved_overlap
from stepsim.parallel.p2p.plain import blocking, eager
from stepsim.parallel.p2p.runtime import overlapped
from stepsim.parallel.p2p.steps import (
    Compute,
    Direction,
    End,
    Message,
    P2POptions,
    Post,
    Step,
    Wait,
)
from stepsim.parallel.schedules import Runtime, Schedule


def default_mode(schedule: Schedule) -> P2PMode:
    """What the schedule's runtime does unless asked otherwise."""
    blocks = schedule.runtime is Runtime.MEGATRON and schedule.placement.chunks == 1
    return P2PMode.BLOCKING if blocks else P2PMode.OVERLAP


def programs(schedule: Schedule, mode: P2PMode, options: P2POptions) -> list[Iterable[Step]]:
    """Steps of every rank.

    `eager`: the consumer may start one hop after the producer ended; senders never wait. Defined
    for every schedule. `blocking`: Megatron-LM's runtimes without overlap, for gpipe, 1f1b and
    interleaved. `overlap`: Megatron-LM's interleaved runtime with `overlap_p2p_comm`; for other
    schedules torch's. Raises ScheduleError where a schedule does not define the mode.
    """
    ranks = range(schedule.placement.ranks)
    megatron = schedule.runtime is Runtime.MEGATRON
    several = schedule.placement.chunks > 1
    if mode is P2PMode.EAGER:
        return [eager(schedule, rank) for rank in ranks]
    if mode is P2PMode.OVERLAP:
        if megatron and several:
            return [interleaved_overlap(schedule, rank, options) for rank in ranks]
        return list(overlapped(schedule))
    if not megatron:
        raise ScheduleError(
            f"schedule {schedule.name} does not define p2p {mode}: torch's runtime never waits for "
            "a whole batch (expected eager or overlap)"
        )
    if several and len(ranks) == 2:
        raise ScheduleError(
            "schedule interleaved: Megatron refuses p2p blocking on 2 ranks: expected eager or "
            "overlap"
        )
    one_rank = interleaved_blocking if several else blocking
    return [one_rank(schedule, rank) for rank in ranks]


__all__ = [
    "Compute",
    "Direction",
    "End",
    "Message",
    "P2POptions",
    "Post",
    "Step",
    "Wait",
    "default_mode",
    "programs",
]
