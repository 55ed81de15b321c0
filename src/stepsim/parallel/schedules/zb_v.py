"""ZB-V: two chunks per rank, down the ranks and back up, with split backwards.

Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, section 6; torch `ScheduleZBVZeroBubble`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count

from stepsim.parallel.schedules.base import (
    Action,
    ActionKind,
    Placement,
    PlacementKind,
    Schedule,
    check_shape,
)

_Slot = tuple[ActionKind, int]
"""What to do in which chunk, with the chunk's next microbatch."""

_F0, _F1 = (ActionKind.FORWARD, 0), (ActionKind.FORWARD, 1)
_I0, _I1 = (ActionKind.INPUT_GRAD, 0), (ActionKind.INPUT_GRAD, 1)
_W0, _W1 = (ActionKind.WEIGHT_GRAD, 0), (ActionKind.WEIGHT_GRAD, 1)


def zb_v(*, ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """ZB-V for any number of microbatches.

    Fewer than 2P-1 microbatches run in the order of 2P-1. Raises ScheduleError unless there are
    two chunks.
    """
    check_shape("zb-v", ranks=ranks, microbatches=microbatches, chunks=chunks, held=2)
    placement = Placement(ranks=ranks, chunks=chunks, kind=PlacementKind.V)
    full = max(microbatches, 2 * ranks - 1)
    return Schedule(
        name="zb-v",
        placement=placement,
        microbatches=microbatches,
        orders=tuple(
            tuple(_numbered(_slots(rank, ranks, full), rank, placement, microbatches))
            for rank in range(ranks)
        ),
    )


def _slots(rank: int, ranks: int, microbatches: int) -> list[_Slot]:
    """Order of a rank for at least 2P-1 microbatches: warm-up, steady state, drain."""
    after = ranks - 1 - rank
    return [
        *[_F0] * (2 * after + 1),
        *[_F1, _F0] * rank,
        *[_F1, _I1, _W1] * (after + 1),
        *[_F0, _I0, _W0, _F1, _I1, _W1] * (microbatches - ranks - after),
        *[_I0, _W0, _F1, _I1, _W1] * after,
        *[_I0, _I1] * rank,
        *[_I0, _W0] * (after + 1),
        *[_W1] * rank,
        *[_W0] * rank,
    ]


def _numbered(
    slots: Iterable[_Slot], rank: int, placement: Placement, microbatches: int
) -> Iterator[Action]:
    """Microbatches count up from 0 per kind and chunk; slots beyond the last stay empty."""
    following: defaultdict[_Slot, Iterator[int]] = defaultdict(count)
    for kind, chunk in slots:
        microbatch = next(following[kind, chunk])
        if microbatch < microbatches:
            stage = placement.stage(rank, chunk)
            yield Action(kind=kind, stage=stage, chunk=chunk, microbatch=microbatch)
