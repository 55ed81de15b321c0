"""The rows of a stage that follow its point-to-point program step by step."""

import numpy as np

from stepsim.base.arrays import Bools, Ints
from stepsim.graph.linking import NONE, Joins, Rows
from stepsim.graph.programs import SegmentKind
from stepsim.parallel.p2p import P2PProgram, StepKind
from stepsim.parallel.p2p.columns import far_ranks
from stepsim.parallel.schedules import Schedule
from stepsim.workload.axes import Stream


def step_rows(
    schedule: Schedule, stage: int, steps: P2PProgram, *, free: bool, tail: bool, on_dp: Bools
) -> Rows:
    """A row for every step, and one for the `tail` that follows the pipeline.

    Where messages are `free`, they leave when they are posted, overtaking others, and are received
    when they come; sends are never waited for. `on_dp[i]` says whether entry i has collectives on
    the stream of the gradient reductions: these queue there, and the tail does behind them.
    """
    is_run, is_post = steps.kind == StepKind.COMPUTE, steps.kind == StepKind.POST
    ends = np.where(is_run, NONE, steps.what)
    receives = ends % 2 == 1
    receives &= ~is_run
    posts = np.flatnonzero(is_post)
    posted = np.full(int(ends.max(initial=0)) + 1, NONE, dtype=np.int32)
    posted[ends[posts]] = posts
    peer, stream = np.full((2, len(ends)), NONE, dtype=np.int32)
    peer[posts], stream[posts] = _messages(schedule, stage, ends[posts])
    queue = np.full(len(ends), NONE, dtype=np.int32) if free else stream.copy()
    runs = np.flatnonzero(is_run)
    queue[runs[on_dp[steps.what[runs]]]] = Stream.DP
    if free:
        stream[posts] = Stream.EAGER
    stream[runs] = Stream.COMPUTE
    waits = ~(is_post | is_run)
    waits &= receives | (not free)
    alone = steps.alone & (not free)
    begins = is_run | (alone & np.append(True, ~steps.alone[:-1]))
    kind = np.where(receives, np.int8(SegmentKind.RECV), np.int8(SegmentKind.SEND))
    kind[is_run] = SegmentKind.ACTION
    kind[~(is_run | is_post)] = NONE
    joins = np.where(begins, np.int8(Joins.ALONE), np.int8(Joins.BESIDE))
    joins[~(is_run | waits)] = Joins.NOT
    place = np.arange(len(ends), dtype=np.int32)
    columns = {
        "kind": (kind, SegmentKind.PER_STEP if tail else NONE),
        "stream": (stream, Stream.COMPUTE),
        "entry": (np.where(is_run, steps.what, NONE), NONE),
        "end": (np.where(is_post, ends, NONE), NONE),
        "peer_stage": (peer, NONE),
        "reads": (is_run | (is_post & ~(receives & free)), True),
        "waits": (np.full(len(ends), NONE, dtype=np.int32), NONE),
        "behind": (queue, Stream.DP),
        "sets": (queue, NONE),
        "joins": (joins, Joins.NOT),
        "joined": (np.where(is_run, place, np.where(waits, posted[ends], NONE)), NONE),
    }
    return Rows.of(**{name: np.append(column, last) for name, (column, last) in columns.items()})


def _messages(schedule: Schedule, stage: int, ends: Ints) -> tuple[Ints, Ints]:
    """The stage at the other side of ends, and the stream they queue on.

    To the next rank or to the one before; with two ranks activations go forward.
    """
    ranks, receives = schedule.placement.ranks, ends % 2 == 1
    peer = far_ranks(schedule, ends)
    ahead = np.where(receives, stage - peer, peer - stage) % ranks == 1
    if ranks == 2:
        ahead = ends // 2 < schedule.placement.stages * schedule.microbatches
    sends = np.where(ahead, Stream.PP_FORWARD, Stream.PP_BACKWARD)
    comes = np.where(ahead, Stream.PP_FORWARD_RECV, Stream.PP_BACKWARD_RECV)
    return peer, np.where(receives, comes, sends)
