"""Segments being written, row by row, and what each comes to wait for.

A rank has a front: what the next segment in order waits for. A row may read the front, join it, or
take its place; and it may queue behind the last row of a stream. So what a row waits for is a piece
of the column of all that ever joined the front, and one more.
"""

from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Bools, Ints, Lists, Small, bounds, spans
from stepsim.base.records import dataclass

NONE = -1


class Joins(IntEnum):
    """What becomes of the front when a row is posted."""

    NOT = 0
    BESIDE = 1
    ALONE = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Rows of a program as columns.

    A row is a segment of a `kind` on a `stream`, or, where that is -1, a wait for the row `joined`.
    `end` is the end of a message that it is, -1 for others.
    `reads` says whether it waits for the front; else it waits for row `waits`, if any. It is queued
    behind the last row that `sets` the stream it is `behind`. Row `joined` joins the front.
    """

    kind: NDArray[np.int8]
    stream: NDArray[np.int8]
    entry: Small
    end: Small
    peer_stage: Small
    reads: Bools
    waits: Small
    behind: NDArray[np.int8]
    sets: NDArray[np.int8]
    joins: NDArray[np.int8]
    joined: Small

    @classmethod
    def of(cls, **columns: NDArray[np.integer | np.bool_]) -> Self:
        """Rows from columns of any integers."""
        kinds = {"reads": bool} | dict.fromkeys(
            ("kind", "stream", "behind", "sets", "joins"), np.int8
        )
        return cls(
            **{name: each.astype(kinds.get(name, np.int32)) for name, each in columns.items()}
        )


def waits_of(rows: Rows) -> Lists:
    """What every segment waits for, by the numbers of segments: front first, its stream last."""
    is_segment = rows.kind >= 0
    number = np.cumsum(is_segment, dtype=np.int32) - 1
    adds = np.flatnonzero(rows.joins)
    front = number[rows.joined[adds]]
    fresh = np.flatnonzero(rows.joins[adds] == Joins.ALONE)
    segments = np.flatnonzero(is_segment)
    past = np.searchsorted(adds, segments)
    since = _last(fresh, past)
    first = np.where(since >= 0, since, 0)
    counts = np.where(rows.reads[segments], past - first, 0)
    queued = _queued(rows, segments, number)
    explicit = np.where(rows.waits >= 0, number[rows.waits], NONE)[segments]
    queued = _unless_there(queued, front, first, counts)
    more = (queued >= 0).astype(np.int64)
    named = (explicit >= 0).astype(np.int64)
    starts = bounds(counts + named + more)
    values = np.empty(starts[-1], dtype=np.int32)
    values[spans(starts[:-1], counts)] = front[spans(first, counts)]
    values[starts[:-1][named > 0]] = explicit[named > 0]
    values[starts[1:][more > 0] - 1] = queued[more > 0]
    return Lists(starts, values)


def _last(places: Ints, past: Ints) -> Ints:
    """The last of ascending places that lies before each, -1 where none does."""
    found = np.searchsorted(places, past) - 1
    return np.where(found >= 0, places[found], NONE) if len(places) else np.full(len(past), NONE)


def _queued(rows: Rows, segments: Ints, number: Small) -> Ints:
    """The last segment of the stream that each segment is behind, -1 for none."""
    found = np.full(len(segments), NONE, dtype=np.int64)
    for stream in range(int(rows.behind.max(initial=-1)) + 1):
        mine = np.flatnonzero(rows.behind[segments] == stream)
        if len(mine):
            last = _last(np.flatnonzero(rows.sets == stream), segments[mine])
            found[mine] = np.where(last >= 0, number[last], NONE)
    return found


def _unless_there(queued: Ints, front: Small, first: Ints, counts: Ints) -> Ints:
    """`queued`, but -1 where it is in the piece of the front that a segment waits for."""
    owner = np.repeat(np.arange(len(queued)), counts)
    there = owner[front[spans(first, counts)] == queued[owner]]
    left = queued.copy()
    left[there] = NONE
    return left
