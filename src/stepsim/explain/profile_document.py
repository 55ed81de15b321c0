"""A profile as JSON: its steps, replayed and ideal, and what its slow workers cost."""

from typing import Annotated, Self

from msgspec import Meta

from stepsim.base.structs import Count, Document, Entry, Names, Seconds, Share, Timed
from stepsim.explain.path import PathPart, critical_parts
from stepsim.explain.replayed import ReplayedPart, replayed_kinds, replayed_ranks
from stepsim.explain.shares import rank_shares
from stepsim.explain.stragglers import ReplayedStep, Stragglers
from stepsim.measured.profile.pipeline import pipeline_waits

_Slowdown = Annotated[float, Meta(description="a mean step over the mean ideal step")]


class _WorkerEntry(Entry):
    """A rank's mean step taken apart; its slowdown is that of all else ideal.

    `compute_s`, `communication_s` and `exposed_s` are busy time, which counts a moment once;
    `compute_kernels_s`, `communication_kernels_s` and `waiting_s` add up durations of kernels.
    """

    rank: int
    stage: int | None
    replica: int | None
    slowdown: _Slowdown
    compute_s: Seconds
    communication_s: Seconds
    exposed_s: Seconds
    idle_s: Seconds
    waiting_s: Seconds
    compute_kernels_s: Seconds
    communication_kernels_s: Seconds


class ProfileDocument(Document, Timed):
    """`inspect --json` and `simulate --json` of a profile.

    Slowdowns follow "Understanding Stragglers in Large Model Training Using What-if Analysis".
    """

    source: str
    format: str
    operations: Count
    slowdown: _Slowdown
    host_slowdown: _Slowdown
    slowdown_by_stage: tuple[_Slowdown, ...]
    slowdown_by_replica: tuple[_Slowdown, ...]
    slowdown_by_kind: dict[str, _Slowdown]
    slowest_ranks: tuple[int, ...]
    last_stage_share: Share
    slowest_share: Share
    steps: tuple[ReplayedStep, ...]
    ranks: tuple[_WorkerEntry, ...]
    replayed_ranks: tuple[ReplayedPart, ...]
    replayed_kinds: tuple[ReplayedPart, ...]
    critical_path: tuple[PathPart, ...]
    warnings: Names

    @classmethod
    def of(cls, found: Stragglers) -> Self:
        """The document of a profile's what-if numbers."""
        profile = found.profile
        waits, plain = pipeline_waits(profile, posted=True), pipeline_waits(profile)
        return cls.taken_from(
            found,
            source=profile.source,
            format=profile.format,
            operations=len(profile.events),
            slowdown_by_stage=found.by_stage,
            slowdown_by_replica=found.by_replica,
            slowdown_by_kind=found.by_kind,
            slowest_ranks=found.slowest,
            ranks=[
                _WorkerEntry.taken_from(share, slowdown=slowdown)
                for share, slowdown in zip(rank_shares(waits), found.by_rank, strict=True)
            ],
            replayed_ranks=replayed_ranks(plain),
            replayed_kinds=replayed_kinds(plain),
            critical_path=critical_parts(waits),
            warnings=profile.warnings,
        )
