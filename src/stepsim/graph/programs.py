"""What each rank of a stage runs: segments, and what each waits for.

A stage's rows become its segments: they follow its point-to-point program step by step. A rank has
a front: what the next segment in order waits for. A row may read the front, join it, or take its
place; and it may queue behind the last row of a stream. So what a row waits for is a piece of the
column of all that ever joined the front, and one more.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from stepsim.base.arrays import Bools, Ints, Lists, Small, bounds, narrowed, numbers_of, spans
from stepsim.graph.actions import TaskList
from stepsim.network.prices import Use
from stepsim.parallel.p2p import P2PProgram, StepKind
from stepsim.parallel.p2p.columns import far_ranks
from stepsim.parallel.schedules import OrderEntry, Schedule
from stepsim.workload.rows import Stream

_Number = TypeVar("_Number", bound=np.generic)


class SegmentKind(IntEnum):
    """What a segment is: work of the pipeline, after it, beside it, or one end of a message."""

    ACTION = 0
    PER_STEP = 1
    REDUCTION = 2
    SEND = 3
    RECV = 4


class Segment(NamedTuple):
    """One entry of a program; `after` are earlier segments it waits for.

    `task_list` is a number in the graph's list (-1 for messages); `entry` the place in the
    schedule's order (-1 outside the pipeline). A message has `comm`, and `peer` is the segment at
    its other end, in the program of stage `peer_stage`.
    """

    kind: SegmentKind
    stream: Stream
    after: tuple[int, ...]
    task_list: int = -1
    entry: int = -1
    comm: int = -1
    peer_stage: int = -1
    peer: int = -1


class Look(NamedTuple):
    """What segments that do the same have in common, and how often a rank runs such a one."""

    kind: SegmentKind
    task_list: int
    peer_stage: int
    runs: int


class ShapeFamily(Struct, frozen=True, eq=False):
    """What the shapes of all stages of a graph have in common: `known` depends on them alone."""

    known: dict[object, Any] = field(default_factory=dict)


class Shape(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The segments of a stage but for what they compute, as columns, each named as in `Segment`.

    `numbers` are those of the segments.
    """

    numbers: Small
    kind: NDArray[np.int8]
    stream: NDArray[np.int8]
    entry: Small
    peer_stage: NDArray[np.integer]
    peer: Small
    after: Lists
    family: ShapeFamily

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def senders(self) -> tuple[int, ...]:
        """Stages that send to this one."""
        stages = self.peer_stage.compress(self.kind == SegmentKind.RECV)
        return tuple(np.flatnonzero(np.bincount(stages)).tolist())


