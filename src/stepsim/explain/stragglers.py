"""What a profile's slow workers cost: steps with ideal durations in place of their own.

The method and the definitions are those of "Understanding Stragglers in Large Model Training Using
What-if Analysis" (ByteDance, OSDI 2025). A step is replayed without delays of the host. Ideal are
the mean of all computes of a name, and the median of what communications of a name take once
everybody is there: `Waits.ideal_ps`.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from math import ceil

import numpy as np

from stepsim.base.arrays import Bools, Floats, Ints, bins, places_by, rows_of
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Noun, Numbers, Share, Timed
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.profile.waits import Waits
from stepsim.run.spans import UNKNOWN, TaskKind

_SLOW_SHARE = 0.03
_MOST_NAMES = 32


class ReplayedStep(Timed, kw_only=False):
    """A step: as measured, replayed with and without the host's delays, with ideal durations."""

    step: int
    measured_ps: InSeconds
    replayed_ps: InSeconds
    error: Share
    without_host_ps: InSeconds
    ideal_ps: InSeconds


class Stragglers(Noun, eq=False):
    """What-if numbers of a profile. Steps are in ps, in the order of the profile's steps.

    `measured` as recorded, `replayed` with the host's delays, `prompt` without them, `ideal` with
    ideal durations too: a step that these would make longer is as short as `prompt`. Slowdowns are
    mean steps over the mean ideal step where everything but the one stage, replica, kind of
    operation or worker is ideal. Shares are those of the slowdown that go where the last stage, or
    the slowest 3 % of the workers, are ideal and nothing else.
    """

    profile: Profile
    measured_ps: Ints
    replayed_ps: Ints
    prompt_ps: Ints
    ideal_ps: Ints
    by_stage: tuple[float, ...]
    by_replica: tuple[float, ...]
    by_kind: dict[str, float]
    by_rank: tuple[float, ...]
    slowest: Numbers
    last_stage_share: float
    slowest_share: float

    @property
    def slowdown(self) -> float:
        """Mean step without the host's delays over the mean ideal step."""
        return mean_share(self.prompt_ps, self.ideal_ps)

    @property
    def host_slowdown(self) -> float:
        """Mean measured step over the mean step without the host's delays."""
        return mean_share(self.measured_ps, self.prompt_ps)

    @property
    def errors(self) -> Floats:
        """Replayed over measured step, minus 1, of every step."""
        return share_of_steps(self.replayed_ps, self.measured_ps) - 1

    @property
    def steps(self) -> tuple[ReplayedStep, ...]:
        """Every step in all of these ways."""
        columns = (self.measured_ps, self.replayed_ps, self.errors, self.prompt_ps, self.ideal_ps)
        return tuple(ReplayedStep(*row) for row in rows_of(self.profile.steps, *columns))


def share_of_steps(some_ps: Ints, whole_ps: Ints) -> Floats:
    """Steps over steps; 1 where there is nothing to compare with."""
    ones = np.ones(len(whole_ps))
    return np.asarray(np.divide(some_ps, whole_ps, out=ones, where=whole_ps > 0), np.float64)


def mean_share(some_ps: Ints, whole_ps: Ints) -> float:
    """Mean step over mean step; 1 where there is nothing to compare with."""
    whole = float(whole_ps.mean())
    return float(some_ps.mean()) / whole if whole else 1.0


