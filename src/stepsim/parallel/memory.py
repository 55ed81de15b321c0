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


def _peak(schedule: Schedule, rank: int, split_frees: ActionKind) -> int:
    live = peak = 0
    for action in schedule.actions(rank):
        if action.kind is ActionKind.FORWARD:
            live += 1
            peak = max(peak, live)
        elif action.kind is ActionKind.BACKWARD or action.kind is split_frees:
            live -= 1
    return peak
