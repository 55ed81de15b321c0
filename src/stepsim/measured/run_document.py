"""A measured run as a document: what `stepsim inspect RUN --json` writes. Times in seconds."""

from typing import Self

from msgspec import field
from msgspec.structs import asdict

from stepsim.base.fields import InSeconds
from stepsim.base.structs import Bytes, Document, Names, Numbers, Share, Timed
from stepsim.measured.clocks import Clocks
from stepsim.measured.run import Degrees
from stepsim.measured.step_log import LeafLog, LeafStage
from stepsim.measured.summary import Imbalance, OperationTimes, RankTimes, RunSummary


class _TracedStageEntry(Timed):
    """A stage with traces."""

    stage: int
    ranks: Numbers
    wait_ps: InSeconds
    operations: tuple[OperationTimes, ...]


class _TracedRankEntry(RankTimes):
    """A rank with a trace; `host_s` per action."""

    bubble: Share


class _StepOpEntry(Timed):
    """An operation after the pipeline."""

    stage: int
    label: str = field(name="operation")
    size_bytes: Bytes
    group: Numbers
    duration_ps: InSeconds
    times_ps: tuple[InSeconds, ...] = field(name="groups_s")
    wait_ps: InSeconds


class RunDocument(Document, Timed):
    """A run of traces."""

    source: str
    degrees: Degrees
    schedule: str | None
    pipeline_ps: InSeconds
    step_ps: InSeconds
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
            schedule=found.schedule.label if found.schedule else None,
            ranks=[
                _TracedRankEntry(**asdict(rank), bubble=found.bubble(rank)) for rank in found.ranks
            ],
            step_operations=found.step_ops,
            expert_imbalance=found.imbalance,
        )


class LogDocument(Document, Timed):
    """A run that logged leaf modules only; `microbatch_size` in samples."""

    source: str
    degrees: dict[str, int]
    microbatch_size: int
    step_ps: InSeconds
    step_spread_ps: InSeconds
    steps: int
    stages: tuple[LeafStage, ...]
    warnings: Names

    @classmethod
    def of(cls, log: LeafLog) -> Self:
        """The document of a log."""
        names = ("pp", "tp", "dp", "microbatches")
        return cls.taken_from(
            log,
            degrees={name: getattr(log.plan, name) for name in names},
            microbatch_size=log.plan.microbatch_size,
            steps=len(log.kept),
        )


def run_document(run: RunSummary | LeafLog) -> RunDocument | LogDocument:
    """The document of a measured run: traces analysed, or a log of leaf modules."""
    return LogDocument.of(run) if isinstance(run, LeafLog) else RunDocument.of(run)
