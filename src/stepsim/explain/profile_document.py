"""A profile as JSON: its steps, replayed and ideal, and what its slow workers cost."""

from typing import Annotated, Self

from msgspec import Meta

from stepsim.base.structs import Count, Document, Entry, Names, Seconds, Share
from stepsim.base.units import PS_PER_S
from stepsim.explain.path import critical_parts
from stepsim.explain.replayed import replayed_kinds, replayed_ranks
from stepsim.explain.shares import rank_shares
from stepsim.explain.stragglers import Stragglers
from stepsim.measured.profile.pipeline import pipeline_waits

_Slowdown = Annotated[float, Meta(description="a mean step over the mean ideal step")]


class _StepEntry(Entry):
    """A step: as measured, replayed with and without the host's delays, with ideal durations."""

    step: int
    measured_s: Seconds
    replayed_s: Seconds
    error: Share
    without_host_s: Seconds
    ideal_s: Seconds


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


class _PathEntry(Entry):
    """Time on the critical path: of operations of a name on a rank, and the host's before them.

    `held_s` is what they wait for while their rank runs other streams.
    """

    name: str
    rank: int
    own_s: Seconds
    host_s: Seconds
    held_s: Seconds


class _ReplayedEntry(Entry):
    """A rank, or a kind of operations: mean of the steps, and the largest error of a step."""

    name: str
    measured_s: Seconds
    replayed_s: Seconds
    error: Share
    largest: Share


class ProfileDocument(Document):
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
    steps: tuple[_StepEntry, ...]
    ranks: tuple[_WorkerEntry, ...]
    replayed_ranks: tuple[_ReplayedEntry, ...]
    replayed_kinds: tuple[_ReplayedEntry, ...]
    critical_path: tuple[_PathEntry, ...]
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
            steps=_steps(found),
            ranks=[
                _WorkerEntry.taken_from(share, slowdown=slowdown)
                for share, slowdown in zip(rank_shares(waits), found.by_rank, strict=True)
            ],
            replayed_ranks=[*map(_ReplayedEntry.taken_from, replayed_ranks(plain))],
            replayed_kinds=[*map(_ReplayedEntry.taken_from, replayed_kinds(plain))],
            critical_path=[*map(_PathEntry.taken_from, critical_parts(waits))],
            warnings=profile.warnings,
        )


def _steps(found: Stragglers) -> list[_StepEntry]:
    columns = (
        *(found.measured_ps, found.replayed_ps, found.errors),
        *(found.prompt_ps, found.ideal_ps),
    )
    rows = zip(found.profile.steps, *(column.tolist() for column in columns), strict=True)
    return [
        _StepEntry(
            step=step,
            measured_s=measured / PS_PER_S,
            replayed_s=replayed / PS_PER_S,
            error=error,
            without_host_s=prompt / PS_PER_S,
            ideal_s=ideal / PS_PER_S,
        )
        for step, measured, replayed, error, prompt, ideal in rows
    ]
