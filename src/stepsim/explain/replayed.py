"""How far a replay is from what was recorded, rank by rank and kind by kind of operation."""

import numpy as np

from stepsim.base.arrays import Ints, whole_totals
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Share, Timed
from stepsim.explain.stragglers import share_of_steps
from stepsim.measured.profile.waits import Waits
from stepsim.run.spans import TaskKind


class ReplayedPart(Timed):
    """A rank, or a kind of operations: mean of the steps, and the largest error of a step."""

    name: str
    measured_ps: InSeconds
    replayed_ps: InSeconds
    error: Share
    largest: Share


def replayed_ranks(waits: Waits) -> tuple[ReplayedPart, ...]:
    """Every rank's own step: from the begin of the step to the end of its last operation."""
    profile, events = waits.profile, waits.profile.events
    ends = waits.ends_ps(waits.own_ps, waits.delay_ps)
    measured = events.end_ps - waits.step_begins_ps
    shape = (len(profile.ranks), len(profile.steps))
    found = []
    for each in (measured, ends):
        last = np.zeros(shape, np.int64)
        np.maximum.at(last, (events.rank, events.step), each)
        found.append(last)
    names = [str(each.rank) for each in profile.ranks]
    return tuple(_part(*each) for each in zip(names, *found, strict=True))


def replayed_kinds(waits: Waits) -> tuple[ReplayedPart, ...]:
    """Time of all operations of a kind, over all ranks; communications with their waits."""
    events, count = waits.profile.events, len(waits.profile.steps)
    ends = waits.ends_ps(waits.own_ps, waits.delay_ps)
    ready = np.zeros(len(events), np.int64)
    np.maximum.at(ready, waits.after, ends[waits.before])
    times = events.duration_ps, ends - ready - waits.delay_ps
    found = []
    for kind in TaskKind:
        which = events.kind == kind
        if which.any():
            of_steps = (whole_totals(events.step[which], each[which], count) for each in times)
            found.append(_part(kind.name.lower(), *of_steps))
    return tuple(found)


def _part(name: str, measured_ps: Ints, replayed_ps: Ints) -> ReplayedPart:
    """A part of some steps; steps that lack it count as exact."""
    ratio = share_of_steps(replayed_ps, measured_ps)
    measured, replayed = (int(each.mean()) for each in (measured_ps, replayed_ps))
    return ReplayedPart(
        name=name,
        measured_ps=measured,
        replayed_ps=replayed,
        error=replayed / measured - 1 if measured else 0.0,
        largest=float(np.abs(ratio - 1).max()),
    )
