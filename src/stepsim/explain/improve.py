"""Named changes of a profiled run, ranked by what they would gain.

Every change replaces what operations take, or the host's delays, and all steps are replayed:
messages are posted where the program posted them, everything else waits as it did. So a gain is not
the sum of what was made shorter, but what is left of it on the way to the end of the step.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.errors import PlanError, TraceError
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Document, Names, Noun, Share, Timed, replace
from stepsim.explain.changes.computes import compute_changes
from stepsim.explain.changes.lengths import (
    UnequalLengths,
    equal_times,
    length_changes,
    told_works,
    unequal_lengths,
)
from stepsim.explain.changes.made import Changes, ProfileChange, UntoldChange
from stepsim.explain.changes.schedules import schedule_changes
from stepsim.explain.changes.transfers import transfer_changes
from stepsim.explain.stragglers import mean_share, share_of_steps
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.profile.waits import Waits
from stepsim.measured.profile.works import MicrobatchWorks
from stepsim.measured.profile_run import actions_of_profile

_LEAST_GAIN = 5e-5
"""A smaller gain is none: it would be shown as 0.0 %."""
_SCHEDULES = "other-schedules"
_OF_PIPELINE = {"even-stages", "even-microbatches", "swap-microbatches", _SCHEDULES}
"""Changes of stages and microbatches, which traces of kernels seldom name."""


# `low` and `high` are the least and the largest gain of a step. `ceiling` is the gain where what is
# changed is as good as can be: links that take no time, a pipeline without bubbles.
class _Improvement(Timed):
    """A change: its mean step, and the gain as shares of the mean replayed step."""

    name: str
    what: str
    step_ps: InSeconds
    gain: Share
    ceiling: Share
    low: Share
    high: Share
    assumed: str


# Steps are means. `ceiling` is the gain where every worker, every microbatch and the host were
# ideal. Changes `without_gain` are known by name; those `untold` cannot be told from the profile.
# `lengths` say how unequal its microbatches are, None where it does not tell.
class Improvements(Document, Timed):
    """`improve --json`: changes of a profile, the largest gain first."""

    source: str
    measured_ps: InSeconds
    replayed_ps: InSeconds
    ceiling: Share
    changes: tuple[_Improvement, ...]
    without_gain: Names
    untold: tuple[UntoldChange, ...]
    lengths: UnequalLengths | None = None


def improve_profile(profile: Profile) -> Improvements:
    """Replay a profile with every change that could gain something."""
    waits = pipeline_waits(profile, posted=True)
    works = told_works(profile)
    changes = [*changes_of(waits, works)]
    told = [change for change in changes if isinstance(change, ProfileChange)]
    times = _times(waits, [change for change in told if change.waits is waits])
    if not isinstance(works, str):
        times.append(equal_times(waits, works))
    base, ideal, prompt, *replayed = waits.of_times(times).T
    rest = iter(replayed)
    found = [_gained(change, rest, base) for change in told]
    untold = [change for change in changes if isinstance(change, UntoldChange)]
    if acted := _acted(profile, untold):
        untold = [change for change in untold if change.name not in _OF_PIPELINE] + acted.untold
        found += acted.gained(int(base.mean()))
    ranked = sorted(found, key=lambda change: (-change.gain, change.name))
    return Improvements(
        source=profile.source,
        measured_ps=int(profile.step_times_ps().mean()),
        replayed_ps=int(base.mean()),
        ceiling=1 - mean_share(np.minimum(ideal, prompt), base),
        changes=tuple(change for change in ranked if change.gain >= _LEAST_GAIN),
        without_gain=tuple(change.name for change in found if change.gain < _LEAST_GAIN),
        untold=tuple(untold),
        lengths=None if isinstance(works, str) else unequal_lengths(works, base, replayed[-1]),
    )


class _Acted(Noun):
    """Changes of the pipeline of a profile that does not name it, as stage times of it show.

    `how` says what stages, microbatches and phases were told by, and which step was taken.
    """

    waits: Waits
    how: str
    changes: list[ProfileChange]
    untold: list[UntoldChange]

    def gained(self, replayed_ps: int) -> list[_Improvement]:
        """What they gain of a mean step of the profile."""
        base = self.waits.steps_ps(self.waits.own_ps, self.waits.delay_ps)
        found = []
        for change in self.changes:
            steps = change.steps_ps
            best = steps if change.best_ps is None else np.minimum(steps, change.best_ps)
            gain = _improvement(change, steps, best, base)
            step_ps, assumed = round(replayed_ps * (1 - gain.gain)), f"{self.how}; {gain.assumed}"
            found.append(replace(gain, step_ps=step_ps, assumed=assumed))
        return found


def _acted(profile: Profile, untold: Iterable[UntoldChange]) -> _Acted | None:
    """Changes of its pipeline if it has one and these changes cannot be told, None else.

    They are of the step of median length, as `what-if` takes it.
    """
    lacking = {change.name for change in untold} & _OF_PIPELINE
    if _SCHEDULES not in lacking:
        return None
    try:
        acted = actions_of_profile(profile)
    except TraceError:
        return None
    if not acted.column_of_ranks("stage").any():
        return None
    waits = pipeline_waits(acted, posted=True)
    changes = [*schedule_changes(waits)]
    if lacking - {_SCHEDULES}:
        told = chain(compute_changes(waits), length_changes(waits, told_works(acted)))
        changes = [*(change for change in told if change.name in lacking), *changes]
    notes = acted.warnings[len(profile.warnings) :]
    return _Acted(
        waits=waits,
        how="forwards and backwards are as told: "
        + ", ".join(note.removeprefix(f"{profile.source}: ") for note in notes),
        changes=[change for change in changes if isinstance(change, ProfileChange)],
        untold=[change for change in changes if isinstance(change, UntoldChange)],
    )


def _times(waits: Waits, changes: Iterable[ProfileChange]) -> list[tuple[Ints, Ints]]:
    """What operations take, and delays: as they ran, without the host's, of changes and at best.

    Without the host's delays with ideal durations, and with their own.
    """
    own, held = waits.own_ps, waits.held_ps()
    times = [(own, waits.delay_ps), (waits.ideal_ps, held), (own, held)]
    for change in changes:
        both = (change.own_ps, change.best_own_ps)
        times += [(each, change.delay_ps) for each in both if each is not None]
    return times


def change_profile(profile: Profile, name: str) -> Profile:
    """The profile once a change is made; raises PlanError for a name that none has."""
    changes = [*changes_of(pipeline_waits(profile, posted=True), told_works(profile))]
    if acted := _acted(profile, (each for each in changes if isinstance(each, UntoldChange))):
        changes = [*acted.changes, *acted.untold, *changes]
    change = next((each for each in changes if each.name == name), None)
    if change is None:
        told = sorted(each.name for each in changes if isinstance(each, ProfileChange))
        raise PlanError(f"change is {name!r}: expected one of {', '.join(told)}")
    if isinstance(change, UntoldChange):
        raise PlanError(f"{profile.source}: {name} cannot be judged: {change.why}")
    waits = change.waits
    ran = waits.ran(change.own_ps, change.delay_ps)
    return replace(ran, follows=(waits.before, waits.after))


def changes_of(waits: Waits, works: MicrobatchWorks | str) -> Changes:
    """Every change that the operations of a profile allow, and those that they do not tell.

    `works` are those of its microbatches, or a text that says why they are not told.
    """
    yield from compute_changes(waits)
    yield from length_changes(waits, works)
    yield from transfer_changes(waits)
    yield from schedule_changes(waits)


def _gained(change: ProfileChange, replayed: Iterator[Ints], base: Ints) -> _Improvement:
    """What a change gains; `replayed` has the steps of changes that wait as the run does."""
    steps = next(replayed) if change.best_ps is None else change.steps_ps
    at_best = next(replayed) if change.best_own_ps is not None else steps
    best = np.minimum(steps, at_best if change.best_ps is None else change.best_ps)
    return _improvement(change, steps, best, base)


def _improvement(change: ProfileChange, steps: Ints, best: Ints, base: Ints) -> _Improvement:
    gains = 1 - share_of_steps(steps, base)
    return _Improvement(
        name=change.name,
        what=change.what,
        step_ps=int(steps.mean()),
        gain=float(1 - mean_share(steps, base)),
        ceiling=float(1 - mean_share(best, base)),
        low=float(gains.min()),
        high=float(gains.max()),
        assumed=change.assumed,
    )
