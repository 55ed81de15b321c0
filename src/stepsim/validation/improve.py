"""Named changes of a profiled run, ranked by what they would gain.

Every change replaces what operations take, or the host's delays, and all steps are replayed:
messages are posted where the program posted them, everything else waits as it did. So a gain is not
the sum of what was made shorter, but what is left of it on the way to the end of the step.
"""

from collections.abc import Iterator
from typing import Self

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.documents import Document, Entry
from stepsim.base.errors import PlanError
from stepsim.base.fields import Seconds, Share
from stepsim.base.records import dataclass
from stepsim.measured.profile.events import (
    COMMUNICATIONS,
    UNKNOWN,
    EventKind,
    EventPhase,
    Events,
    Profile,
    counted,
    same,
)
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.profile.stragglers import (
    Stragglers,
    find_stragglers,
    ideal_ps,
    mean_share,
    share_of_steps,
)
from stepsim.measured.profile.waits import Waits
from stepsim.measured.run import Bools

_FASTER_NETWORK = 2
_LEAST_GAIN = 5e-5
"""A smaller gain is none: it would be shown as 0.0 %."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunChangeTimes:
    """A change of a profile: what operations take and the host's delays, in ps, once it is made.

    `assumed` is what has to hold for it.
    """

    name: str
    what: str
    own_ps: Ints
    delay_ps: Ints
    assumed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """What a change gains: the mean step with it, and shares of the mean replayed step.

    `low` and `high` are the least and the largest gain of a step.
    """

    name: str
    what: str
    step_ps: int
    gain: float
    low: float
    high: float
    assumed: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Improvements:
    """Changes of a profile, the largest gain first. Steps are means in ps.

    `ceiling` is the gain where every worker, every microbatch and the host were ideal.
    """

    profile: Profile
    measured_ps: int
    replayed_ps: int
    ceiling: float
    changes: tuple[Improvement, ...]


class _ChangeEntry(Entry, frozen=True, kw_only=True):
    """A change: its mean step, and the gain as shares of the mean replayed step."""

    name: str
    what: str
    step_s: Seconds
    gain: Share
    low: Share
    high: Share
    assumed: str


class ImprovementsDocument(Document, frozen=True, kw_only=True):
    """`improve --json`: changes of a profile, the largest gain first."""

    source: str
    measured_s: Seconds
    replayed_s: Seconds
    ceiling: Share
    changes: tuple[_ChangeEntry, ...]

    @classmethod
    def of(cls, found: Improvements) -> Self:
        """The document of the changes."""
        changes = [*map(_ChangeEntry.taken_from, found.changes)]
        return cls.taken_from(found, source=found.profile.source, changes=changes)


def improve_profile(profile: Profile) -> Improvements:
    """Replay a profile with every change that could gain something."""
    waits = pipeline_waits(profile, posted=True)
    base = waits.steps_ps(waits.own_ps, waits.delay_ps)
    found = [_gained(waits, change, base) for change in changes_of(waits)]
    found = [each for each in found if each.gain >= _LEAST_GAIN]
    return Improvements(
        profile=profile,
        measured_ps=int(profile.step_times_ps().mean()),
        replayed_ps=int(base.mean()),
        ceiling=1 - mean_share(waits.steps_ps(ideal_ps(waits)), base),
        changes=tuple(sorted(found, key=lambda each: (-each.gain, each.name))),
    )


def change_profile(profile: Profile, name: str) -> Profile:
    """The profile once a change is made; raises PlanError for a name that none has."""
    waits = pipeline_waits(profile, posted=True)
    known = {change.name: change for change in changes_of(waits)}
    if name not in known:
        raise PlanError(f"change is {name!r}: expected one of {', '.join(sorted(known))}")
    own = known[name].own_ps
    ends = waits.ends_ps(own, known[name].delay_ps)
    return waits.retimed(ends - own, ends)


def changes_of(waits: Waits) -> Iterator[RunChangeTimes]:
    """Every change that the operations of a profile allow."""
    own, delay = waits.own_ps, waits.delay_ps
    stragglers = find_stragglers(pipeline_waits(waits.profile))
    for name, what, changed, assumed in _computes(waits, stragglers):
        yield _change(name, what, changed, delay, assumed)
    for name, what, changed, assumed in _communications(waits):
        yield _change(name, what, changed, delay, assumed)
    yield _change(
        "no-host-gaps",
        "operations start when what they wait for has ended",
        own,
        np.zeros_like(delay),
        "launches cost nothing",
    )


def _gained(waits: Waits, change: RunChangeTimes, base: Ints) -> Improvement:
    steps = waits.steps_ps(change.own_ps, change.delay_ps)
    gains = 1 - share_of_steps(steps, base)
    return Improvement(
        name=change.name,
        what=change.what,
        step_ps=int(steps.mean()),
        gain=float(1 - mean_share(steps, base)),
        low=float(gains.min()),
        high=float(gains.max()),
        assumed=change.assumed,
    )


def _change(name: str, what: str, own: Ints, delay: Ints, assumed: str) -> RunChangeTimes:
    return RunChangeTimes(name=name, what=what, own_ps=own, delay_ps=delay, assumed=assumed)


_Named = tuple[str, str, Ints, str]


def _computes(waits: Waits, stragglers: Stragglers) -> Iterator[_Named]:
    """Changes of what computes and the host take."""
    profile, own = waits.profile, waits.own_ps
    events = profile.events
    compute, host = events.of_kind(EventKind.COMPUTE), events.of_kind(EventKind.HOST)
    slow = max(stragglers.workers, key=lambda worker: worker.slowdown)
    stage, step = profile.column_of_ranks("stage"), events.step
    mine = events.rank == _place(profile, slow.rank)
    of_others = (stage == stage[mine][0]) & ~mine & compute
    if of_others.any():
        yield (
            f"replace-rank-{slow.rank}",
            f"rank {slow.rank} computes as the others{_of_stage(slow.stage)} do",
            _as_mean(own, mine & compute, of_others, same(events.name, step)),
            "its computes take the mean of theirs",
        )
    name = events.name
    if stage.max() > 0:
        yield (
            "even-stages",
            _even_stages(stragglers),
            _evened(own, compute, same(name, step)),
            "layers can be shared out evenly; messages stay as long",
        )
    if len(profile.ranks) > 1:
        yield (
            "even-replicas",
            "replicas of a stage compute equally long",
            _evened(own, compute, same(name, step, stage, _number(events))),
            "their microbatches hold equally much work",
        )
    if events.microbatch.max() > 0:
        yield (
            "even-microbatches",
            "microbatches of a rank compute equally long",
            _evened(own, compute, same(name, step, events.rank)),
            "sequences can be shared out evenly",
        )
    yield ("no-gc", "the host never stops", np.where(host, 0, own), "memory is freed elsewhere")


def _communications(waits: Waits) -> Iterator[_Named]:
    """Changes of what communications take once everybody is there."""
    profile, own = waits.profile, waits.own_ps
    events = profile.events
    passes = events.phase != EventPhase.UPDATE
    collective = events.of_kind(EventKind.COLLECTIVE) & passes
    for name in profile.names:
        which = profile.named(name) & collective
        if which.any():
            yield (
                f"overlap-{name.replace(' ', '-')}",
                f"{name} runs beside computes",
                np.where(which, 0, own),
                "it is hidden as a whole, and slows nothing down",
            )
    yield (
        "twice-the-network",
        "collectives and messages take half as long",
        np.where(events.of_kind(*COMMUNICATIONS), own // _FASTER_NETWORK, own),
        "bandwidth is all they wait for",
    )


def _place(profile: Profile, rank: int) -> int:
    return next(place for place, each in enumerate(profile.ranks) if each.rank == rank)


def _of_stage(stage: int | None) -> str:
    return "" if stage is None else f" of stage {stage}"


def _number(events: Events) -> Ints:
    """The microbatch of every operation, else its place among those of its name."""
    place = counted(events.rank, events.step, events.name)
    return np.where(events.microbatch == UNKNOWN, place, events.microbatch)


def _even_stages(stragglers: Stragglers) -> str:
    slow = int(np.argmax(stragglers.by_stage))
    return f"every stage computes as long as their mean; stage {slow} is the slowest"


def _evened(own: Ints, which: Bools, alike: Ints) -> Ints:
    """Operations with the mean of those that are alike."""
    places = np.flatnonzero(which)
    key = alike[places]
    sums = np.bincount(key, weights=own[places])
    changed = own.copy()
    changed[places] = np.rint((sums / np.maximum(np.bincount(key), 1))[key]).astype(np.int64)
    return changed


def _as_mean(own: Ints, which: Bools, others: Bools, alike: Ints) -> Ints:
    """Operations with the mean of the others that are alike; without any they stay."""
    size = int(alike.max()) + 1
    count = np.bincount(alike[others], minlength=size)
    mean = np.bincount(alike[others], weights=own[others], minlength=size) / np.maximum(count, 1)
    changed = own.copy()
    places = np.flatnonzero(which & (count[alike] > 0))
    changed[places] = np.rint(mean[alike[places]]).astype(np.int64)
    return changed
