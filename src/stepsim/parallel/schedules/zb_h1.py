"""ZB-H1: 1F1B that splits backwards where the pipeline drains, and fills the gaps with W.

Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, in the variant that sail-sg/zero-bubble
ships as a quick start (branch zb-h1-quick-start,
`forward_backward_pipelining_without_interleaving`): steady backwards stay whole.
"""

import numpy as np

from stepsim.parallel.schedules.base import (
    BACKWARD,
    FORWARD,
    INPUT_GRAD,
    WEIGHT_GRAD,
    Order,
    Schedule,
    Turns,
    by_turns,
    chunks_on_ranks,
    forward_table,
    warm_up,
)


def zb_h1(*, ranks: int, microbatches: int) -> Schedule:
    """ZB-H1 for any number of microbatches.

    The order of 1F1B. Rank r > 0 splits its first r backwards and those from the last steady one
    on; from then on, once r backwards lie behind, the oldest weight gradient follows each.
    """
    placement = chunks_on_ranks("zb-h1", ranks, microbatches)
    leads = warm_up(ranks, microbatches)
    return Schedule(
        "zb-h1",
        placement,
        microbatches,
        orders=tuple(_order(rank, ranks, lead, microbatches) for rank, lead in enumerate(leads)),
        warm_up=leads,
    )


def _order(rank: int, ranks: int, lead: int, microbatches: int) -> Order:
    last_steady = microbatches - lead - 1
    table = forward_table(1, microbatches, microbatches)
    split = (rank > 0) & ((table[1] < rank) | (table[1] >= last_steady))
    return by_turns(
        rank,
        ranks,
        Turns(FORWARD, table, -lead),
        Turns(np.where(split, INPUT_GRAD, BACKWARD), table),
        Turns(WEIGHT_GRAD, table[:, split], max(rank, last_steady)),
    )
