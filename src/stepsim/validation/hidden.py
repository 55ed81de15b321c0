"""Stages without a trace, inferred from what one rank of the first stage waits for.

Two waits tell about the stages behind it. The round trip of the first microbatch, from posting its
forward to holding its gradient, is the sum of all their forwards and backwards. In the steady state
of a blocking 1F1B a gradient arrives every time the slowest stage has done one of each. So two
sums are known: that of a middle stage, taken as alike, and that of the last stage, with its loss.
Forward and backward share a sum as on the traced rank.
"""

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.base.errors import TraceError
from stepsim.base.structs import replace
from stepsim.measured.calibration.calibration import LinkFit
from stepsim.measured.clocks import NodePlacement
from stepsim.measured.run import MESSAGE_KINDS, OpKind, RankTrace
from stepsim.measured.summary import OperationTimes, RunSummary, StageTimes, gaps, traced_actions
from stepsim.parallel.schedules.one_f_one_b import one_f_one_b


class _Inference(Struct, frozen=True, kw_only=True):
    """A run whose missing stages are `hidden` and filled in; times in ps.

    `hop` is the shortest message, taken for all; only the first `microbatches` were used.
    """

    summary: RunSummary
    hidden: tuple[int, ...]
    microbatches: int
    host_overhead_ps: int
    hop_ps: int
    round_trip_ps: int
    cycle_ps: int

    @property
    def links(self) -> tuple[LinkFit, ...]:
        """Messages as long as the shortest one, wherever they go."""
        hop = LinkFit(
            placement=NodePlacement.INTRA_NODE,
            latency_ps=self.hop_ps,
            bandwidth=float("inf"),
            residual=0.0,
            samples=1,
            sizes=(self.summary.run.degrees.message_bytes,),
        )
        return (hop,)

    def notes(self) -> tuple[str, ...]:
        """What to tell the user."""
        names = ", ".join(map(str, self.hidden))
        stages = "stages" if len(self.hidden) > 1 else "stage"
        return (
            f"no trace of {stages} {names}: times are inferred from the waits of rank "
            f"{self.summary.run.ranks[0].rank} in the first {self.microbatches} microbatches",
        )


