"""What a measured run says: stage times, waits, host time, per-step operations, bubbles."""

from collections.abc import Sequence
from typing import Self, TypeVar

import numpy as np

from stepsim.base.arrays import Bools, Ints, places_by, whole_totals
from stepsim.base.axes import Group
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Names, Noun, Numbers, Timed, replace
from stepsim.measured.clocks import Clocks, Transfers, align
from stepsim.measured.profile.events import Events, Following, Profile
from stepsim.measured.recognise import recognise
from stepsim.measured.run import (
    MESSAGE_KINDS,
    WORK_KINDS,
    Degrees,
    OpKind,
    groups_on,
)
from stepsim.measured.run_profile import (
    after_pipeline,
    fused,
    gaps,
    of_kinds,
)
from stepsim.measured.step_ops import StepOp, step_ops
from stepsim.parallel.schedules import Schedule
from stepsim.run.spans import UNKNOWN

_Summary = TypeVar("_Summary", bound="RunSummary")


# Times by microbatch are means over ranks, `collectives_ps` is the median in collectives inside.
class OperationTimes(Timed):
    """An operation of a stage over ranks and microbatches; low and high are 10 % and 90 %."""

    kind: str
    median_ps: InSeconds
    mean_ps: InSeconds
    low_ps: InSeconds
    high_ps: InSeconds
    samples: int
    by_microbatch_ps: tuple[InSeconds, ...]
    collectives_ps: InSeconds

    @classmethod
    def of(
        cls,
        kind: OpKind,
        durations_ps: Ints,
        by_microbatch_ps: Numbers = (),
        collectives_ps: int = 0,
    ) -> Self:
        """Some durations of operations of a kind."""
        low, median, high = (round(float(p)) for p in np.percentile(durations_ps, (10, 50, 90)))
        return cls(
            kind=kind.name.lower(),
            median_ps=median,
            mean_ps=round(float(durations_ps.mean())),
            low_ps=low,
            high_ps=high,
            samples=len(durations_ps),
            by_microbatch_ps=by_microbatch_ps,
            collectives_ps=collectives_ps,
        )


class StageTimes(Noun, eq=False):
    """Operations of a stage, absent ones missing.

    `wait_ps` is the mean time its ranks spend in messages. `chunks` are the operations of each
    chunk of a rank, where it holds several.
    """

    stage: int
    ranks: Numbers
    work: dict[OpKind, OperationTimes]
    wait_ps: int
    chunks: tuple[dict[OpKind, OperationTimes], ...] = ()

    @property
    def operations(self) -> tuple[OperationTimes, ...]:
        """Its operations in order."""
        return tuple(self.work.values())


class RankTimes(Timed):
    """Where a rank's pipeline time went, in ps: operations, host time between, messages.

    `actions` are the forwards and backwards whose host time was traced: all but a first one.
    """

    rank: int
    stage: int
    pipeline_ps: InSeconds
    step_ps: InSeconds
    work_ps: InSeconds
    host_ps: InSeconds
    wait_ps: InSeconds
    actions: int


class Imbalance(Noun):
    """Tokens of the busiest expert rank over the mean, per all-to-all: mean, largest, samples."""

    mean: float
    largest: float
    samples: int


class RunSummary(Noun, eq=False):
    """A run, analysed. `schedule` is None where its order is that of no schedule known here."""

    run: Profile
    degrees: Degrees
    clocks: Clocks
    transfers: Transfers
    schedule: Schedule | None
    stages: tuple[StageTimes, ...]
    ranks: tuple[RankTimes, ...]
    step_ops: tuple[StepOp, ...]
    imbalance: Imbalance | None

    @property
    def source(self) -> str:
        """What the run was read from."""
        return self.run.source

    @property
    def warnings(self) -> Names:
        """What was noticed while reading it."""
        return self.run.warnings

    @property
    def pipeline_ps(self) -> int:
        """Longest pipeline time of a rank."""
        return max(rank.pipeline_ps for rank in self.ranks)

    @property
    def step_ps(self) -> int:
        """Longest step time of a rank."""
        return max(rank.step_ps for rank in self.ranks)

    @property
    def missing(self) -> list[int]:
        """Ranks of the job that were not traced."""
        return self.degrees.untraced(rank.rank for rank in self.run.ranks)

    def bubble(self, rank: RankTimes) -> float:
        """Share of the pipeline time in which a rank neither works nor prepares work."""
        return 1 - (rank.work_ps + rank.host_ps) / self.pipeline_ps


def summarise(read: Profile, *, node_size: int | None = None) -> RunSummary:
    """Analyse a run with degrees, whose ranks have clocks of their own; a node has `node_size`.

    It is needed where the clocks do not tell it. Raises TraceError where they cannot be compared.
    """
    run, clocks, messages = align(read, node_size)
    ranks = tuple(rank_times(run, index) for index in range(len(run.ranks)))
    return summary_of(run, clocks, messages, ranks)


def summary_of(
    run: Profile, clocks: Clocks, messages: Following, ranks: tuple[RankTimes, ...]
) -> RunSummary:
    """What a run says whose clocks, times of ranks and matched sends and receives are known."""
    whole = RunSummary(
        run=run,
        degrees=run.degrees,
        clocks=clocks,
        transfers=_transfers(run, *messages),
        schedule=recognise(run),
        stages=(),
        ranks=ranks,
        step_ops=(),
        imbalance=_imbalance(run),
    )
    return of_ranks(whole, range(len(ranks)))


