"""Interleaved zero bubble: interleaved 1F1B with split backwards, W delayed by the rank.

Qi et al., "Zero bubble pipeline parallelism", ICLR 2024 (ZB1P, here over several chunks); torch
`ScheduleInterleavedZeroBubble`.
"""

from stepsim.parallel.schedules.base import (
    FORWARD,
    INPUT_GRAD,
    WEIGHT_GRAD,
    Schedule,
    Turns,
    backward_table,
    by_turns,
    chunks_on_ranks,
    forward_table,
    warm_up,
)
from stepsim.parallel.schedules.interleaved import torch_group_size


def interleaved_zb(*, ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Interleaved zero bubble in torch's groups.

    Rank r runs min(P-1-r + (v-1)g, mv) forwards, then by turns a forward, an input gradient and,
    from the r-th turn on, the oldest weight gradient. Raises ScheduleError where torch refuses.
    """
    placement = chunks_on_ranks("interleaved-zb", ranks, microbatches, chunks)
    group = torch_group_size("interleaved-zb", ranks, microbatches)
    forwards = forward_table(chunks, microbatches, group)
    backwards = backward_table(forwards)
    leads = warm_up(ranks, chunks * microbatches, 1, (chunks - 1) * group)
    return Schedule(
        "interleaved-zb",
        placement,
        microbatches,
        orders=tuple(
            by_turns(
                rank,
                ranks,
                Turns(FORWARD, forwards, -lead),
                Turns(INPUT_GRAD, backwards),
                Turns(WEIGHT_GRAD, backwards, rank),
            )
            for rank, lead in enumerate(leads)
        ),
        warm_up=leads,
    )
