"""The chain of operations, across ranks, that makes the steps of a profile as long as they are."""

import numpy as np

from stepsim.base.arrays import Ints, bins, whole_totals
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Timed
from stepsim.measured.profile.events import combined
from stepsim.measured.profile.waits import Waits


class PathPart(Timed, kw_only=False):
    """Time on the critical path: of operations of a name on a rank, and the host's before them.

    `held_s` is what they wait for while their rank runs other streams.
    """

    name: str
    rank: int
    own_ps: InSeconds
    host_ps: InSeconds
    held_ps: InSeconds

    @property
    def whole_ps(self) -> int:
        """All of its time on the path."""
        return self.own_ps + self.host_ps + self.held_ps


def critical_parts(waits: Waits) -> tuple[PathPart, ...]:
    """The parts of the critical path, the largest first; together they are the mean step.

    From the last end of a step back: an operation started when the last member of its meeting was
    ready, and that one when the last of what it follows had ended.
    """
    profile, events = waits.profile, waits.profile.events
    own, delay = waits.own_ps, waits.delay_ps
    ends = waits.ends_ps(own, delay)
    followed = _last_before(waits, ends)
    ready = np.where(followed >= 0, ends[followed], 0) + delay
    last_member = np.empty(bins(waits.meetings), np.int64)
    by_ready = np.argsort(ready, kind="stable")
    last_member[waits.meetings[by_ready]] = by_ready
    held = waits.held_ps()
    on_path, late = list[int](), list[int]()
    for step in range(len(profile.steps)):
        inside = np.flatnonzero(events.step == step)
        place = int(inside[np.argmax(ends[inside])])
        while place >= 0:
            on_path.append(place)
            late.append(int(last_member[waits.meetings[place]]))
            place = int(followed[late[-1]])
    rows, key = combined(events.name, events.rank)
    times = [
        whole_totals(key[places], each[places], len(rows)).tolist()
        for places, each in ((on_path, own), (late, delay - held), (late, held))
    ]
    parts = [
        PathPart(
            profile.names[name],
            profile.ranks[rank].rank,
            *(each // len(profile.steps) for each in spent),
        )
        for (name, rank), *spent in zip(rows, *times, strict=True)
        if any(spent)
    ]
    return tuple(sorted(parts, key=lambda part: (-part.whole_ps, part.name)))


def _last_before(waits: Waits, ends: Ints) -> Ints:
    """Of what each operation follows, the one that ends last; -1 where it follows nothing."""
    found = np.full(len(ends), -1, np.int64)
    order = np.argsort(ends[waits.before], kind="stable")
    found[waits.after[order]] = waits.before[order]
    return found
