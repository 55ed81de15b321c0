"""What a measured run says: stage times, waits, host time, per-step operations, bubbles."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.base.structs import replace
from stepsim.measured.clocks import Clocks, Transfers, align
from stepsim.measured.recognise import recognise
from stepsim.measured.run import (
    MESSAGE_KINDS,
    WORK_KINDS,
    Degrees,
    InnerKind,
    MeasuredRun,
    OpKind,
    RankTrace,
)
from stepsim.measured.step_ops import StepOp, step_ops
from stepsim.parallel.schedules import Schedule


class OperationTimes(Struct, frozen=True, kw_only=True, eq=False):
    """Durations of one operation of a stage, in ps, over its ranks and microbatches.

    `low` and `high` are the 10th and 90th percentile; `by_microbatch` are means over ranks.
    """

    median: int
    mean: int
    low: int
    high: int
    count: int
    by_microbatch: Ints


class StageTimes(Struct, frozen=True, kw_only=True, eq=False):
    """Operations of a stage, absent ones missing; `inner_ps` are median collectives inside each.

    `wait_ps` is the mean time its ranks spend in messages.
    """

    stage: int
    ranks: tuple[int, ...]
    work: dict[OpKind, OperationTimes]
    inner_ps: dict[OpKind, int]
    wait_ps: int


class RankTimes(Struct, frozen=True, kw_only=True):
    """Where a rank's pipeline time went, in ps: operations, host time between, messages.

    `actions` are the forwards and backwards whose host time was traced: all but a first one.
    """

    rank: int
    stage: int
    pipeline_ps: int
    step_ps: int
    work_ps: int
    host_ps: int
    wait_ps: int
    actions: int


class Imbalance(Struct, frozen=True, kw_only=True):
    """Tokens of the busiest expert rank over the mean, per all-to-all: mean, largest, samples."""

    mean: float
    largest: float
    samples: int


class RunSummary(Struct, frozen=True, kw_only=True, eq=False):
    """A run, analysed. `schedule` is None where its order is that of no schedule known here."""

    run: MeasuredRun
    clocks: Clocks
    transfers: Transfers
    schedule: Schedule | None
    stages: tuple[StageTimes, ...]
    ranks: tuple[RankTimes, ...]
    step_ops: tuple[StepOp, ...]
    imbalance: Imbalance | None

    @property
    def pipeline_ps(self) -> int:
        """Longest pipeline time of a rank."""
        return max(rank.pipeline_ps for rank in self.ranks)

    @property
    def step_ps(self) -> int:
        """Longest step time of a rank."""
        return max(rank.step_ps for rank in self.ranks)

    def bubble(self, rank: RankTimes) -> float:
        """Share of the pipeline time in which a rank neither works nor prepares work."""
        return 1 - (rank.work_ps + rank.host_ps) / self.pipeline_ps


def summarise(run: MeasuredRun, *, node_size: int | None = None) -> RunSummary:
    """Analyse a run; `node_size` is the ranks per node where the clocks do not tell it.

    Raises TraceError where clocks cannot be compared.
    """
    clocks, transfers = align(run, node_size)
    return RunSummary(
        run=run,
        clocks=clocks,
        transfers=transfers,
        schedule=recognise(run),
        stages=tuple(_stage_times(run, stage) for stage in run.stages),
        ranks=tuple(_rank_times(trace) for trace in run.ranks),
        step_ops=tuple(op for stage in run.stages for op in step_ops(run, stage)),
        imbalance=_imbalance(run),
    )


def of_ranks(summary: RunSummary, ranks: tuple[RankTrace, ...]) -> RunSummary:
    """The part of a summary that some of its ranks are; clocks and messages are those of all."""
    run = replace(summary.run, ranks=ranks)
    kept = {trace.rank for trace in ranks}
    return replace(
        summary,
        run=run,
        stages=tuple(_stage_times(run, stage) for stage in run.stages),
        ranks=tuple(rank for rank in summary.ranks if rank.rank in kept),
        step_ops=tuple(op for stage in run.stages for op in step_ops(run, stage)),
    )


def _rank_times(trace: RankTrace) -> RankTimes:
    pipeline = ~trace.finalize
    work = np.isin(trace.kind, WORK_KINDS)
    waits = np.isin(trace.kind, MESSAGE_KINDS) & ~trace.joined
    return RankTimes(
        rank=trace.rank,
        stage=trace.stage,
        pipeline_ps=trace.pipeline_ps,
        step_ps=trace.step_ps,
        work_ps=int(trace.duration_ps[work].sum()),
        host_ps=int(np.maximum(gaps(trace)[pipeline], 0).sum()),
        wait_ps=int(trace.duration_ps[waits].sum()),
        actions=max(traced_actions(trace), 1),
    )


def traced_actions(trace: RankTrace) -> int:
    """Forwards and backwards before which host time can be seen: a trace begins with its first."""
    begins = int(trace.kind[0] in WORK_KINDS)
    return len(trace.of(OpKind.FORWARD, OpKind.BACKWARD)) - begins


def gaps(trace: RankTrace) -> Ints:
    """Host time before every operation, in ps; 0 before the first and inside fused exchanges."""
    before = np.zeros(len(trace.kind), dtype=np.int64)
    before[1:] = trace.start_ps[1:] - trace.end_ps[:-1]
    before[trace.joined] = 0
    return before


def _stage_times(run: MeasuredRun, stage: int) -> StageTimes:
    traces = list(run.of_stage(stage))
    work: dict[OpKind, OperationTimes] = {}
    inner: dict[OpKind, int] = {}
    for kind in WORK_KINDS:
        if any(len(trace.of(kind)) for trace in traces):
            work[kind] = _sample(traces, kind, run.degrees.microbatches)
            inner[kind] = round(float(np.median(np.concatenate([_inner(t, kind) for t in traces]))))
    waits = [_rank_times(trace).wait_ps for trace in traces]
    return StageTimes(
        stage=stage,
        ranks=tuple(trace.rank for trace in traces),
        work=work,
        inner_ps=inner,
        wait_ps=round(float(np.mean(waits))),
    )


def _sample(traces: Sequence[RankTrace], kind: OpKind, microbatches: int) -> OperationTimes:
    places = [trace.of(kind) for trace in traces]
    durations = [t.duration_ps[p] for t, p in zip(traces, places, strict=True)]
    every = np.concatenate(durations)
    which = np.concatenate([t.microbatch[p] for t, p in zip(traces, places, strict=True)])
    low, median, high = np.percentile(every, (10, 50, 90))
    by_microbatch = [
        round(float(np.mean(every[which == j] if (which == j).any() else every)))
        for j in range(microbatches)
    ]
    return OperationTimes(
        median=round(float(median)),
        mean=round(float(every.mean())),
        low=round(float(low)),
        high=round(float(high)),
        count=len(every),
        by_microbatch=np.array(by_microbatch, dtype=np.int64),
    )


def _inner(trace: RankTrace, kind: OpKind) -> Ints:
    """Time in collectives inside each operation of a kind."""
    sums = np.zeros(len(trace.kind), dtype=np.int64)
    np.add.at(sums, trace.inner.parent, trace.inner.duration_ps)
    return np.asarray(sums[trace.of(kind)], dtype=np.int64)


def expert_groups(degrees: Degrees, stage: int) -> list[tuple[int, ...]]:
    """Groups of ranks of a stage that share out experts; none where degrees do not tell them.

    Megatron's order: `ep` ranks in order, strided by tp.
    """
    width, tp, ep = degrees.stage_ranks, degrees.tp or 1, degrees.ep
    if not width or not ep or ep < 2 or width % (tp * ep):
        return []
    first = stage * width
    return [
        tuple(range(first + block + lane, first + block + tp * ep, tp))
        for block in range(0, width, tp * ep)
        for lane in range(tp)
    ]


def _imbalance(run: MeasuredRun) -> Imbalance | None:
    """How unevenly all-to-alls send tokens: needs whole expert groups.

    The k-th all-to-all of a forward belongs together on all ranks of a group.
    """
    ratios: list[Ints] = []
    for stage in run.stages:
        tokens = {trace.rank: _tokens(trace) for trace in run.of_stage(stage)}
        for ranks in expert_groups(run.degrees, stage):
            group = [tokens[rank] for rank in ranks if rank in tokens]
            whole = len(group) == len(ranks)
            if whole and len({len(each) for each in group}) == 1 and len(group[0]):
                together = np.stack(group)
                ratios.append(together.max(axis=0) / np.maximum(together.mean(axis=0), 1))
    if not ratios:
        return None
    every = np.concatenate(ratios)
    return Imbalance(mean=float(every.mean()), largest=float(every.max()), samples=len(every))


def _tokens(trace: RankTrace) -> Ints:
    """Rows a rank sends in the all-to-alls of its forwards."""
    inner = trace.inner
    forward = trace.kind[inner.parent] == OpKind.FORWARD
    exchanged = inner.kind == list(InnerKind).index(InnerKind.ALL_TO_ALL)
    return np.asarray(inner.rows[forward & exchanged], dtype=np.int64)