def find_stragglers(profile: Profile) -> Stragglers:
    """Replay all steps of a profile, as they were and with ideal durations.

    Where stages or replicas of ranks are not known there are no slowdowns by them.
    """
    waits = pipeline_waits(profile)
    own, ideal = waits.own_ps, waits.ideal_ps
    stage, replica = (profile.column_of_ranks(name) for name in ("stage", "replica"))
    kinds = _kinds(profile)
    parts = (
        places_by(stage, bins(stage)),
        places_by(replica, bins(replica)),
        [*map(np.flatnonzero, kinds.values())],
        profile.places_of_ranks(),
    )
    prompt, ideal_step, means = _slowdowns(waits, ideal, [*chain(*parts)])
    by_stage, by_replica, by_kind, by_rank = np.split(means, np.cumsum([*map(len, parts)])[:-1])
    slowest = _slowest(profile, by_rank, by_stage, by_replica)
    last = np.flatnonzero(stage == len(by_stage) - 1)
    chosen = (last, np.flatnonzero(np.isin(profile.events.rank, slowest)))
    gone = _replayed(waits, own, ideal, chosen).mean(axis=0)
    lost = float(prompt.mean() - ideal_step.mean())
    shares = (prompt.mean() - gone) / lost if lost > 0 else np.zeros(2)
    return Stragglers(
        profile=profile,
        measured_ps=profile.step_times_ps(),
        replayed_ps=waits.steps_ps(own, waits.delay_ps),
        prompt_ps=prompt,
        ideal_ps=ideal_step,
        by_stage=tuple(by_stage.tolist()),
        by_replica=tuple(by_replica.tolist()),
        by_kind=dict(rows_of(kinds, by_kind)),
        by_rank=tuple(by_rank.tolist()),
        slowest=tuple(profile.ranks[place].rank for place in slowest),
        last_stage_share=float(shares[0]),
        slowest_share=float(shares[1]),
    )


def slowest_rank(waits: Waits) -> int:
    """The rank that slows the steps of a profile most."""
    profile = waits.profile
    _, _, slowdowns = _slowdowns(waits, waits.ideal_ps, profile.places_of_ranks())
    return profile.ranks[int(np.argmax(slowdowns))].rank


def _slowdowns(waits: Waits, ideal: Ints, kept: Sequence[Ints]) -> tuple[Ints, Ints, Floats]:
    """Steps without the host's delays, ideal ones, and how much longer than these they are.

    That is of the mean step where nothing but some operations keep their own durations.
    """
    everything = np.arange(len(ideal))
    steps = _replayed(waits, ideal, waits.own_ps, (everything[:0], everything, *kept))
    prompt, ideal_step = steps[:, 1], steps[:, :2].min(axis=1)
    return prompt, ideal_step, steps[:, 2:].mean(axis=0) / max(float(ideal_step.mean()), 1.0)


def _kinds(profile: Profile) -> dict[str, Bools]:
    """Operations by name; both ends of messages together, as in the study.

    Where there are many names, as of kernels, operations by their kind.
    """
    found: dict[str, Bools] = {}
    messages = profile.events.is_message
    if len(profile.names) > _MOST_NAMES:
        kinds = ((kind.name.lower(), profile.events.of_kind(kind)) for kind in TaskKind)
        return {name: which for name, which in kinds if which.any()}
    for name in profile.names:
        which = profile.named(name)
        is_message = bool((which & messages).any())
        kind = f"{name.rpartition('-')[0]}-pp-comm" if is_message else name
        found[kind] = found.get(kind, np.zeros_like(which)) | which
    return found


def _replayed(waits: Waits, usual: Ints, other: Ints, chosen: Iterable[Ints]) -> Ints:
    """Steps without the host's delays where the chosen operations take `other`, for each choice."""
    held = waits.held_ps()

    def with_others(places: Ints) -> Ints:
        own_ps = usual.copy()
        own_ps[places] = other[places]
        return own_ps

    return waits.of_times((with_others(places), held) for places in chosen)


def _slowest(profile: Profile, by_rank: Floats, by_stage: Floats, by_replica: Floats) -> list[int]:
    """Places of the slowest 3 % of the ranks, at least one.

    A worker counts as slow as its stage or its replica, whichever is the faster, as in the study;
    as slow as it is itself where neither is known.
    """
    stage, replica = (profile.of_ranks(name)[:-1] for name in ("stage", "replica"))
    as_stage = np.where(stage == UNKNOWN, by_rank, np.append(by_stage, 0)[stage])
    as_replica = np.where(replica == UNKNOWN, by_rank, np.append(by_replica, 0)[replica])
    order: list[int] = np.argsort(-np.minimum(as_stage, as_replica), kind="stable").tolist()
    return order[: ceil(_SLOW_SHARE * len(order))]
