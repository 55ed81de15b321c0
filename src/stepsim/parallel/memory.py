"""Memory of a schedule: how many activations each rank holds at most."""

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.documents import Entry
from stepsim.base.fields import Count
from stepsim.parallel.schedules.base import ActionKind, Schedule
from stepsim.parallel.schedules.order import Order


class PeakLive(Entry, frozen=True, kw_only=True):
    """Most live activations of a rank, in (chunk, microbatch) pairs.

    An activation lives from its forward to its backward. Where that is split, `freed_at_b` counts
    it until the input gradient, `freed_at_w` until the weight gradient.
    """

    freed_at_b: Count = 0
    freed_at_w: Count = 0


def peak_live(schedule: Schedule) -> tuple[PeakLive, ...]:
    """Peak live activations of every rank; a fused pair adds one before it frees one."""
    return tuple(
        PeakLive(
            freed_at_b=int(_live(order, ActionKind.INPUT_GRAD).max(initial=0)),
            freed_at_w=int(_live(order, ActionKind.WEIGHT_GRAD).max(initial=0)),
        )
        for order in schedule.columns
    )


def _live(order: Order, split_frees: ActionKind) -> Ints:
    """Live activations after every part of every entry."""
    frees = order.runs(ActionKind.BACKWARD, split_frees)
    return np.cumsum(order.runs(ActionKind.FORWARD).astype(np.int64) - frees)
