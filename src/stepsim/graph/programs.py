"""What each rank of a stage runs: segments, and what each waits for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from stepsim.base.arrays import Lists, Small, narrowed, numbers_of
from stepsim.graph.actions import TaskList
from stepsim.network.prices import Use
from stepsim.parallel.schedules import OrderEntry
from stepsim.workload.rows import Stream


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

    `numbers` are those of the segments, `programs` those of this shape, by what they compute, and
    `looks` those of its segments, by the numbers of their task lists.
    """

    numbers: Small
    kind: NDArray[np.int8]
    stream: NDArray[np.int8]
    entry: Small
    peer_stage: Small
    peer: Small
    after: Lists
    family: ShapeFamily
    programs: "dict[tuple[object, ...], Program]" = field(default_factory=dict)
    looks: "dict[tuple[object, ...], Looks]" = field(default_factory=dict)

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
    stand in the order in which they appear. `layouts` are those that the engine knows of it.
    """

    stage: int
    entries: Sequence[OrderEntry]
    message: int
    shape: Shape
    lists: Mapping[int, TaskList]
    looks: tuple[Look, ...]
    look: NDArray[np.integer]
    layouts: dict[object, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.shape)

    @property
    def kind(self) -> NDArray[np.int8]:
        """The kind of every segment."""
        return self.shape.kind

    @property
    def stream(self) -> NDArray[np.int8]:
        """The stream of every segment."""
        return self.shape.stream

    @property
    def entry(self) -> Small:
        """The place of every segment in the schedule's order, -1 outside the pipeline."""
        return self.shape.entry

    @property
    def peer_stage(self) -> Small:
        """The stage at the other end of every message, -1 for others."""
        return self.shape.peer_stage

    @property
    def peer(self) -> Small:
        """The segment at the other end of every message, -1 for others."""
        return self.shape.peer

    @property
    def after(self) -> Lists:
        """The segments that each waits for."""
        return self.shape.after

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
            kind=SegmentKind(self.kind[number]),
            stream=Stream(self.stream[number]),
            after=tuple(self.after[number]),
            task_list=task_list,
            entry=int(self.entry[number]),
            comm=self.message if task_list < 0 else -1,
            peer_stage=int(self.peer_stage[number]),
            peer=int(self.peer[number]),
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
    code = (task_list.astype(np.int64) + 1) * stages + shape.peer_stage + 1
    first, number = numbers_of(code * kinds + shape.kind)
    counts = np.bincount(number)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    columns = (shape.kind[first], task_list[first], shape.peer_stage[first], counts)
    looks = zip(*(column[order].tolist() for column in columns), strict=True)
    every = tuple(Look(SegmentKind(kind), *each) for kind, *each in looks)
    return every, narrowed(place, len(every)).take(number)
