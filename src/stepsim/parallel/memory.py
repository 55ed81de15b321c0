"""Memory of a schedule: how many activations each rank holds at most."""

from typing import NamedTuple

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.parallel.schedules.base import ActionKind, Schedule
from stepsim.parallel.schedules.order import Order


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
            freed_at_b=int(_live(order, ActionKind.INPUT_GRAD).max(initial=0)),
            freed_at_w=int(_live(order, ActionKind.WEIGHT_GRAD).max(initial=0)),
        )
        for order in schedule.columns
    )


def live_chunks(schedule: Schedule) -> tuple[tuple[int, ...], ...]:
    """Live activations of every rank by chunk, when it holds most, until the weight gradient."""
    return tuple(_most(order, schedule.placement.chunks) for order in schedule.columns)


def _most(order: Order, chunks: int) -> tuple[int, ...]:
    live = _live(order, ActionKind.WEIGHT_GRAD)
    if live.max(initial=0) <= 0:
        return (0,) * chunks
    upto = int(np.argmax(live)) + 1
    change, chunk = _changes(order, ActionKind.WEIGHT_GRAD)[:upto], order.chunk.reshape(-1)[:upto]
    return tuple(int(change[chunk == each].sum()) for each in range(chunks))


def _live(order: Order, split_frees: ActionKind) -> Ints:
    """Live activations after every part of every entry."""
    return np.cumsum(_changes(order, split_frees), dtype=np.int64)


def _changes(order: Order, split_frees: ActionKind) -> Ints:
    """Activations that every part adds, or frees."""
    frees = order.runs(ActionKind.BACKWARD, split_frees)
    return (order.runs(ActionKind.FORWARD).astype(np.int64) - frees).reshape(-1)
