"""A measured run as a document: what `stepsim inspect RUN --json` writes. Times in seconds."""

from typing import Self

from msgspec.structs import asdict

from stepsim.base.structs import Bytes, Document, Entry, Names, Seconds, Share, Timed
from stepsim.base.units import PS_PER_S
from stepsim.measured.clocks import Clocks
from stepsim.measured.leaf_log import LeafRun, LeafStage
from stepsim.measured.run import Degrees
from stepsim.measured.summary import Imbalance, RankTimes, RunSummary, StageTimes


class _OperationEntry(Entry):
    """An operation of a stage over ranks and microbatches; low and high are 10 % and 90 %."""

    kind: str
    median_s: Seconds
    mean_s: Seconds
    low_s: Seconds
    high_s: Seconds
    samples: int
    by_microbatch_s: tuple[Seconds, ...]
    collectives_s: Seconds


class _TracedStageEntry(Entry):
    """A stage with traces."""

    stage: int
    ranks: tuple[int, ...]
    wait_s: Seconds
    operations: tuple[_OperationEntry, ...]

    @classmethod
    def of(cls, stage: StageTimes) -> Self:
        """The entry of a stage."""
        operations = [
            _OperationEntry.taken_from(
                sample, kind=kind.name.lower(), collectives_s=stage.inner_ps[kind] / PS_PER_S
            )
            for kind, sample in stage.work.items()
        ]
        return cls.taken_from(stage, operations=operations)


class _TracedRankEntry(RankTimes):
    """A rank with a trace; `host_s` per action."""

    bubble: Share


class _StepOpEntry(Entry):
    """An operation after the pipeline."""

    stage: int
    operation: str
    size_bytes: Bytes
    group: tuple[int, ...]
    duration_s: Seconds
    groups_s: tuple[Seconds, ...]
    wait_s: Seconds


class RunDocument(Document, Timed):
    """A run of traces."""

    source: str
    degrees: Degrees
    schedule: str | None
    pipeline_s: Seconds
    step_s: Seconds
    clocks: Clocks
    stages: tuple[_TracedStageEntry, ...]
    ranks: tuple[_TracedRankEntry, ...]
    step_operations: tuple[_StepOpEntry, ...]
    expert_imbalance: Imbalance | None
    warnings: Names

    @classmethod
    def of(cls, found: RunSummary) -> Self:
        """The document of a run's analysis."""
        return cls.taken_from(
            found,
            source=found.run.source,
            degrees=found.run.degrees,
            schedule=found.schedule.label if found.schedule else None,
            stages=[_TracedStageEntry.of(stage) for stage in found.stages],
            ranks=[
                _TracedRankEntry(**asdict(rank), bubble=found.bubble(rank)) for rank in found.ranks
            ],
            step_operations=[
                _StepOpEntry.taken_from(
                    op,
                    operation=op.label,
                    groups_s=tuple(time / PS_PER_S for time in op.times_ps),
                )
                for op in found.step_ops
            ],
            expert_imbalance=found.imbalance,
            warnings=found.run.warnings,
        )


class LogDocument(Document, Timed):
    """A run that logged leaf modules only; `microbatch_size` in samples."""

    source: str
    degrees: dict[str, int]
    microbatch_size: int
    step_s: Seconds
    step_spread_s: Seconds
    steps: int
    stages: tuple[LeafStage, ...]
    warnings: Names

    @classmethod
    def of(cls, log: LeafRun) -> Self:
        """The document of a log."""
        names = ("pp", "tp", "dp", "microbatches")
        return cls.taken_from(
            log,
            degrees={name: getattr(log.plan, name) for name in names},
            microbatch_size=log.plan.microbatch_size,
        )


def run_document(run: RunSummary | LeafRun) -> RunDocument | LogDocument:
    """The document of a measured run: traces analysed, or a log of leaf modules."""
    return LogDocument.of(run) if isinstance(run, LeafRun) else RunDocument.of(run)
