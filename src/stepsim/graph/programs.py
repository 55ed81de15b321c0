"""What each rank of a stage runs: segments, and what each waits for."""

from enum import IntEnum
from typing import NamedTuple

from stepsim.base.records import dataclass
from stepsim.parallel.schedules import OrderEntry
from stepsim.workload.axes import Stream


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What each rank of a stage runs. `entries` is the schedule's order, `segments` the program."""

    stage: int
    entries: tuple[OrderEntry, ...]
    segments: tuple[Segment, ...]
