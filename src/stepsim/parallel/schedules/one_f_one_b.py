"""1F1B: each rank warms up with forwards, then alternates, then drains the backwards.

Narayanan et al., "Memory-efficient pipeline-parallel DNN training" (PipeDream-Flush), ICML 2021;
Megatron-LM `forward_backward_pipelining_without_interleaving`.
"""

from stepsim.base.structs import Numbers
from stepsim.parallel.schedules.base import (
    Placement,
    Schedule,
    alternating,
    chunks_on_ranks,
    forward_table,
    warm_up,
)


def one_f_one_b(*, ranks: int, microbatches: int) -> Schedule:
    """1F1B for any number of microbatches, fewer than ranks included.

    Rank r runs min(P-1-r, m) forwards, then pairs of one forward and one backward, then the
    remaining backwards.
    """
    placement = chunks_on_ranks("1f1b", ranks, microbatches)
    return one_chunk("1f1b", placement, microbatches, warm_up(ranks, microbatches))


def one_chunk(name: str, placement: Placement, microbatches: int, leads: Numbers) -> Schedule:
    """A schedule of one chunk per rank, which runs so many forwards before it alternates."""
    table = forward_table(1, microbatches, microbatches)
    return Schedule(
        name,
        placement,
        microbatches,
        megatron=True,
        fills_once=True,
        orders=alternating(leads, table, table),
        warm_up=leads,
    )
