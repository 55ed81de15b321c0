"""Segments being written, row by row, and what each comes to wait for.

A stage's rows follow its point-to-point program step by step.
A rank has a front: what the next segment in order waits for. A row may read the front, join it, or
take its place; and it may queue behind the last row of a stream. So what a row waits for is a piece
of the column of all that ever joined the front, and one more.
"""

from enum import IntEnum
from typing import Self

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from stepsim.base.arrays import Bools, Ints, Lists, Small, bounds, spans
from stepsim.graph.programs import SegmentKind
from stepsim.parallel.p2p import P2PProgram, StepKind
from stepsim.parallel.p2p.columns import far_ranks
from stepsim.parallel.schedules import Schedule
from stepsim.workload.rows import Stream

NONE = -1


class Joins(IntEnum):
    """What becomes of the front when a row is posted."""

    NOT = 0
    BESIDE = 1
    ALONE = 2


class Rows(Struct, frozen=True, kw_only=True, eq=False):
    """Rows of a program as columns.

    A row is a segment of a `kind` on a `stream`, or, where that is -1, a wait. `end` is the end of
    a message that it is or waits for, -1 for others.
    `reads` says whether it waits for the front; else it waits for row `waits`, if any. It is queued
    behind the last row that `sets` the stream it is `behind`. It `joins` the front, or what it
    waits for does.
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

    @classmethod
    def of(cls, **columns: NDArray[np.integer | np.bool_]) -> Self:
        """Rows from columns of any integers."""
        kinds = {"reads": bool} | dict.fromkeys(
            ("kind", "stream", "behind", "sets", "joins"), np.int8
        )
        return cls(
            **{name: each.astype(kinds.get(name, np.int32)) for name, each in columns.items()}
        )


def waits_of(rows: Rows, posted: Small) -> Lists:
    """What every segment waits for, by the numbers of segments: front first, its stream last.

    `posted[e]` is the segment that is end e of a message.
    """
    segments = np.flatnonzero(rows.kind >= 0)
    number = np.full(len(rows.kind), NONE, dtype=np.int32)
    number[segments] = np.arange(len(segments), dtype=np.int32)
    joins = rows.joins > 0
    front = number.compress(joins)
    front = np.where(front >= 0, front, posted.take(rows.end.compress(joins)))
    past = np.cumsum(joins, dtype=np.int32) - joins
    since = np.zeros(len(past) + 1, dtype=np.int32)
    np.maximum.accumulate(past * (rows.joins == Joins.ALONE), out=since[1:])
    first = since.take(segments)
    sizes = (past.take(segments) - first) * rows.reads.take(segments)
    waits = rows.waits.take(segments)
    named = np.flatnonzero(waits >= 0)
    behind, before = _queued(rows.behind.take(segments), rows.sets.take(segments))
    is_new = ~_among(before, front, first.take(behind), sizes.take(behind))
    behind, before = behind.compress(is_new), before.compress(is_new)
    sizes[behind] += 1
    sizes[named] += 1
    starts = bounds(sizes)
    values = front.take(spans(first, sizes), mode="clip")  # all but one of a list that has more
    values[starts.take(named)] = number.take(waits.take(named))
    values[starts[1:].take(behind) - 1] = before
    return Lists(starts, values)


def _queued(behind: NDArray[np.int8], sets: NDArray[np.int8]) -> tuple[Ints, Small]:
    """Segments that a stream has something before, and the last segment of it before each."""
    found, last = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int32)]
    for stream in np.flatnonzero(np.bincount(behind.compress(behind >= 0))).tolist():
        here = np.flatnonzero((behind == stream) | (sets == stream))
        setting = sets.take(here) == stream
        before = np.cumsum(setting, dtype=np.int32) - setting
        queued = (behind.take(here) == stream) & (before > 0)
        found.append(here.compress(queued))
        last.append(here.compress(setting).take(before.compress(queued) - 1))
    return np.concatenate(found), np.concatenate(last, dtype=np.int32)


def _among(numbers: Small, front: Small, first: Small, counts: Small) -> Bools:
    """Whether each number is in its piece of the front: so many from the first on."""
    found = np.zeros(len(numbers), dtype=bool)
    same = front.take(spans(first, counts)) == numbers.repeat(counts)
    found[np.arange(len(numbers)).repeat(counts).compress(same)] = True
    return found


_QUEUES = np.array(
    [Stream.PP_BACKWARD, Stream.PP_FORWARD, Stream.PP_BACKWARD_RECV, Stream.PP_FORWARD_RECV],
    dtype=np.int8,
)
"""Streams of sends to the rank before and to the next, and of receipts of such."""


def step_rows(
    schedule: Schedule, stage: int, steps: P2PProgram, *, free: bool, tail: bool, on_dp: Bools
) -> Rows:
    """A row for every step, and one for the `tail` that follows the pipeline.

    Where messages are `free`, they leave when they are posted, overtaking others, and are received
    when they come; sends are never waited for. `on_dp[i]` says whether entry i has collectives on
    the stream of the gradient reductions: these queue there, and the tail does behind them.
    """
    step, what = np.append(steps.kind, np.int8(NONE)), np.append(steps.what, np.int32(NONE))
    is_run, is_post, waits = (step == kind for kind in StepKind)
    ends = np.where(is_run, np.int32(NONE), what)
    receives = (ends & 1 == 1) & ~is_run
    posts, runs = np.flatnonzero(is_post), np.flatnonzero(is_run)
    peer = np.full(len(step), NONE, dtype=np.int32)
    stream = np.full(len(step), NONE, dtype=np.int8)
    peer[posts], stream[posts] = _messages(schedule, stage, ends.take(posts))
    queue = np.full(len(step), NONE, dtype=np.int8) if free else stream.copy()
    queue[runs.compress(on_dp.take(what.take(runs)))] = Stream.DP
    if free:
        stream[posts] = Stream.EAGER
        waits &= receives
    stream[runs] = Stream.COMPUTE
    stream[-1] = Stream.COMPUTE
    alone = np.append(steps.alone & (not free), False)
    begins = is_run | (alone & np.append(True, ~steps.alone))
    kind = receives + np.int8(SegmentKind.SEND)
    kind[is_run] = SegmentKind.ACTION
    kind[~(is_run | is_post)] = NONE
    kind[-1] = SegmentKind.PER_STEP if tail else NONE
    joins = begins + np.int8(Joins.BESIDE)
    joins[~(is_run | waits)] = Joins.NOT
    reads = is_run | (is_post & ~(receives & free))
    reads[-1] = True
    behind = queue.copy()
    behind[-1] = Stream.DP
    return Rows(
        kind=kind,
        stream=stream,
        entry=np.where(is_run, what, np.int32(NONE)),
        end=ends,
        peer_stage=peer,
        reads=reads,
        waits=np.full(len(step), NONE, dtype=np.int32),
        behind=behind,
        sets=queue,
        joins=joins,
    )


def _messages(schedule: Schedule, stage: int, ends: Small) -> tuple[Ints, NDArray[np.int8]]:
    """The stage at the other side of ends, and the stream they queue on.

    To the next rank or to the one before; with two ranks activations go forward.
    """
    ranks, receives = schedule.placement.ranks, ends & 1
    peer = far_ranks(schedule, ends)
    hop = (stage - peer) * (2 * receives - 1)
    ahead = (hop == 1) | (hop == 1 - ranks)
    if ranks == 2:
        ahead = ends >> 1 < schedule.placement.stages * schedule.microbatches
    return peer, _QUEUES.take(2 * receives + ahead)
