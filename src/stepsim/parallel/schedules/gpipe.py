"""GPipe: each rank runs all forwards, then all backwards.

Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism",
NeurIPS 2019; torch `ScheduleGPipe`.
"""

from stepsim.parallel.schedules.base import Placement, Runtime, Schedule, alternating, check_shape


def gpipe(*, ranks: int, microbatches: int, chunks: int = 1) -> Schedule:
    """GPipe for any number of microbatches, in ascending order in both directions.

    Raises ScheduleError for more than one chunk.
    """
    shape = {"ranks": ranks, "microbatches": microbatches, "chunks": chunks}
    check_shape("gpipe", **shape, held=1, more=" (looped-bfs holds more)")
    leads = (microbatches,) * ranks
    table = [(0, j) for j in range(microbatches)]
    return Schedule(
        runtime=Runtime.MEGATRON,
        name="gpipe",
        placement=Placement(ranks=ranks),
        microbatches=microbatches,
        fills_once=True,
        orders=alternating(ranks, leads, table, table),
        warm_up=leads,
    )
