"""What a change of a profiled run is: other times of its operations, and what it gains."""

from collections.abc import Iterator

import numpy as np

from stepsim.base.arrays import Bools, Ints, bins
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Entry, Noun, Share, Timed
from stepsim.measured.profile.events import Profile, earliest, latest
from stepsim.measured.profile.waits import Waits
from stepsim.run.spans import UNKNOWN


class ProfileChange(Noun, eq=False):
    """A change of a profile: its waits, what operations take and the host's delays, in ps.

    Where what it changes is as good as can be, operations take `best_own_ps`, None where the change
    is that. `assumed` is what has to hold for it.
    """

    name: str
    what: str
    assumed: str
    waits: Waits
    own_ps: Ints
    delay_ps: Ints
    best_own_ps: Ints | None = None


# `low` and `high` are the least and the largest gain of a step. `ceiling` is the gain where what is
# changed is as good as can be: links that take no time, a pipeline without bubbles.
class Improvement(Timed):
    """A change: its mean step, and the gain as shares of the mean replayed step."""

    name: str
    what: str
    step_ps: InSeconds
    gain: Share
    ceiling: Share
    low: Share
    high: Share
    assumed: str


class UntoldChange(Entry):
    """A change that cannot be told from the profile, and why."""

    name: str
    why: str


# Share of operations that ranks have in common which run the same.
_ALIKE = 0.97

Judged = ProfileChange | UntoldChange
Changes = Iterator[Judged]


def times_changed(
    waits: Waits, name: str, what: str, own_ps: Ints, assumed: str, best_own_ps: Ints | None = None
) -> ProfileChange:
    """A change of what operations take; `best_own_ps` is what they take at best."""
    return ProfileChange(
        name=name,
        what=what,
        assumed=assumed,
        waits=waits,
        own_ps=own_ps,
        delay_ps=waits.delay_ps,
        best_own_ps=best_own_ps,
    )


def programs_of(profile: Profile) -> Ints:
    """What every operation's rank runs: its stage, else a number of ranks that run the same.

    Those have most of their operations in common, by name.
    """
    stage, events = profile.column_of_ranks("stage"), profile.events
    if (stage != UNKNOWN).all():
        return stage
    found, first = np.zeros(len(profile.ranks), np.int64), list[Ints]()
    for place in range(len(profile.ranks)):
        names = events.name[events.rank == place]
        counts = np.bincount(names, minlength=len(profile.names))
        alike = (
            i
            for i, other in enumerate(first)
            if np.minimum(counts, other).sum() / max(np.maximum(counts, other).sum(), 1) > _ALIKE
        )
        found[place] = next(alike, len(first))
        if found[place] == len(first):
            first.append(counts)
    return np.asarray(found[events.rank], np.int64)


def leaves_node(waits: Waits) -> tuple[Bools, Bools]:
    """Which operations meet others on their own node only, and which meet some on another."""
    node, meetings = waits.profile.column_of_ranks("node"), waits.meetings
    count = bins(meetings)
    least, most = (ends(meetings, node, count)[meetings] for ends in (earliest, latest))
    several = (np.bincount(meetings) > 1)[meetings]
    told = several & (least != UNKNOWN)
    apart = least != most
    return told & ~apart, told & apart