def _transfers(run: Profile, sent: Ints, received: Ints) -> Transfers:
    """Messages by the places of both ends."""
    events = run.events
    both = fused(events)
    both[:-1] |= both[1:]
    node = run.column_of_ranks("node")
    posted = np.maximum(events.start_ps[sent], events.start_ps[received])
    ended = (events.end_ps[sent] + events.end_ps[received]) // 2
    return Transfers(
        size_bytes=events.size_bytes[sent],
        duration_ps=np.maximum(ended - posted, 0),
        both_ways=both[sent] & both[received],
        intra_node=node[sent] == node[received],
    )


def of_ranks(summary: _Summary, places: Sequence[int]) -> _Summary:
    """What some ranks of a whole run's summary say, by their places; all else stays as it is."""
    run, inner = summary.run, summary.run.inner
    inner_ps = whole_totals(inner.parent, inner.duration_ps, len(run.events))
    every = [(stage, [i for i in run.of_stage(stage) if i in places]) for stage in run.stages]
    traced = [(stage, chosen) for stage, chosen in every if chosen]
    return replace(
        summary,
        stages=tuple(_stage_times(summary, *each, inner_ps) for each in traced),
        ranks=tuple(summary.ranks[index] for index in places),
        step_ops=tuple(op for each in traced for op in step_ops(run, *each)),
    )


def rank_times(run: Profile, index: int) -> RankTimes:
    """Where the time of the rank at a place went, of operations that run one after the other."""
    events, rank = run.of_rank(index), run.ranks[index]
    pipeline = ~after_pipeline(events)
    work = of_kinds(events, *WORK_KINDS)
    waits = np.isin(events.name, MESSAGE_KINDS) & ~fused(events)
    start = int(events.start_ps[0])
    return RankTimes(
        rank=rank.rank,
        stage=rank.stage or 0,
        pipeline_ps=int(events.end_ps[pipeline].max()) - start,
        step_ps=int(events.end_ps.max()) - start,
        work_ps=int(events.duration_ps[work].sum()),
        host_ps=int(np.maximum(gaps(events)[pipeline], 0).sum()),
        wait_ps=int(events.duration_ps[waits].sum()),
        actions=max(traced_actions(events), 1),
    )


def traced_actions(events: Events) -> int:
    """A rank's forwards and backwards before which host time can be seen.

    Nothing can be seen before the first one where the trace begins with it.
    """
    begins = int(events.name[0] in WORK_KINDS)
    return len(of_kinds(events, OpKind.FORWARD, OpKind.BACKWARD)) - begins


def _stage_times(
    summary: RunSummary, stage: int, ranks: Sequence[int], inner_ps: Ints
) -> StageTimes:
    """Operations of a stage on the ranks at some places; `inner_ps` are collectives inside each."""
    run, events = summary.run, summary.run.events
    on_ranks = np.isin(events.rank, ranks)
    held = np.unique(events.chunk[on_ranks & np.isin(events.name, WORK_KINDS)]).tolist()
    return StageTimes(
        stage=stage,
        ranks=tuple(run.ranks[index].rank for index in ranks),
        work=_work(summary, on_ranks, inner_ps),
        wait_ps=round(float(np.mean([summary.ranks[index].wait_ps for index in ranks]))),
        chunks=tuple(_work(summary, on_ranks & (events.chunk == own), inner_ps) for own in held)
        if len(held) > 1
        else (),
    )


def _work(summary: RunSummary, chosen: Bools, inner_ps: Ints) -> dict[OpKind, OperationTimes]:
    """Durations of some operations, by what they are."""
    events, found = summary.run.events, {}
    for kind in WORK_KINDS:
        places = np.flatnonzero(chosen & (events.name == kind))
        if not len(places):
            continue
        every, which = events.duration_ps[places], events.microbatch[places]
        # a backward without weight gradients apart is whole, others were not traced
        usual = every if kind is not OpKind.WEIGHT_GRAD else np.zeros(1, np.int64)
        by_microbatch = (
            round(float(np.mean(every[which == j] if (which == j).any() else usual)))
            for j in range(summary.degrees.microbatches)
        )
        inner = round(float(np.median(inner_ps[places])))
        found[kind] = OperationTimes.of(kind, every, tuple(by_microbatch), inner)
    return found


def _imbalance(run: Profile) -> Imbalance | None:
    """How unevenly all-to-alls send tokens: needs whole expert groups.

    The k-th all-to-all of a forward belongs together on all ranks of a group.
    """
    events, inner, ratios = run.events, run.inner, list[Ints]()
    forward = events.name[inner.parent] == OpKind.FORWARD
    sent = inner.taken(forward & (inner.tokens != UNKNOWN))
    of_ranks = places_by(events.rank[sent.parent], len(run.ranks))
    own = zip(run.ranks, of_ranks, strict=True)
    tokens = {rank.rank: sent.tokens[places] for rank, places in own}
    for stage in run.stages:
        for ranks in groups_on(run.degrees, Group.EP, stage):
            group = [tokens[rank] for rank in ranks if rank in tokens]
            whole = 1 < len(group) == len(ranks)
            if whole and len({len(each) for each in group}) == 1 and len(group[0]):
                together = np.stack(group)
                ratios.append(together.max(axis=0) / np.maximum(together.mean(axis=0), 1))
    if not ratios:
        return None
    every = np.concatenate(ratios)
    return Imbalance(mean=float(every.mean()), largest=float(every.max()), samples=len(every))
