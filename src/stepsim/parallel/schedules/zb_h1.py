"""ZB-H1: 1F1B that splits backwards where the pipeline drains, and fills the gaps with W.

Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, in the variant that sail-sg/zero-bubble
ships as a quick start (branch zb-h1-quick-start,
`forward_backward_pipelining_without_interleaving`): steady backwards stay whole.
"""

from stepsim.parallel.schedules.base import Action, ActionKind, Placement, Schedule, check_shape
from stepsim.parallel.schedules.interleaved import by_turns
from stepsim.parallel.schedules.one_f_one_b import warm_up


def zb_h1(*, ranks: int, microbatches: int, chunks: int = 1) -> Schedule:
    """ZB-H1 for any number of microbatches.

    The order of 1F1B. Rank r > 0 splits its first r backwards and those from the last steady one
    on; from then on, once r backwards lie behind, the oldest weight gradient follows each. Raises
    ScheduleError for more than one chunk.
    """
    shape = {"ranks": ranks, "microbatches": microbatches, "chunks": chunks}
    check_shape("zb-h1", **shape, held=1, more=" (interleaved-zb holds more)")
    return Schedule(
        name="zb-h1",
        placement=Placement(ranks=ranks),
        microbatches=microbatches,
        orders=tuple(_order(rank, ranks, microbatches) for rank in range(ranks)),
        warm_up=tuple(warm_up(rank, ranks, microbatches) for rank in range(ranks)),
    )


def _order(rank: int, ranks: int, microbatches: int) -> tuple[Action, ...]:
    lead = warm_up(rank, ranks, microbatches)
    last_steady = microbatches - lead - 1

    def action(kind: ActionKind, microbatch: int) -> Action:
        return Action(kind=kind, stage=rank, chunk=0, microbatch=microbatch)

    def is_split(microbatch: int) -> bool:
        return rank > 0 and (microbatch < rank or microbatch >= last_steady)

    forwards = [action(ActionKind.FORWARD, j) for j in range(microbatches)]
    backwards = [
        action(ActionKind.INPUT_GRAD if is_split(j) else ActionKind.BACKWARD, j)
        for j in range(microbatches)
    ]
    weight_grads = [action(ActionKind.WEIGHT_GRAD, j) for j in range(microbatches) if is_split(j)]
    delay = [None] * max(rank, last_steady)
    return (*forwards[:lead], *by_turns(forwards[lead:], backwards, [*delay, *weight_grads]))
