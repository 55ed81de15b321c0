"""DualPipe and DualPipeV: forwards of one half of the pipeline fused with backwards of the other.

DeepSeek-AI, "DeepSeek-V3 technical report", 2024; deepseek-ai/DualPipe `DualPipe.step` and
`DualPipeV.step`, whose eight steps are the same.
"""

from stepsim.parallel.schedules.base import (
    PlacementKind,
    Schedule,
    chunks_on_ranks,
    not_taken,
    of_slots,
)


def dualpipe(*, ranks: int, microbatches: int) -> Schedule:
    """DualPipe: every stage is held twice, half of the microbatches enter at either end.

    Both halves of the ranks run the steps of DualPipeV with half the ranks and microbatches.
    Raises ScheduleError unless ranks and microbatches are even and m >= 2P.
    """
    return _schedule("dualpipe", ranks, microbatches, PlacementKind.BIDIRECTIONAL)


def dualpipe_v(*, ranks: int, microbatches: int) -> Schedule:
    """DualPipeV: the half of DualPipe that holds every stage once, in V shape.

    Raises ScheduleError unless m >= 2P.
    """
    return _schedule("dualpipe-v", ranks, microbatches, PlacementKind.V)


def _schedule(name: str, ranks: int, microbatches: int, kind: PlacementKind) -> Schedule:
    """The schedule of a kind of placement, at each of whose ends as many microbatches enter."""
    placement = chunks_on_ranks(name, ranks, microbatches, 2, kind)
    ends = 2 if kind is PlacementKind.BIDIRECTIONAL else 1
    if ranks % ends:
        raise not_taken(name, "ranks", ranks, f"an even number, e.g. {ranks + 1}")
    if microbatches < 2 * ranks or microbatches % ends:
        even = "an even number, " if ends > 1 else ""
        allowed = f"{even}at least {2 * ranks} (twice the ranks)"
        raise not_taken(name, "microbatches", microbatches, allowed)
    half = ranks // ends
    slots = (
        _slots(rank if rank < half else ranks - 1 - rank, half, microbatches // ends)
        for rank in range(ranks)
    )
    return of_slots(name, placement, microbatches, slots)


def _slots(rank: int, ranks: int, microbatches: int) -> list[str]:
    """The eight steps of a rank, in the original's numbering.

    A weight gradient is that of the oldest input gradient, whichever chunk that was in.
    """
    after = ranks - 1 - rank
    steady = ["F0 B1", "F1 B0"] * (microbatches - ranks - after)
    if after == 0:
        steady[:1] = ["F0", "B1"]
    slots = [
        *["F0"] * (2 * after),
        *["F0", "F1"] * (rank + 1),
        *["I1", "W", "F1"] * after,
        *steady,
        *["B1", "F1 B0"] * after,
        *(["B1", "B0"] * (rank + 1))[: rank + 1],
        *(["I1", "I0"] * (rank + 1))[rank + 1 :],
        *["W", "I0"] * after,
        *["W"] * (rank + 1),
    ]
    split = (slot[1] for slot in slots if slot[0] == "I")
    return [f"W{next(split)}" if slot == "W" else slot for slot in slots]
