"""Segments being written, row by row, and what each comes to wait for.

A rank has a front: what the next segment in order waits for. A row may read the front, join it, or
take its place; and it may queue behind the last row of a stream. So what a row waits for is a piece
of the column of all that ever joined the front, and one more.
"""

from enum import IntEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Bools, Lists, Small, bounds, spans
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
    segments = np.flatnonzero(is_segment)
    joins = rows.joins > 0
    front = number[rows.joined[joins]]
    past = np.cumsum(joins, dtype=np.int32) - joins
    since = np.zeros(len(past) + 1, dtype=np.int32)
    np.maximum.accumulate(past * (rows.joins == Joins.ALONE), out=since[1:])
    first = since[segments]
    counts = (past[segments] - first) * rows.reads[segments]
    pieces = front[spans(first, counts)]
    named = np.flatnonzero(rows.waits[segments] >= 0)
    queued = _queued(rows.behind[segments], rows.sets[segments])
    there = np.repeat(np.arange(len(queued), dtype=np.int32), counts)
    queued[there[pieces == queued[there]]] = NONE
    more = queued >= 0
    sizes = counts + more
    sizes[named] += 1
    starts = bounds(sizes)
    values = np.empty(starts[-1], dtype=np.int32)
    is_piece = np.ones(len(values), dtype=bool)
    is_piece[starts[named]] = False
    is_piece[starts[1:][more] - 1] = False
    values[is_piece] = pieces
    values[starts[named]] = number[rows.waits[segments[named]]]
    values[starts[1:][more] - 1] = queued[more]
    return Lists(starts, values)


def _queued(behind: NDArray[np.int8], sets: NDArray[np.int8]) -> Small:
    """The last segment of the stream that each segment is behind, -1 for none."""
    found = np.full(len(behind), NONE, dtype=np.int32)
    for stream in np.flatnonzero(np.bincount(behind[behind >= 0])).tolist():
        mine, setters = behind == stream, sets == stream
        before = np.cumsum(setters, dtype=np.int32) - setters
        numbers = np.append(NONE, np.flatnonzero(setters))
        found[mine] = numbers[before[mine]]
    return found
