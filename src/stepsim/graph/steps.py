"""The rows of a stage that follow its point-to-point program step by step."""

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Bools, Ints, Small
from stepsim.graph.linking import NONE, Joins, Rows
from stepsim.graph.programs import SegmentKind
from stepsim.parallel.p2p import P2PProgram, StepKind
from stepsim.parallel.p2p.columns import far_ranks
from stepsim.parallel.schedules import Schedule
from stepsim.workload.axes import Stream

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
