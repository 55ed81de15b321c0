"""What a change of a profiled run is: other times of its operations, and what it gains."""

from collections.abc import Iterator

import numpy as np

from stepsim.base.arrays import Bools, Ints, bins
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Entry, Noun, Share, Timed
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.waits import Waits
from stepsim.run.spans import UNKNOWN, extents


class ProfileChange(Noun, eq=False, kw_only=False):
    """A change of a profile: its waits, and what operations then take, in ps.

    Where what it changes is as good as can be, operations take `best_own_ps`, None where the change
    is that. `assumed` is what has to hold for it. With `is_prompt` the host delays nothing.
    """

    waits: Waits
    name: str
    what: str
    own_ps: Ints
    assumed: str
    best_own_ps: Ints | None = None
    is_prompt: bool = False

    @property
    def delay_ps(self) -> Ints:
        """The host's delays, in ps."""
        return self.waits.held_ps() if self.is_prompt else self.waits.delay_ps


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
    least, most = (ends[meetings] for ends in extents(meetings, bins(meetings), node, node))
    several = (np.bincount(meetings) > 1)[meetings]
    told = several & (least != UNKNOWN)
    apart = least != most
    return told & ~apart, told & apart
