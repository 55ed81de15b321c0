"""GPipe: each rank runs all forwards, then all backwards.

Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism",
NeurIPS 2019; torch `ScheduleGPipe`.
"""

from stepsim.parallel.schedules.base import Schedule, chunks_on_ranks
from stepsim.parallel.schedules.one_f_one_b import one_chunk


def gpipe(*, ranks: int, microbatches: int) -> Schedule:
    """GPipe for any number of microbatches, in ascending order in both directions."""
    placement = chunks_on_ranks("gpipe", ranks, microbatches)
    return one_chunk("gpipe", placement, microbatches, (microbatches,) * ranks)
