"""Memory of a schedule: how many activations each rank holds at most."""

from typing import NamedTuple

from stepsim.parallel.schedules.base import ActionKind, Schedule


class PeakLive(NamedTuple):
    """Most live activations of a rank, in (chunk, microbatch) pairs.

    An activation lives from its forward to its backward. Where that is split, `freed_at_b` counts
    it until the input gradient, `freed_at_w` until the weight gradient.
    """

    freed_at_b: int
    freed_at_w: int


def peak_live(schedule: Schedule) -> tuple[PeakLive, ...]:
    """Peak live activations of every rank; a fused pair adds one before it frees one."""
    return tuple(
        PeakLive(
            freed_at_b=_peak(schedule, rank, ActionKind.INPUT_GRAD),
            freed_at_w=_peak(schedule, rank, ActionKind.WEIGHT_GRAD),
        )
        for rank in range(len(schedule.orders))
    )


def live_chunks(schedule: Schedule) -> tuple[tuple[int, ...], ...]:
    """Live activations of every rank by chunk, when it holds most, until the weight gradient."""
    return tuple(_most(schedule, rank) for rank in range(len(schedule.orders)))


def _most(schedule: Schedule, rank: int) -> tuple[int, ...]:
    live = [0] * schedule.placement.chunks
    most = tuple(live)
    for action in schedule.actions(rank):
        if action.kind is ActionKind.FORWARD:
            live[action.chunk] += 1
            most = max(most, tuple(live), key=sum)
        elif action.kind in (ActionKind.BACKWARD, ActionKind.WEIGHT_GRAD):
            live[action.chunk] -= 1
    return most


def _peak(schedule: Schedule, rank: int, split_frees: ActionKind) -> int:
    live = peak = 0
    for action in schedule.actions(rank):
        if action.kind is ActionKind.FORWARD:
            live += 1
            peak = max(peak, live)
        elif action.kind is ActionKind.BACKWARD or action.kind is split_frees:
            live -= 1
    return peak
