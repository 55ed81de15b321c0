"""Megatron-LM's interleaved 1F1B with `overlap_moe_expert_parallel_comm`.

In the steady state the forward of one microbatch and the backward of another run as one, layer by
layer, so that each computes while the other's tokens are dispatched to experts or combined
(Megatron-LM `combined_1f1b.py`). One more forward of warm-up keeps the two halves of every pair
independent (`get_pp_rank_microbatches`). Non-interleaved pipelines are refused, as there; without a
pipeline the order is F, pairs, B.
"""

from stepsim.base.arrays import Small
from stepsim.parallel.schedules.base import (
    Schedule,
    backward_table,
    chunks_on_ranks,
    forward_table,
    not_taken,
    of_slots,
    warm_up,
)
from stepsim.parallel.schedules.interleaved import megatron_group_size

PAIRED = "combined-1f1b"
"""The schedule's name."""


def combined_1f1b(
    *, ranks: int, microbatches: int, chunks: int | None = None, group_size: int | None = None
) -> Schedule:
    """Combined 1F1B in Megatron's groups; two chunks unless asked otherwise, one on a single rank.

    `group_size` is in microbatches.

    Rank r runs min(2(P-1-r) + (v-1)g + 1, mv) forwards, then pairs of one forward and one backward,
    then the remaining backwards. Raises ScheduleError where Megatron refuses.
    """
    held = (1 if ranks == 1 else 2) if chunks is None else chunks
    placement = chunks_on_ranks(PAIRED, ranks, microbatches, held)
    if ranks == 1:
        if held != 1:
            raise not_taken(PAIRED, "chunks", held, "1 on one rank")
        group = microbatches
    else:
        group = megatron_group_size(
            PAIRED, ranks=ranks, microbatches=microbatches, chunks=held, group_size=group_size
        )
    forwards = forward_table(held, microbatches, group)
    leads = warm_up(ranks, held * microbatches, 2, (held - 1) * group + 1)
    slots = (_slots(lead, forwards) for lead in leads)
    return of_slots(PAIRED, placement, microbatches, slots, leads)


def _slots(lead: int, table: Small) -> list[str]:
    """So many forwards, then pairs of one forward and one backward, then the other backwards."""
    forwards, backwards = (
        [f"{kind}{chunk}" for chunk in chunks.tolist()]
        for kind, (chunks, _) in zip("FB", (table, backward_table(table)), strict=True)
    )
    pairs = [" ".join(pair) for pair in zip(forwards[lead:], backwards, strict=False)]
    return [*forwards[:lead], *pairs, *backwards[len(pairs) :]]
