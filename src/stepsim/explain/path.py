"""The chain of operations, across ranks, that makes the steps of a profile as long as they are."""

from collections import Counter

import numpy as np

from stepsim.base.arrays import Ints, bins
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Timed
from stepsim.measured.profile.waits import Waits


class PathPart(Timed):
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
    held_ps = waits.held_ps()
    on_path, of_host, held = (Counter[tuple[int, int]]() for _ in range(3))
    for step in range(len(profile.steps)):
        inside = np.flatnonzero(events.step == step)
        place = int(inside[np.argmax(ends[inside])])
        while place >= 0:
            on_path[int(events.name[place]), int(events.rank[place])] += int(own[place])
            member = int(last_member[waits.meetings[place]])
            late = int(events.name[member]), int(events.rank[member])
            of_host[late] += int(delay[member] - held_ps[member])
            held[late] += int(held_ps[member])
            place = int(followed[member])
    count = len(profile.steps)
    parts = [
        PathPart(
            name=profile.names[name],
            rank=profile.ranks[rank].rank,
            own_ps=on_path[name, rank] // count,
            host_ps=of_host[name, rank] // count,
            held_ps=held[name, rank] // count,
        )
        for name, rank in on_path.keys() | of_host.keys()
        if on_path[name, rank] or of_host[name, rank] or held[name, rank]
    ]
    return tuple(sorted(parts, key=lambda part: (-part.whole_ps, part.name)))


def _last_before(waits: Waits, ends: Ints) -> Ints:
    """Of what each operation follows, the one that ends last; -1 where it follows nothing."""
    found = np.full(len(ends), -1, np.int64)
    order = np.argsort(ends[waits.before], kind="stable")
    found[waits.after[order]] = waits.before[order]
    return found
