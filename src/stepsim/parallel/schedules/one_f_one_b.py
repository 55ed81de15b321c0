"""1F1B: each rank warms up with forwards, then alternates, then drains the backwards.

Narayanan et al., "Memory-efficient pipeline-parallel DNN training" (PipeDream-Flush), ICML 2021;
Megatron-LM `forward_backward_pipelining_without_interleaving`.
"""

from collections.abc import Iterator

from stepsim.base.errors import ScheduleError
from stepsim.parallel.schedules.base import (
    Action,
    ActionKind,
    Placement,
    Runtime,
    Schedule,
    check_shape,
)


def one_f_one_b(*, ranks: int, microbatches: int, chunks: int = 1) -> Schedule:
    """1F1B for any number of microbatches, fewer than ranks included.

    Rank r runs min(P-1-r, m) forwards, then pairs of one forward and one backward, then the
    remaining backwards. Raises ScheduleError for more than one chunk.
    """
    check_shape("1f1b", ranks=ranks, microbatches=microbatches, chunks=chunks)
    if chunks != 1:
        raise ScheduleError(f"schedule 1f1b: chunks is {chunks}: it holds one chunk per rank")
    return Schedule(
        runtime=Runtime.MEGATRON,
        name="1f1b",
        placement=Placement(ranks=ranks),
        microbatches=microbatches,
        fills_once=True,
        orders=tuple(tuple(_order(rank, ranks, microbatches)) for rank in range(ranks)),
        warm_up=tuple(warm_up(rank, ranks, microbatches) for rank in range(ranks)),
    )


def warm_up(rank: int, ranks: int, microbatches: int) -> int:
    """Forwards a rank runs before its first backward's partner."""
    return min(ranks - 1 - rank, microbatches)


def _order(rank: int, ranks: int, microbatches: int) -> Iterator[Action]:
    lead = warm_up(rank, ranks, microbatches)

    def action(kind: ActionKind, microbatch: int) -> Action:
        return Action(kind=kind, stage=rank, chunk=0, microbatch=microbatch)

    for j in range(lead):
        yield action(ActionKind.FORWARD, j)
    for j in range(microbatches - lead):
        yield action(ActionKind.FORWARD, lead + j)
        yield action(ActionKind.BACKWARD, j)
    for j in range(microbatches - lead, microbatches):
        yield action(ActionKind.BACKWARD, j)
