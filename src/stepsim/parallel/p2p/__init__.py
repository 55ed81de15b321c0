"""Point-to-point programs: when each rank posts its messages and what it waits for.

The program is all that tells runtimes apart: a schedule says what is computed in which order, a
program adds POST and WAIT to it.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum

from stepsim.base.errors import ScheduleError
from stepsim.parallel.p2p.steps import (
    Direction,
    Message,
    P2POptions,
    P2PProgram,
    StepKind,
)
from stepsim.parallel.schedules import Schedule

_Programs = Callable[[Schedule, P2POptions], Iterable[P2PProgram]]
"""Steps of every rank, made when their turn comes.

Raises ScheduleError where a schedule does not define the mode.
"""


def _eager(schedule: Schedule, _: P2POptions) -> Iterable[P2PProgram]:
    """The consumer may start one hop after the producer ended: for every schedule."""
    from stepsim.parallel.p2p.plain import eager

    return (eager(schedule, rank) for rank in range(schedule.placement.ranks))


def _blocking(schedule: Schedule, _: P2POptions) -> Iterable[P2PProgram]:
    """Megatron-LM's runtimes without overlap, for gpipe, 1f1b and interleaved."""
    ranks, several = range(schedule.placement.ranks), schedule.placement.chunks > 1
    if not schedule.megatron:
        raise ScheduleError(
            f"schedule {schedule.name} does not define p2p blocking: torch's runtime never waits "
            "for a whole batch (expected eager or overlap)"
        )
    if several and len(ranks) == 2:
        raise ScheduleError(
            "schedule interleaved: Megatron refuses p2p blocking on 2 ranks: expected eager or "
            "overlap"
        )
    if several:
        from stepsim.parallel.p2p.interleaved import interleaved_blocking

        return (interleaved_blocking(schedule, rank) for rank in ranks)
    from stepsim.parallel.p2p.plain import blocking

    return (blocking(schedule, rank) for rank in ranks)


def _overlap(schedule: Schedule, options: P2POptions) -> Iterable[P2PProgram]:
    """Megatron-LM's interleaved runtime with `overlap_p2p_comm`; for other schedules torch's."""
    from stepsim.parallel.p2p.interleaved import interleaved_overlap
    from stepsim.parallel.p2p.runtime import overlapped

    if schedule.megatron and schedule.placement.chunks > 1:
        ranks = range(schedule.placement.ranks)
        return (interleaved_overlap(schedule, rank, options) for rank in ranks)
    return overlapped(schedule)


class P2PMode(StrEnum):
    """How point-to-point messages are sent, and the programs that do it.

    Where a mode is `free`, messages leave when they are posted and senders never wait.
    """

    programs: _Programs
    free: bool

    def __new__(cls, name: str, programs: _Programs, free: bool = False) -> "P2PMode":
        """A mode with what makes the programs of its ranks."""
        mode = str.__new__(cls, name)
        mode._value_ = name
        mode.programs = programs
        mode.free = free
        return mode

    EAGER = "eager", _eager, True
    BLOCKING = "blocking", _blocking
    OVERLAP = "overlap", _overlap


def default_mode(schedule: Schedule) -> P2PMode:
    """What the schedule's runtime does unless asked otherwise."""
    blocks = schedule.megatron and schedule.placement.chunks == 1
    return P2PMode.BLOCKING if blocks else P2PMode.OVERLAP


__all__ = [
    "Direction",
    "Message",
    "P2PMode",
    "P2POptions",
    "P2PProgram",
    "StepKind",
    "default_mode",
]