def infer_hidden(summary: RunSummary, *, first_half: bool = True) -> _Inference:
    """Fill in the stages behind the one traced rank, from the first half of the microbatches.

    Raises TraceError unless the run is one rank of the first stage of a 1F1B pipeline, with enough
    microbatches to see its steady state.
    """
    trace = _only_first_stage(summary)
    pp, count = summary.run.degrees.pp, summary.run.degrees.microbatches
    used = min(max(2, count // 2), count) if first_half else count
    early = _early(trace, used)
    waits, own = _waits(early, pp), _own_times(early, count)
    middle, last = _sums(pp, waits, sum(sample.median for sample in own.values()))
    stages = [replace(summary.stages[0], work=own)]
    stages += [_stage(stage, middle, own, count) for stage in range(1, pp - 1)]
    stages.append(_last_stage(pp - 1, last, own, count))
    return _Inference(
        summary=replace(summary, stages=tuple(stages)),
        hidden=tuple(range(1, pp)),
        microbatches=used,
        host_overhead_ps=waits.host_ps,
        hop_ps=waits.hop_ps,
        round_trip_ps=waits.round_trip_ps,
        cycle_ps=waits.cycle_ps,
    )


class _Waits(Struct, frozen=True, kw_only=True):
    """What the traced rank shows, in ps: host time per action, shortest message, and two waits."""

    host_ps: int
    hop_ps: int
    round_trip_ps: int
    cycle_ps: int


def _waits(early: RankTrace, pp: int) -> _Waits:
    arrivals = early.end_ps[early.of(OpKind.RECV_BACKWARD)]
    sends = early.of(OpKind.SEND_FORWARD)
    if len(arrivals) < 2 or not len(sends):
        raise TraceError(
            f"{early.file}: {len(arrivals)} gradients arrive in the first half: too few to see the "
            f"steady state of {pp} stages"
        )
    return _Waits(
        host_ps=round(float(gaps(early).sum()) / traced_actions(early)),
        hop_ps=int(early.duration_ps[early.of(*MESSAGE_KINDS)].min()),
        round_trip_ps=int(arrivals[0] - early.start_ps[sends[0]]),
        cycle_ps=round(float(arrivals[-1] - arrivals[0]) / (len(arrivals) - 1)),
    )


def _only_first_stage(summary: RunSummary) -> RankTrace:
    run = summary.run
    if len(run.ranks) != 1 or run.ranks[0].stage != 0:
        traced = ", ".join(f"{t.rank} (stage {t.stage})" for t in run.ranks[:4])
        raise TraceError(
            f"{run.source}: traces of rank {traced}: hidden stages are inferred from one rank of "
            "stage 0, whose waits see the whole pipeline"
        )
    ranks, count = run.degrees.pp, run.degrees.microbatches
    if ranks < 2 or summary.schedule != one_f_one_b(ranks=ranks, microbatches=count):
        raise TraceError(f"{run.source}: expected a 1f1b pipeline of at least 2 stages")
    return run.ranks[0]


def _early(trace: RankTrace, used: int) -> RankTrace:
    """The trace up to the backward of the last microbatch used."""
    done = trace.of(OpKind.BACKWARD)
    return trace.part(0, int(done[trace.microbatch[done] == used - 1][0]) + 1)


def _own_times(early: RankTrace, count: int) -> dict[OpKind, OperationTimes]:
    """The traced rank's own operations early in the run."""
    kinds = (OpKind.GET_BATCH, OpKind.FORWARD, OpKind.BACKWARD)
    return {
        kind: _sample(early.duration_ps[early.of(kind)], count)
        for kind in kinds
        if len(early.of(kind))
    }


def _sample(durations: Ints, count: int) -> OperationTimes:
    low, median, high = (round(float(p)) for p in np.percentile(durations, (10, 50, 90)))
    return OperationTimes(
        median=median,
        mean=round(float(durations.mean())),
        low=low,
        high=high,
        count=len(durations),
        by_microbatch=np.full(count, median, dtype=np.int64),
    )


def _sums(pp: int, waits: _Waits, own_loop: int) -> tuple[int, int]:
    """Forward plus backward of a middle stage and of the last one, in ps.

    The round trip holds those of all hidden stages, their host time and two messages per stage; a
    cycle holds that of the slowest stage with its messages, one exchange on the last stage and two
    on a middle one. Where the traced stage is itself the slowest, the hidden ones are taken as
    alike.
    """
    behind = waits.round_trip_ps - 2 * (pp - 1) * (waits.hop_ps + waits.host_ps)
    slowest = waits.cycle_ps - 2 * waits.host_ps
    even = max(behind // (pp - 1), 0)
    if own_loop + 2 * waits.hop_ps >= slowest:
        return even, even
    last = slowest - waits.hop_ps
    if pp == 2:
        return last, last
    middle = (behind - last) // (pp - 2)
    if middle <= last:
        return max(middle, 0), last
    middle = slowest - 2 * waits.hop_ps
    return middle, max(behind - (pp - 2) * middle, 0)


def _last_stage(
    stage: int, total: int, own: dict[OpKind, OperationTimes], count: int
) -> StageTimes:
    """The last stage reads its batch as the first one does; its loss stays in the forward."""
    if OpKind.GET_BATCH not in own:
        return _stage(stage, total, own, count)
    batch = own[OpKind.GET_BATCH]
    rest = _stage(stage, max(total - batch.median, 0), own, count)
    return replace(rest, work={OpKind.GET_BATCH: batch, **rest.work})


def _stage(stage: int, total: int, own: dict[OpKind, OperationTimes], count: int) -> StageTimes:
    """A hidden stage: forward and backward share their sum as on the traced stage."""
    forward, backward = own[OpKind.FORWARD].median, own[OpKind.BACKWARD].median
    share = total * forward // (forward + backward)
    times = {OpKind.FORWARD: share, OpKind.BACKWARD: total - share}
    return StageTimes(
        stage=stage,
        ranks=(),
        work={kind: _sample(np.array([t], dtype=np.int64), count) for kind, t in times.items()},
        inner_ps=dict.fromkeys(times, 0),
        wait_ps=0,
    )
