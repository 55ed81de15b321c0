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
    joins = rows.joins > 0
    front = number[rows.joined[joins]]
    segments = np.flatnonzero(is_segment)
    past = np.cumsum(joins, dtype=np.int32) - joins
    since = np.zeros(len(past) + 1, dtype=np.int32)
    np.maximum.accumulate(np.where(rows.joins == Joins.ALONE, past, 0), out=since[1:])
    past, first = past[segments], since[segments]
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


def _queued(rows: Rows, segments: Ints, number: Small) -> Ints:
    """The last segment of the stream that each segment is behind, -1 for none.

    Setters are sorted by stream, then by row: before a segment's own place stands what it is after.
    """
    found, total = np.full(len(segments), NONE, dtype=np.int64), len(rows.kind)
    setters = np.flatnonzero(rows.sets >= 0)
    mine = np.flatnonzero(rows.behind[segments] >= 0)
    if not len(setters):
        return found
    behind = rows.behind[segments[mine]]
    keys = np.sort(rows.sets[setters] * np.int64(total) + setters)
    place = np.searchsorted(keys, behind * np.int64(total) + segments[mine]) - 1
    stream, last = np.divmod(keys[place], total)
    found[mine] = np.where((place >= 0) & (stream == behind), number[last], NONE)
    return found


def _unless_there(queued: Ints, front: Small, first: Small, counts: NDArray[np.integer]) -> Ints:
    """`queued`, but -1 where it is in the piece of the front that a segment waits for."""
    owner = np.repeat(np.arange(len(queued)), counts)
    there = owner[front[spans(first, counts)] == queued[owner]]
    left = queued.copy()
    left[there] = NONE
    return left
