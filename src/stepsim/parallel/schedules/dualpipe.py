"""DualPipe and DualPipeV: forwards of one half of the pipeline fused with backwards of the other.

DeepSeek-AI, "DeepSeek-V3 technical report", 2024; deepseek-ai/DualPipe `DualPipe.step` and
`DualPipeV.step`, whose eight steps are the same.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count

from stepsim.base.errors import ScheduleError, bad_value
from stepsim.parallel.schedules.base import (
    Action,
    ActionKind,
    FusedPair,
    OrderEntry,
    Placement,
    PlacementKind,
    Schedule,
    check_shape,
)

_Slot = tuple[tuple[ActionKind, int], ...]
"""What a rank runs as one: (kind, chunk), two of them for a fused pair."""

_F0: _Slot = ((ActionKind.FORWARD, 0),)
_F1: _Slot = ((ActionKind.FORWARD, 1),)
_B0: _Slot = ((ActionKind.BACKWARD, 0),)
_B1: _Slot = ((ActionKind.BACKWARD, 1),)
_I0: _Slot = ((ActionKind.INPUT_GRAD, 0),)
_I1: _Slot = ((ActionKind.INPUT_GRAD, 1),)
_W: _Slot = ((ActionKind.WEIGHT_GRAD, 0),)
"""Of the oldest input gradient that has none yet, whichever chunk that was in."""


def dualpipe(*, ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """DualPipe: every stage is held twice, half of the microbatches enter at either end.

    Both halves of the ranks run the steps of DualPipeV with half the ranks and microbatches.
    Raises ScheduleError unless ranks and microbatches are even and m >= 2P.
    """
    _check("dualpipe", ranks=ranks, microbatches=microbatches, chunks=chunks, even=True)
    placement = Placement(
        ranks=ranks, chunks=2, kind=PlacementKind.BIDIRECTIONAL, microbatches=microbatches
    )

    half, each_way = ranks // 2, microbatches // 2
    return Schedule(
        name="dualpipe",
        placement=placement,
        microbatches=microbatches,
        orders=tuple(
            tuple(_numbered(_slots(min(rank, ranks - 1 - rank), half, each_way), rank, placement))
            for rank in range(ranks)
        ),
    )


def dualpipe_v(*, ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """DualPipeV: the half of DualPipe that holds every stage once, in V shape.

    Raises ScheduleError unless m >= 2P.
    """
    _check("dualpipe-v", ranks=ranks, microbatches=microbatches, chunks=chunks, even=False)
    placement = Placement(ranks=ranks, chunks=2, kind=PlacementKind.V)

    return Schedule(
        name="dualpipe-v",
        placement=placement,
        microbatches=microbatches,
        orders=tuple(
            tuple(_numbered(_slots(rank, ranks, microbatches), rank, placement))
            for rank in range(ranks)
        ),
    )


def _slots(rank: int, ranks: int, microbatches: int) -> list[_Slot]:
    """The eight steps of a rank, in the original's numbering."""
    after = ranks - 1 - rank
    steady = [_F0 + _B1, _F1 + _B0] * (microbatches - ranks - after)
    if after == 0:
        steady[:1] = [_F0, _B1]
    return [
        *[_F0] * (2 * after),
        *[_F0, _F1] * (rank + 1),
        *[_I1, _W, _F1] * after,
        *steady,
        *[_B1, _F1 + _B0] * after,
        *([_B1, _B0] * (rank + 1))[: rank + 1],
        *([_I1, _I0] * (rank + 1))[rank + 1 :],
        *[_W, _I0] * after,
        *[_W] * (rank + 1),
    ]


def _numbered(slots: Iterable[_Slot], rank: int, placement: Placement) -> Iterator[OrderEntry]:
    """Microbatches count up per chunk and direction, from the first that comes by this rank."""
    stages = [placement.stage(rank, chunk) for chunk in range(2)]
    second_half = placement.microbatches // 2
    firsts = [0 if placement.rank(stage) == rank else second_half for stage in stages]
    forwards, backwards = [count(j) for j in firsts], [count(j) for j in firsts]
    split: deque[tuple[int, int]] = deque()

    def action(kind: ActionKind, chunk: int) -> Action:
        match kind:
            case ActionKind.FORWARD:
                microbatch = next(forwards[chunk])
            case ActionKind.BACKWARD:
                microbatch = next(backwards[chunk])
            case ActionKind.INPUT_GRAD:
                microbatch = next(backwards[chunk])
                split.append((chunk, microbatch))
            case ActionKind.WEIGHT_GRAD:
                chunk, microbatch = split.popleft()
        return Action(kind=kind, stage=stages[chunk], chunk=chunk, microbatch=microbatch)

    for slot in slots:
        entry, *backward = (action(kind, chunk) for kind, chunk in slot)
        yield FusedPair(forward=entry, backward=backward[0]) if backward else entry


def _check(name: str, *, ranks: int, microbatches: int, chunks: int, even: bool) -> None:
    check_shape(name, ranks=ranks, microbatches=microbatches, chunks=chunks, held=2)
    if even and ranks % 2:
        problem = bad_value(f"schedule {name}", "ranks", ranks, f"an even number, e.g. {ranks + 1}")
    elif microbatches < 2 * ranks or (even and microbatches % 2):
        allowed = f"{'an even number, ' if even else ''}at least {2 * ranks} (twice the ranks)"
        problem = bad_value(f"schedule {name}", "microbatches", microbatches, allowed)
    else:
        return
    raise ScheduleError(problem)
