"""DualPipe and DualPipeV: forwards of one half of the pipeline fused with backwards of the other.

DeepSeek-AI, "DeepSeek-V3 technical report", 2024; deepseek-ai/DualPipe `DualPipe.step` and
`DualPipeV.step`, whose eight steps are the same.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count

from stepsim.errors import ScheduleError, bad_value
from stepsim.schedules.base import (
    Action,
    ActionKind,
    Entry,
    FusedPair,
    Placement,
    PlacementKind,
    Schedule,
    check_shape,
)

Slot = tuple[tuple[ActionKind, int], ...]
"""What a rank runs as one: (kind, chunk), two of them for a fused pair."""

_F0, _F1 = (((ActionKind.FORWARD, chunk),) for chunk in range(2))
_B0, _B1 = (((ActionKind.BACKWARD, chunk),) for chunk in range(2))
_I0, _I1 = (((ActionKind.INPUT_GRAD, chunk),) for chunk in range(2))
_W = ((ActionKind.WEIGHT_GRAD, 0),)
"""Of the oldest input gradient without one, in whichever chunk that was."""


def dualpipe(*, ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """DualPipe: every stage is held twice, half of the microbatches enter at either end.

    Both halves of the ranks run the steps of DualPipeV with half the ranks and microbatches.
    Raises ScheduleError unless ranks and microbatches are even and m >= 2P.
    """
    _check("dualpipe", ranks=ranks, microbatches=microbatches, chunks=chunks, even=True)
    placement = Placement(
        ranks=ranks, chunks=2, kind=PlacementKind.BIDIRECTIONAL, microbatches=microbatches
    )

    def order(rank: int) -> Iterator[Entry]:
        from_end = min(rank, ranks - 1 - rank)
        return _numbered(_slots(from_end, ranks // 2, microbatches // 2), rank, placement)

    return Schedule(
        name="dualpipe",
        placement=placement,
        microbatches=microbatches,
        orders=tuple(tuple(order(rank)) for rank in range(ranks)),
    )


def dualpipe_v(*, ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """DualPipeV: the half of DualPipe that holds every stage once, in V shape.

    Raises ScheduleError unless m >= 2P.
    """
    _check("dualpipe-v", ranks=ranks, microbatches=microbatches, chunks=chunks, even=False)
    placement = Placement(ranks=ranks, chunks=2, kind=PlacementKind.V)

    def order(rank: int) -> Iterator[Entry]:
        return _numbered(_slots(rank, ranks, microbatches), rank, placement)

    return Schedule(
        name="dualpipe-v",
        placement=placement,
        microbatches=microbatches,
        orders=tuple(tuple(order(rank)) for rank in range(ranks)),
    )


def _slots(rank: int, ranks: int, microbatches: int) -> list[Slot]:
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


def _numbered(slots: Iterable[Slot], rank: int, placement: Placement) -> Iterator[Entry]:
    """Microbatches count up per chunk and direction, from the first that comes by this rank."""
    stages = [placement.stage(rank, chunk) for chunk in range(2)]
    firsts = [
        0 if placement.rank(stage) == rank else placement.microbatches // 2 for stage in stages
    ]
    forwards, backwards = ([count(first) for first in firsts] for _ in range(2))
    split: deque[tuple[int, int]] = deque()

    def action(kind: ActionKind, chunk: int) -> Action:
        if kind is ActionKind.WEIGHT_GRAD:
            chunk, microbatch = split.popleft()
        else:
            microbatch = next((forwards if kind is ActionKind.FORWARD else backwards)[chunk])
        if kind is ActionKind.INPUT_GRAD:
            split.append((chunk, microbatch))
        return Action(kind=kind, stage=stages[chunk], chunk=chunk, microbatch=microbatch)

    for slot in slots:
        first, *second = (action(kind, chunk) for kind, chunk in slot)
        yield FusedPair(forward=first, backward=second[0]) if second else first


def _check(name: str, *, ranks: int, microbatches: int, chunks: int, even: bool) -> None:
    check_shape(name, ranks=ranks, microbatches=microbatches, chunks=chunks)
    kind = "an even number of " if even else ""
    if chunks != 2:
        problem = ("chunks", chunks, "2")
    elif even and ranks % 2:
        problem = ("ranks", ranks, f"an even number such as {ranks + 1}")
    elif microbatches < 2 * ranks or (even and microbatches % 2):
        problem = ("microbatches", microbatches, f"{kind}at least {2 * ranks}, twice the ranks")
    else:
        return
    raise ScheduleError(bad_value(f"schedule {name}", *problem))
