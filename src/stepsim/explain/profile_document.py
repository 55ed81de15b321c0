"""A profile as JSON: its steps, replayed and ideal, and what its slow workers cost."""

from typing import Self

from stepsim.base.structs import Count, Document, Names, Numbers, Share, Timed
from stepsim.explain.path import PathPart, critical_parts
from stepsim.explain.replayed import ReplayedPart, replayed_kinds, replayed_ranks
from stepsim.explain.shares import Slowdown, WorkerEntry, rank_shares
from stepsim.explain.stragglers import ReplayedStep, Stragglers
from stepsim.measured.profile.pipeline import pipeline_waits


class ProfileDocument(Document, Timed):
    """`inspect --json` and `simulate --json` of a profile.

    Slowdowns follow "Understanding Stragglers in Large Model Training Using What-if Analysis".
    """

    source: str
    format: str
    operations: Count
    slowdown: Slowdown
    host_slowdown: Slowdown
    slowdown_by_stage: tuple[Slowdown, ...]
    slowdown_by_replica: tuple[Slowdown, ...]
    slowdown_by_kind: dict[str, Slowdown]
    slowest_ranks: Numbers
    last_stage_share: Share
    slowest_share: Share
    steps: tuple[ReplayedStep, ...]
    ranks: tuple[WorkerEntry, ...]
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
            ranks=rank_shares(waits, found.by_rank),
            replayed_ranks=replayed_ranks(plain),
            replayed_kinds=replayed_kinds(plain),
            critical_path=critical_parts(waits),
            warnings=profile.warnings,
        )
