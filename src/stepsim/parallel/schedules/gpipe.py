"""GPipe: each rank runs all forwards, then all backwards.

Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism",
NeurIPS 2019; torch `ScheduleGPipe`.
"""

from stepsim.base.errors import ScheduleError, bad_value
from stepsim.parallel.schedules.base import (
    Action,
    ActionKind,
    Placement,
    Runtime,
    Schedule,
    check_shape,
)


def gpipe(*, ranks: int, microbatches: int, chunks: int = 1) -> Schedule:
    """GPipe for any number of microbatches, in ascending order in both directions.

    Raises ScheduleError for more than one chunk.
    """
    check_shape("gpipe", ranks=ranks, microbatches=microbatches, chunks=chunks)
    if chunks != 1:
        allowed = "1 (looped-bfs holds more)"
        raise ScheduleError(bad_value("schedule gpipe", "chunks", chunks, allowed))
    return Schedule(
        runtime=Runtime.MEGATRON,
        name="gpipe",
        placement=Placement(ranks=ranks),
        microbatches=microbatches,
        fills_once=True,
        orders=tuple(
            tuple(
                Action(kind=kind, stage=rank, chunk=0, microbatch=j)
                for kind in (ActionKind.FORWARD, ActionKind.BACKWARD)
                for j in range(microbatches)
            )
            for rank in range(ranks)
        ),
        warm_up=(microbatches,) * ranks,
    )
