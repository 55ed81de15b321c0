"""Steps of a point-to-point program: compute, post messages, wait for them.

A message has a number, and its ends have two: twice that of the message for the sender, one more
for the receiver.
"""

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, NamedTuple, Self

from msgspec import Struct

from stepsim.parallel.schedules import ActionKind, Schedule

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stepsim.base.arrays import Bools, Small


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


class P2PProgram(Struct, frozen=True, kw_only=True, eq=False):
    """Steps of a rank, in order, as columns.

    `what` is the place of the entry that is computed, or an end of a message. A rank goes on when
    what it waits for is over; where it is `alone`, what it waited for before is no longer of
    interest, and the steps of this kind that follow each other are waited for together.
    """

    kind: "NDArray[np.int8]"
    what: "Small"
    alone: "Bools"


class P2POptions(Struct, frozen=True, kw_only=True):
    """What a runtime is configured to do.

    `warmup_flush`: Megatron's `overlap_p2p_comm_warmup_flush`, the steady form in warm-up and
    cool-down too. `deallocate_outputs`: its `deallocate_pipeline_outputs`, every asynchronous
    forward send is waited for at once.
    """

    warmup_flush: bool = False
    deallocate_outputs: bool = False
