"""Named changes of a profiled run, ranked by what they would gain.

Every change replaces what operations take, or the host's delays, and all steps are replayed:
messages are posted where the program posted them, everything else waits as it did. So a gain is not
the sum of what was made shorter, but what is left of it on the way to the end of the step.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.errors import PlanError
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Document, Names, Share, Timed, replace
from stepsim.explain.changes.computes import compute_changes
from stepsim.explain.changes.lengths import (
    UnequalLengths,
    equal_times,
    length_changes,
    told_works,
    unequal_lengths,
)
from stepsim.explain.changes.made import Improvement, Judged, ProfileChange, UntoldChange
from stepsim.explain.changes.transfers import transfer_changes
from stepsim.explain.stragglers import mean_share, share_of_steps
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.profile.waits import Waits
from stepsim.measured.profile.works import MicrobatchWorks
from stepsim.measured.summary import RunSummary
from stepsim.runs.orders import notes_of, order_changes, told_stages

# A smaller gain is none: it would be shown as 0.0 %.
_LEAST_GAIN = 5e-5
# Changes of stages and microbatches, which traces of kernels seldom name.
_OF_PIPELINE = {"even-stages", "even-microbatches", "swap-microbatches"}


# Steps are means. `ceiling` is the gain where every worker, every microbatch and the host were
# ideal. Changes `without_gain` are known by name; those `untold` cannot be told from the profile.
# `lengths` say how unequal its microbatches are, None where it does not tell.
class Improvements(Document, Timed):
    """`improve --json`: changes of a profile, the largest gain first."""

    source: str
    measured_ps: InSeconds
    replayed_ps: InSeconds
    ceiling: Share
    changes: tuple[Improvement, ...]
    without_gain: Names
    untold: tuple[UntoldChange, ...]
    lengths: UnequalLengths | None = None


def improve_profile(profile: Profile) -> Improvements:
    """Replay a profile with every change that could gain something."""
    waits = pipeline_waits(profile, posted=True)
    works = told_works(profile)
    held = waits.held_ps()
    others = [(waits.ideal_ps, held), (waits.own_ps, held)]
    if not isinstance(works, str):
        others.append(equal_times(waits, works))
    changes = [*changes_of(waits, works)]
    found, (base, ideal, prompt, *equal) = _gains(changes, others)
    run = told_stages(profile)
    acted = [*_acted(profile, run, changes)]
    of_step = [*_gains(acted)[0], *acted, *order_changes(profile, run)]
    replayed_ps, known = int(base.mean()), {each.name for each in of_step}
    found += [
        replace(each, step_ps=round(replayed_ps * (1 - each.gain)))
        for each in of_step
        if isinstance(each, Improvement)
    ]
    untold = [each for each in changes if each.name not in known] + of_step
    ranked = sorted(found, key=lambda change: (-change.gain, change.name))
    return Improvements(
        source=profile.source,
        measured_ps=int(profile.step_times_ps().mean()),
        replayed_ps=replayed_ps,
        ceiling=1 - mean_share(np.minimum(ideal, prompt), base),
        changes=tuple(change for change in ranked if change.gain >= _LEAST_GAIN),
        without_gain=tuple(change.name for change in found if change.gain < _LEAST_GAIN),
        untold=tuple(each for each in untold if isinstance(each, UntoldChange)),
        lengths=None if isinstance(works, str) else unequal_lengths(works, base, equal[0]),
    )


def _gains(
    changes: Iterable[Judged], others: Iterable[tuple[Ints, Ints]] = ()
) -> tuple[list[Improvement], list[Ints]]:
    """What changes gain, and every step as it ran and with `others`: durations and delays.

    Nothing where no change is told.
    """
    told = [change for change in changes if isinstance(change, ProfileChange)]
    if not told:
        return [], []
    waits = told[0].waits
    times = [(waits.own_ps, waits.delay_ps), *others]
    count = len(times)
    for change in told:
        both = (change.own_ps, change.best_own_ps)
        times += [(each, change.delay_ps) for each in both if each is not None]
    steps = waits.of_times(times).T
    base, rest, found = steps[0], iter(steps[count:]), []
    for change in told:
        changed = next(rest)
        best = changed if change.best_own_ps is None else np.minimum(changed, next(rest))
        gains = 1 - share_of_steps(changed, base)
        found.append(
            Improvement(
                name=change.name,
                what=change.what,
                step_ps=int(changed.mean()),
                gain=float(1 - mean_share(changed, base)),
                ceiling=float(1 - mean_share(best, base)),
                low=float(gains.min()),
                high=float(gains.max()),
                assumed=change.assumed,
            )
        )
    return found, [*steps[:count]]


def _acted(profile: Profile, run: RunSummary | str, changes: Iterable[Judged]) -> Iterator[Judged]:
    """Changes of its pipeline that a profile does not tell, as stage times of a step show them.

    `run` are those of the step of median length, as `what-if` takes it.
    """
    untold = {change.name for change in changes if isinstance(change, UntoldChange)} & _OF_PIPELINE
    if isinstance(run, str) or not untold or run.missing:
        return
    if not run.run.column_of_ranks("stage").any():
        return
    waits = pipeline_waits(run.run, posted=True)
    how = f"forwards and backwards are as told: {', '.join(notes_of(run, profile))}; "
    for each in chain(compute_changes(waits), length_changes(waits, told_works(run.run))):
        if each.name not in untold:
            continue
        if isinstance(each, ProfileChange):
            yield replace(each, assumed=how + each.assumed)
        else:
            yield each


def change_profile(profile: Profile, name: str) -> Profile:
    """The profile once a change is made; raises PlanError for a name that none has."""
    changes = [*changes_of(pipeline_waits(profile, posted=True), told_works(profile))]
    changes = [*_acted(profile, told_stages(profile), changes), *changes]
    change = next((each for each in changes if each.name == name), None)
    if change is None:
        told = sorted(each.name for each in changes if isinstance(each, ProfileChange))
        raise PlanError(
            f"change is {name!r}: expected one of {', '.join(told)} (stepsim what-if runs other "
            "orders)"
        )
    if isinstance(change, UntoldChange):
        raise PlanError(f"{profile.source}: {name} cannot be judged: {change.why}")
    ran = change.waits.ran(change.own_ps, change.delay_ps)
    return replace(ran, follows=(change.waits.before, change.waits.after))


def changes_of(waits: Waits, works: MicrobatchWorks | str) -> Iterator[Judged]:
    """Every change that the operations of a profile allow, and those that they do not tell.

    `works` are those of its microbatches, or a text that says why they are not told.
    """
    yield from compute_changes(waits)
    yield from length_changes(waits, works)
    yield from transfer_changes(waits)
