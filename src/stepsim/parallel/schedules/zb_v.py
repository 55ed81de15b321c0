"""ZB-V: two chunks per rank, down the ranks and back up, with split backwards.

Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, section 6; torch `ScheduleZBVZeroBubble`.
"""

from stepsim.parallel.schedules.base import (
    PlacementKind,
    Schedule,
    chunks_on_ranks,
    of_slots,
)


def zb_v(*, ranks: int, microbatches: int) -> Schedule:
    """ZB-V for any number of microbatches; fewer than 2P-1 run in the order of 2P-1."""
    placement = chunks_on_ranks("zb-v", ranks, microbatches, 2, PlacementKind.V)
    full = max(microbatches, 2 * ranks - 1)
    slots = (_slots(rank, ranks, full) for rank in range(ranks))
    return of_slots("zb-v", placement, microbatches, slots)


def _slots(rank: int, ranks: int, microbatches: int) -> list[str]:
    """Order of a rank for at least 2P-1 microbatches: warm-up, steady state, drain."""
    after = ranks - 1 - rank
    return [
        *["F0"] * (2 * after + 1),
        *["F1", "F0"] * rank,
        *["F1", "I1", "W1"] * (after + 1),
        *["F0", "I0", "W0", "F1", "I1", "W1"] * (microbatches - ranks - after),
        *["I0", "W0", "F1", "I1", "W1"] * after,
        *["I0", "I1"] * rank,
        *["I0", "W0"] * (after + 1),
        *["W1"] * rank,
        *["W0"] * rank,
    ]
