"""Point-to-point programs: when each rank posts its messages and what it waits for.

The program is all that tells runtimes apart: a schedule says what is computed in which order, a
program adds POST and WAIT to it. A message has a number, and its ends have two: twice that of the
message for the sender, one more for the receiver.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from stepsim.base.errors import ScheduleError
from stepsim.base.structs import Noun
from stepsim.base.units import NameWithFields
from stepsim.parallel.schedules import ActionKind, Schedule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stepsim.base.arrays import Bools, Small


class Message(NamedTuple):
    """The output of an action on its way to the action that needs it.

    `kind` is F for activations, B for gradients; `source` and `target` are virtual stages.
    """

    kind: ActionKind
    source: int
    target: int
    microbatch: int

    @classmethod
    def of(cls, schedule: Schedule, number: int) -> Self:
        """The message with a number."""
        rest, microbatch = divmod(number, schedule.microbatches)
        backward, source = divmod(rest, schedule.placement.stages)
        kind = ActionKind.BACKWARD if backward else ActionKind.FORWARD
        return cls(kind, source, source - 1 if backward else source + 1, microbatch)


class StepKind(IntEnum):
    """What a step is: an entry of the order is computed, a message posted, or waited for."""

    COMPUTE = 0
    POST = 1
    WAIT = 2


class P2PProgram(Noun, eq=False):
    """Steps of a rank, in order, as columns.

    `what` is the place of the entry that is computed, or an end of a message. A rank goes on when
    what it waits for is over; where it is `alone`, what it waited for before is no longer of
    interest, and the steps of this kind that follow each other are waited for together.
    """

    kind: "NDArray[np.int8]"
    what: "Small"
    alone: "Bools"


class P2POptions(Protocol):
    """What a runtime is configured to do, among the options of a step."""

    @property
    def warmup_flush(self) -> bool:
        """Megatron's `overlap_p2p_comm_warmup_flush`: the steady form in warm-up and cool-down."""

    @property
    def deallocate_outputs(self) -> bool:
        """Its `deallocate_pipeline_outputs`: asynchronous forward sends are waited for at once."""


# Steps of every rank, made when their turn comes.
#
# Raises ScheduleError where a schedule does not define the mode.
_Programs = Callable[[Schedule, P2POptions], Iterable[P2PProgram]]


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


class P2PMode(NameWithFields):
    """How point-to-point messages are sent, and the programs that do it.

    Where a mode is `free`, messages leave when they are posted and senders never wait.
    """

    programs: _Programs
    free: bool

    EAGER = "eager", _eager, True
    BLOCKING = "blocking", _blocking, False
    OVERLAP = "overlap", _overlap, False


def default_mode(schedule: Schedule) -> P2PMode:
    """What the schedule's runtime does unless asked otherwise."""
    blocks = schedule.megatron and schedule.placement.chunks == 1
    return P2PMode.BLOCKING if blocks else P2PMode.OVERLAP


__all__ = [
    "Message",
    "P2PMode",
    "P2POptions",
    "P2PProgram",
    "StepKind",
    "default_mode",
]
