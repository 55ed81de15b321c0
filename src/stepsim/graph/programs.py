"""What each rank of a stage runs: segments, and what each waits for."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from stepsim.base.errors import PlanError
from stepsim.graph.actions import HostTimes
from stepsim.parallel.p2p import P2PMode, P2POptions
from stepsim.parallel.schedules import Entry
from stepsim.workload.axes import Stream

MAX_FUSED_FACTOR = 100.0


class SegmentKind(IntEnum):
    """What a segment is: work of the pipeline, after it, beside it, or one end of a message."""

    ACTION = 0
    PER_STEP = 1
    REDUCTION = 2
    SEND = 3
    RECV = 4


class Segment(NamedTuple):
    """One entry of a program; `after` are earlier segments it waits for.

    `fragment` is a number in the graph's list (-1 for messages); `entry` the place in the
    schedule's order (-1 outside the pipeline). A message has `comm`, and `peer` is the segment at
    its other end, in the program of stage `peer_stage`.
    """

    kind: SegmentKind
    stream: Stream
    after: tuple[int, ...]
    fragment: int = -1
    entry: int = -1
    comm: int = -1
    peer_stage: int = -1
    peer: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What each rank of a stage runs. `entries` is the schedule's order, `segments` the program."""

    stage: int
    entries: tuple[Entry, ...]
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions:
    """How a runtime issues its work.

    `tp_overlap`: weight-gradient compute runs beside the input gradient's collective.
    `dp_bucket_bytes`: the gradients of the last microbatch's backward are reduced in buckets of at
    least this size while it goes on; None: after the pipeline.
    `host`: host time before each action, at the first stage's forwards and after the last's.
    `fused_factor`: compute time of a fused pair over that of its halves.
    """

    p2p: P2PMode = P2PMode.EAGER
    p2p_options: P2POptions = field(default_factory=P2POptions)
    tp_overlap: bool = True
    dp_bucket_bytes: int | None = None
    host: HostTimes = field(default_factory=HostTimes)
    fused_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.dp_bucket_bytes is not None and self.dp_bucket_bytes < 1:
            raise PlanError(f"dp_bucket is {self.dp_bucket_bytes} bytes: expected at least 1")
        if not 0 < self.fused_factor <= MAX_FUSED_FACTOR:
            raise PlanError(
                f"fused_factor is {self.fused_factor}: expected above 0, at most {MAX_FUSED_FACTOR}"
            )