class Program(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """What each rank of a stage runs: the shape of its segments, and what each of them does.

    `entries` is the schedule's order, `message` the number of the communication of all messages,
    `lists` are its task lists by their numbers. Segment i has the look `looks[look[i]]`; looks
    stand in the order in which they appear.
    """

    stage: int
    entries: Sequence[OrderEntry]
    message: int
    shape: Shape
    lists: Mapping[int, TaskList]
    looks: tuple[Look, ...]
    look: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.shape)

    @property
    def task_lists(self) -> Small:
        """The task list of every segment, -1 for messages."""
        of_look = np.array([each.task_list for each in self.looks], dtype=np.int32)
        found: Small = of_look[self.look]
        return found

    def task_list(self, number: int) -> int:
        """The task list of one segment, -1 for a message."""
        return self.looks[int(self.look[number])].task_list

    def segment(self, number: int) -> Segment:
        """One segment."""
        task_list = self.task_list(number)
        return Segment(
            kind=SegmentKind(self.shape.kind[number]),
            stream=Stream(self.shape.stream[number]),
            after=tuple(self.shape.after[number]),
            task_list=task_list,
            entry=int(self.shape.entry[number]),
            comm=self.message if task_list < 0 else -1,
            peer_stage=int(self.shape.peer_stage[number]),
            peer=int(self.shape.peer[number]),
        )

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Every segment as an object, for those who look at all of them one by one."""
        return tuple(map(self.segment, range(len(self))))

    @cached_property
    def counts(self) -> Counter[Use]:
        """How often a rank takes part in each communication.

        Segments that look alike are counted first: there are few looks and many segments.
        """
        counts: Counter[Use] = Counter()
        for kind, task_list, peer, count in self.looks:
            if task_list < 0:
                counts[Use(self.message, self.stage, peer, kind is SegmentKind.SEND)] += count
                continue
            for comm, times in self.lists[task_list].comms.items():
                counts[Use(comm, self.stage)] += count * times
        return counts

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """The communications that it takes part in, ascending."""
        return tuple(sorted(self.counts))


Looks = tuple[tuple[Look, ...], NDArray[np.integer]]
"""The looks of segments as they appear, and the look of each."""


def looks_of(shape: Shape, task_list: Small) -> Looks:
    """The looks of segments with these task lists, as they appear, and the look of each."""
    kinds, stages = len(SegmentKind), int(shape.peer_stage.max(initial=0)) + 2
    code: Ints = (task_list.astype(np.int64) + 1) * stages + shape.peer_stage + 1
    code = code * kinds + shape.kind
    first, number = numbers_of(code)
    counts = np.bincount(number)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    columns = (shape.kind[first], task_list[first], shape.peer_stage[first], counts)
    looks = zip(*(column[order].tolist() for column in columns), strict=True)
    every = tuple(Look(SegmentKind(kind), *each) for kind, *each in looks)
    return every, narrowed(place, len(every)).take(number)


NONE = -1


class Joins(IntEnum):
    """What becomes of the front when a row is posted."""

    NOT = 0
    BESIDE = 1
    ALONE = 2


class Rows(Struct, frozen=True, kw_only=True, eq=False):
    """Rows of the programs of some stages as columns, one stage after the other.

    A row is a segment of a `kind` on a `stream`, or, where that is -1, a wait. `end` is the end of
    a message that it is or waits for, -1 for others.
    `reads` says whether it waits for the front; else it waits for row `waits`, if any. It is queued
    behind the last row that `sets` the stream it is `behind`. It `joins` the front, or what it
    waits for does. It runs a `task_list`, -1 where that is said elsewhere.
    Those of stage i are from `stages[i]` to `stages[i + 1]`: no column, and none of `COLUMNS`.
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

    task_list: Small
    stages: Small

    @classmethod
    def of(cls, stages: Small, **columns: NDArray[np.integer | np.bool_]) -> Self:
        """Rows of stages from columns of any integers."""
        kinds = {"reads": bool} | dict.fromkeys(
            ("kind", "stream", "behind", "sets", "joins"), np.int8
        )
        own = {name: each.astype(kinds.get(name, np.int32)) for name, each in columns.items()}
        return cls(**own, stages=stages)


COLUMNS = tuple(name for name in Rows.__struct_fields__ if name != "stages")


class Segments(NamedTuple):
    """Where the segments of stages are among their rows, and the number of each in its stage.

    Those of stage i are from `firsts[i]` to `firsts[i + 1]`.
    """

    place: Ints
    number: Small
    firsts: Ints

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """The segments of rows."""
        place = np.flatnonzero(rows.kind >= 0)
        firsts = place.searchsorted(rows.stages)
        number = np.arange(len(place), dtype=np.int32)
        number -= firsts[:-1].astype(np.int32).repeat(np.diff(firsts))
        return cls(place, number, firsts)


def waits_of(rows: Rows, segments: Segments, posted: Small) -> Lists:
    """What every segment waits for, by its stage's numbers: front first, its stream last.

    `posted[e]` is the segment that is end e of a message.
    """
    number = np.full(len(rows.kind), NONE, dtype=np.int32)
    number[segments.place] = segments.number
    joins = rows.joins > 0
    front = number.compress(joins)
    front = np.where(front >= 0, front, posted.take(rows.end.compress(joins)))
    past = np.cumsum(joins, dtype=np.int32) - joins
    since = np.zeros(len(past) + 1, dtype=np.int32)
    since[1:] = past * (rows.joins == Joins.ALONE)
    since[rows.stages[:-1]] = past.take(rows.stages[:-1])
    first = np.maximum.accumulate(since).take(segments.place)
    sizes = (past.take(segments.place) - first) * rows.reads.take(segments.place)
    waits = rows.waits.take(segments.place)
    named = np.flatnonzero(waits >= 0)
    behind, before = _queued(rows.behind.take(segments.place), rows.sets.take(segments.place))
    stage = segments.firsts.searchsorted(behind, side="right") - 1
    own = before >= segments.firsts.take(stage)
    behind, before = behind.compress(own), segments.number.take(before.compress(own))
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


