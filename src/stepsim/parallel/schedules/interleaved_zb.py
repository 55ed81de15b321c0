"""Interleaved zero bubble: interleaved 1F1B with split backwards, W delayed by the rank.

Qi et al., "Zero bubble pipeline parallelism", ICLR 2024 (ZB1P, here over several chunks); torch
`ScheduleInterleavedZeroBubble`.
"""

from stepsim.parallel.schedules.base import Action, ActionKind, Placement, Schedule, check_shape
from stepsim.parallel.schedules.interleaved import (
    ChunkTable,
    actions,
    backward_table,
    by_turns,
    forward_table,
    torch_group_size,
)


def interleaved_zb(*, ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Interleaved zero bubble in torch's groups.

    Rank r runs min(P-1-r + (v-1)g, mv) forwards, then by turns a forward, an input gradient and,
    from the r-th turn on, the oldest weight gradient. Raises ScheduleError where torch refuses.
    """
    check_shape("interleaved-zb", ranks=ranks, microbatches=microbatches, chunks=chunks)
    group = torch_group_size("interleaved-zb", ranks, microbatches)
    forwards = forward_table(chunks, microbatches, group)
    backwards = backward_table(forwards, chunks)
    warm_up = [min(ranks - 1 - rank + (chunks - 1) * group, len(forwards)) for rank in range(ranks)]
    return Schedule(
        name="interleaved-zb",
        placement=Placement(ranks=ranks, chunks=chunks),
        microbatches=microbatches,
        orders=tuple(
            _order(rank, ranks, lead, forwards, backwards) for rank, lead in enumerate(warm_up)
        ),
        warm_up=tuple(warm_up),
    )


def _order(
    rank: int, ranks: int, lead: int, forward_slots: ChunkTable, backward_slots: ChunkTable
) -> tuple[Action, ...]:
    forwards = actions(ActionKind.FORWARD, rank, ranks, forward_slots)
    input_grads = actions(ActionKind.INPUT_GRAD, rank, ranks, backward_slots)
    weight_grads = actions(ActionKind.WEIGHT_GRAD, rank, ranks, backward_slots)
    delay = [None] * rank
    return (*forwards[:lead], *by_turns(forwards[lead:], input_grads, [*delay, *weight_grads]))
