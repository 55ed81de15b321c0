"""When the ranks of a profile are busy: time in which at least one of some operations runs."""

from typing import Self

import numpy as np

from stepsim.base.arrays import Bools, Ints, whole_totals
from stepsim.base.structs import Noun
from stepsim.measured.profile.events import Profile


class Busy(Noun, eq=False):
    """Stretches of time in which a rank runs at least one of some operations, in ps.

    `axis` has the axis of time of every operation of the profile: one of each rank, and one of each
    of its steps where clocks begin anew. Stretches are sorted by `key`, their axis, and by start,
    and meet nowhere; `rank` is the place of a stretch's rank, `before_ps` the length of all before
    it.
    """

    axis: Ints
    key: Ints
    rank: Ints
    start_ps: Ints
    end_ps: Ints
    before_ps: Ints

    @classmethod
    def of(cls, profile: Profile, which: Bools) -> Self:
        """The stretches of the operations marked."""
        events = profile.events
        axis = _axes(profile)[events.step] * len(profile.ranks) + events.rank
        chosen = np.flatnonzero(which)
        chosen = chosen[np.lexsort((events.start_ps[chosen], axis[chosen]))]
        start, end, key = events.start_ps[chosen], events.end_ps[chosen].copy(), axis[chosen]
        bounds = np.flatnonzero(np.diff(key, prepend=-1, append=-1)) if len(key) else key
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            np.maximum.accumulate(end[first:last], out=end[first:last])
        anew = np.ones(len(key), np.bool_)
        anew[1:] = (key[1:] != key[:-1]) | (start[1:] > end[:-1])
        begins = np.flatnonzero(anew)
        ends = np.append(begins[1:], len(key))[: len(begins)] - 1
        starts, last_ends = start[begins], end[ends]
        return cls(
            axis=axis,
            key=key[begins],
            rank=events.rank[chosen][begins],
            start_ps=starts,
            end_ps=last_ends,
            before_ps=np.cumsum(last_ends - starts) - (last_ends - starts),
        )

    def of_ranks(self, count: int) -> Ints:
        """How long each of so many ranks is busy, over all steps."""
        return whole_totals(self.rank, self.end_ps - self.start_ps, count)

    def until(self, places: Ints, times_ps: Ints) -> Ints:
        """How long stretches of its axis, and of axes before it, last until the time given of each.

        Only differences of two times of one operation mean something.
        """
        if not len(self.key):
            return np.zeros(len(places), np.int64)
        # the last stretch that begins at the time or before it, by axis and time
        both = np.concatenate([self.start_ps, times_ps])
        asked = np.concatenate([np.zeros(len(self.key)), np.ones(len(places))])
        keys = np.concatenate([self.key, self.axis[places]])
        order = np.lexsort((asked, both, keys))
        last = np.empty(len(order), np.int64)
        last[order] = np.cumsum(asked[order] == 0) - 1
        last = last[len(self.key) :]
        near = np.maximum(last, 0)
        same = (last >= 0) & (self.key[near] == self.axis[places])
        inside = np.where(same, np.minimum(times_ps, self.end_ps[near]) - self.start_ps[near], 0)
        whole = self.end_ps[near] - self.start_ps[near]
        passed = np.where(same, inside, np.where(last >= 0, whole, 0))
        return np.asarray(self.before_ps[near] + passed, np.int64)


def _axes(profile: Profile) -> Ints:
    """The axis of time of every step: one for all, or one for each that begins at 0 again."""
    events, count = profile.events, len(profile.steps)
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, events.step, events.start_ps)
    anew = len(first) > 1 and bool((np.diff(first) <= 0).any())
    return np.arange(count) if anew else np.zeros(count, np.int64)
