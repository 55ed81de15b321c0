"""A measured run as a document: what `stepsim inspect RUN --json` writes. Times in seconds."""

from typing import Self

from stepsim.base.structs import Bytes, Document, Entry, Names, Seconds, Share, Timed
from stepsim.base.units import PS_PER_S
from stepsim.measured.clocks import Clocks
from stepsim.measured.leaf_log import LeafRun
from stepsim.measured.run import Degrees, OpKind
from stepsim.measured.summary import Imbalance, OperationTimes, RunSummary, StageTimes


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

    @classmethod
    def of(cls, kind: OpKind, sample: OperationTimes, inner_ps: int) -> Self:
        """The entry of an operation, of which collectives inside take `inner_ps`."""
        return cls(
            kind=kind.name.lower(),
            median_s=sample.median / PS_PER_S,
            mean_s=sample.mean / PS_PER_S,
            low_s=sample.low / PS_PER_S,
            high_s=sample.high / PS_PER_S,
            samples=sample.count,
            by_microbatch_s=tuple(time / PS_PER_S for time in sample.by_microbatch.tolist()),
            collectives_s=inner_ps / PS_PER_S,
        )


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
            _OperationEntry.of(kind, sample, stage.inner_ps[kind])
            for kind, sample in stage.work.items()
        ]
        return cls.taken_from(stage, operations=operations)


class _TracedRankEntry(Entry):
    """A rank with a trace; `host_s` per action."""

    rank: int
    stage: int
    pipeline_s: Seconds
    step_s: Seconds
    work_s: Seconds
    host_s: Seconds
    wait_s: Seconds
    actions: int
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
                _TracedRankEntry.taken_from(rank, bubble=found.bubble(rank)) for rank in found.ranks
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


class _LoggedStageEntry(Entry):
    """A stage of a log: forward sums of its leaf modules."""

    stage: int
    layers: float
    leaf_modules_of_layers_s: Seconds
    leaf_modules_of_ends_s: Seconds
    samples: int


class LogDocument(Document):
    """A run that logged leaf modules only; `microbatch_size` in samples."""

    source: str
    degrees: dict[str, int]
    microbatch_size: int
    step_s: Seconds
    step_spread_s: Seconds
    steps: int
    stages: tuple[_LoggedStageEntry, ...]
    warnings: Names

    @classmethod
    def of(cls, log: LeafRun) -> Self:
        """The document of a log."""
        stages = [
            _LoggedStageEntry.taken_from(
                stage,
                leaf_modules_of_layers_s=stage.layers_ps / PS_PER_S,
                leaf_modules_of_ends_s=stage.ends_ps / PS_PER_S,
            )
            for stage in log.stages
        ]
        names = ("pp", "tp", "dp", "microbatches")
        return cls.taken_from(
            log,
            degrees={name: getattr(log.plan, name) for name in names},
            microbatch_size=log.plan.microbatch_size,
            stages=stages,
        )


def run_document(run: RunSummary | LeafRun) -> RunDocument | LogDocument:
    """The document of a measured run: traces analysed, or a log of leaf modules."""
    return LogDocument.of(run) if isinstance(run, LeafRun) else RunDocument.of(run)
