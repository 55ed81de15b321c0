"""When something runs: time in which at least one of some operations does."""

from collections.abc import Iterator
from typing import Self

import numpy as np

from stepsim.base.arrays import Bools, Ints, places_by
from stepsim.base.structs import Noun
from stepsim.measured.profile.events import Profile
from stepsim.run.spans import earliest


class Busy(Noun, eq=False):
    """Stretches of time in which at least one of some operations runs, in ps.

    They are in order and do not touch; `before_ps` is the length of all before each.
    """

    start_ps: Ints
    end_ps: Ints
    before_ps: Ints

    @classmethod
    def of(cls, start_ps: Ints, end_ps: Ints) -> Self:
        """The stretches of operations that start and end so."""
        order = np.argsort(start_ps, kind="stable")
        start, end = start_ps[order], np.maximum.accumulate(end_ps[order])
        new = np.ones(len(start) + 1, np.bool_)
        new[1:-1] = start[1:] > end[:-1]
        start, end = start[new[:-1]], end[new[1:]]
        lasts: Ints = end - start
        return cls(start_ps=start, end_ps=end, before_ps=np.cumsum(lasts) - lasts)

    @property
    def whole_ps(self) -> int:
        """How long all of them last."""
        return int((self.end_ps - self.start_ps).sum())

    def within(self, start_ps: Ints, end_ps: Ints) -> Ints:
        """How long they last inside each of some intervals."""
        return self._until(end_ps) - self._until(start_ps)

    def _until(self, times_ps: Ints) -> Ints:
        if not len(self.start_ps):
            return np.zeros(len(times_ps), np.int64)
        place = np.searchsorted(self.start_ps, times_ps, side="right") - 1
        inside = np.minimum(times_ps, self.end_ps[place]) - self.start_ps[place]
        return np.asarray(np.where(place < 0, 0, self.before_ps[place] + inside), np.int64)


def busy_axes(profile: Profile, which: Bools) -> Iterator[tuple[Ints, Busy]]:
    """The operations of each axis of time, and when those of them that are marked run.

    A rank has one axis, or one for each step where clocks begin anew.
    """
    events, count = profile.events, len(profile.steps)
    first = earliest(events.step, events.start_ps, count)
    anew = bool((np.diff(first) <= 0).any())
    axis = (events.step if anew else 0) * len(profile.ranks) + events.rank
    for places in places_by(axis, (count if anew else 1) * len(profile.ranks)):
        chosen = places[which[places]]
        yield places, Busy.of(events.start_ps[chosen], events.end_ps[chosen])