class StageSteps(NamedTuple):
    """A stage and the steps of its point-to-point program.

    It has a `tail` where something follows the pipeline. `on_dp[i]` says whether entry i has
    collectives on the stream of the gradient reductions.
    """

    stage: int
    steps: P2PProgram
    tail: bool
    on_dp: Bools


def step_rows(schedule: Schedule, every: Sequence[StageSteps], *, free: bool) -> Rows:
    """A row for every step of stages, and one for the tail that follows the pipeline of each.

    Where messages are `free`, they leave when they are posted, overtaking others, and are received
    when they come; sends are never waited for. The tail queues behind the gradient reductions.
    """
    stages = bounds(np.array([len(each.steps.kind) + 1 for each in every]))
    tails = stages[1:] - 1
    step = _with_tails([each.steps.kind for each in every], NONE)
    what = _with_tails([each.steps.what for each in every], NONE)
    alone = _with_tails([each.steps.alone for each in every], False)
    is_run, is_post, waits = (step == kind for kind in StepKind)
    ends = np.where(is_run, np.int32(NONE), what)
    receives = (ends & 1 == 1) & ~is_run
    posts, runs = np.flatnonzero(is_post), np.flatnonzero(is_run)
    peer = np.full(len(step), NONE, dtype=np.int32)
    stream = np.full(len(step), NONE, dtype=np.int8)
    stage = np.array([each.stage for each in every]).repeat(np.diff(stages))
    peer[posts], stream[posts] = _messages(schedule, stage.take(posts), ends.take(posts))
    queue = np.full(len(step), NONE, dtype=np.int8) if free else stream.copy()
    queue[runs.compress(np.concatenate([each.on_dp for each in every]))] = Stream.DP
    if free:
        stream[posts] = Stream.EAGER
        waits &= receives
        alone[:] = False
    stream[runs] = stream[tails] = Stream.COMPUTE
    begins = is_run | (alone & np.append(True, ~alone[:-1]))
    kind = receives + np.int8(SegmentKind.SEND)
    kind[is_run] = SegmentKind.ACTION
    kind[~(is_run | is_post)] = NONE
    kind[tails.compress([each.tail for each in every])] = SegmentKind.PER_STEP
    joins = begins + np.int8(Joins.BESIDE)
    joins[~(is_run | waits)] = Joins.NOT
    reads = is_run | (is_post & ~(receives & free))
    reads[tails] = True
    behind = queue.copy()
    behind[tails] = Stream.DP
    nothing = np.full(len(step), NONE, dtype=np.int32)
    return Rows(
        kind=kind,
        stream=stream,
        entry=np.where(is_run, what, nothing),
        end=ends,
        peer_stage=peer,
        reads=reads,
        waits=nothing,
        behind=behind,
        sets=queue,
        joins=joins,
        task_list=nothing,
        stages=stages,
    )


def _with_tails(columns: Sequence[NDArray[_Number]], tail: int) -> NDArray[_Number]:
    """Columns of stages one after the other, with a value after each."""
    last = np.array([tail], dtype=columns[0].dtype)
    return np.concatenate([part for column in columns for part in (column, last)])


def _messages(schedule: Schedule, stage: Ints, ends: Small) -> tuple[Ints, NDArray[np.int8]]:
    """The stage at the other side of ends of a `stage`, and the stream they queue on.

    To the next rank or to the one before; with two ranks activations go forward.
    """
    ranks, receives = schedule.placement.ranks, ends & 1
    peer = far_ranks(schedule, ends)
    hop = (stage - peer) * (2 * receives - 1)
    ahead = (hop == 1) | (hop == 1 - ranks)
    if ranks == 2:
        ahead = ends >> 1 < schedule.placement.stages * schedule.microbatches
    return peer, _QUEUES.take(2 * receives + ahead)
