"""What waits for what in a profile, and when everything then happens.

An operation is ready when the last operation it follows has ended, and its own delay is over.
Operations of one meeting start together, when the last of them is ready; each then takes its own
time. So the times of a profile are longest paths, of many sets of durations at once.
"""

from functools import cached_property
from itertools import pairwise

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.base.errors import TraceError
from stepsim.base.structs import replace
from stepsim.measured.profile.events import Following, Profile


class _Level(Struct, frozen=True, kw_only=True, eq=False):
    """Operations that can start once earlier levels have ended, those of a meeting side by side.

    `before` are what they follow, operation by operation from `first_before`; `first_of_meeting`
    are places in `events` where a meeting begins, `meeting_of` the meeting of each.
    """

    events: Ints
    before: Ints
    first_before: Ints
    first_of_meeting: Ints
    meeting_of: Ints


class Waits(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A profile with the pairs `before[i]`, `after[i]` of operations that follow each other."""

    profile: Profile
    before: Ints
    after: Ints

    @cached_property
    def meetings(self) -> Ints:
        """The meeting of every operation, counted from 0; one without others meets itself."""
        told = self.profile.events.meeting
        alone = told < 0
        own = np.where(alone, told.max(initial=-1) + 1 + np.cumsum(alone), told)
        return np.asarray(np.unique(own, return_inverse=True)[1], dtype=np.int64)

    @cached_property
    def levels(self) -> tuple[_Level, ...]:
        """Operations by the longest chain of meetings before them; raises TraceError for a circle.

        The operation numbered as their count is the begin of the step: it ends at 0.
        """
        level = self._level_of_meetings()[self.meetings]
        order = np.lexsort((self.meetings, level))
        bounds = np.searchsorted(level[order], np.arange(int(level.max()) + 2))
        before, first = self._before(order)
        changes = np.diff(self.meetings[order], prepend=-1) != 0
        meeting, begins = np.cumsum(changes) - 1, np.flatnonzero(changes)
        in_before = np.append(first, len(before))[bounds]
        in_meetings = np.append(meeting, len(begins))[bounds]
        sizes, counts = np.diff(bounds), np.diff(in_meetings)
        first = first - np.repeat(in_before[:-1], sizes)
        meeting = meeting - np.repeat(in_meetings[:-1], sizes)
        begins = begins - np.repeat(bounds[:-1], counts)
        parts = zip(
            pairwise(bounds.tolist()),
            pairwise(in_before.tolist()),
            pairwise(in_meetings.tolist()),
            strict=True,
        )
        return tuple(
            _Level(
                events=order[low:high],
                before=before[left:right],
                first_before=first[low:high],
                first_of_meeting=begins[begin:end],
                meeting_of=meeting[low:high],
            )
            for (low, high), (left, right), (begin, end) in parts
        )

    def _before(self, events: Ints) -> tuple[Ints, Ints]:
        """What operations follow, one after the other, and where that of each begins.

        The begin of the step where an operation follows nothing.
        """
        by_after = np.argsort(self.after, kind="stable")
        before, after = self.before[by_after], self.after[by_after]
        start = np.searchsorted(after, events, side="left")
        count = np.searchsorted(after, events, side="right") - start
        begin = np.where(count == 0, 1, count)
        first = np.cumsum(begin) - begin
        places = np.full(int(begin.sum()), len(self.meetings), dtype=np.int64)
        filled = np.repeat(count > 0, begin)
        within = np.arange(len(places)) - np.repeat(first, begin)
        places[filled] = before[(np.repeat(start, begin) + within)[filled]]
        return places, np.asarray(first, dtype=np.int64)

    def _level_of_meetings(self) -> Ints:
        meetings = self.meetings
        count = int(meetings.max()) + 1
        pairs = np.unique(
            np.stack([meetings[self.before], meetings[self.after]], axis=1), axis=0
        ).astype(np.int64)
        source, target = pairs[:, 0], pairs[:, 1]
        first = np.searchsorted(source, np.arange(count + 1))
        left = np.bincount(target, minlength=count)
        level = np.zeros(count, dtype=np.int64)
        ready, depth, done = np.flatnonzero(left == 0), 0, 0
        while len(ready):
            level[ready] = depth
            done += len(ready)
            reached = target[_ranges(first[ready], first[ready + 1])]
            np.subtract.at(left, reached, 1)
            ready = np.unique(reached[left[reached] == 0])
            depth += 1
        if done < count:
            stuck = int(np.flatnonzero(left[meetings] > 0)[0])
            raise TraceError(
                f"{self.profile.source}: {self.profile.describe(stuck)} waits for itself: its "
                "operations cannot have run in the order that was recorded"
            )
        return level

    @cached_property
    def ready_ps(self) -> Ints:
        """When each operation could have started: the last end of what it follows, as recorded.

        Operations that follow nothing could have started when their step did.
        """
        events = self.profile.events
        found = self.step_begins_ps.copy()
        np.maximum.at(found, self.after, events.end_ps[self.before])
        return found

    @cached_property
    def step_begins_ps(self) -> Ints:
        """When the step of every operation began, as recorded."""
        events = self.profile.events
        begin = np.full(int(events.step.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(begin, events.step, events.start_ps)
        return np.asarray(begin[events.step], dtype=np.int64)

    @cached_property
    def delay_ps(self) -> Ints:
        """Time between what an operation follows and its own start, as recorded: the host's."""
        return np.asarray(np.maximum(self.profile.events.start_ps - self.ready_ps, 0), np.int64)

    @cached_property
    def own_ps(self) -> Ints:
        """What each operation takes once its meeting is complete, as recorded."""
        events, meetings = self.profile.events, self.meetings
        last = np.full(int(meetings.max()) + 1, np.iinfo(np.int64).min)
        np.maximum.at(last, meetings, events.start_ps)
        return np.asarray(np.maximum(events.end_ps - last[meetings], 0), dtype=np.int64)

    def ends_ps(self, own_ps: Ints, delay_ps: Ints | None = None) -> Ints:
        """When operations end, of the shape of `own_ps`: operations, or operations by cases.

        `own_ps` replaces what each takes, `delay_ps` what passes before it is ready; no delay
        without it. Times count from the begin of the step.
        """
        cases = own_ps.reshape(len(own_ps), -1)
        ends = np.zeros((len(cases) + 1, cases.shape[1]), dtype=np.int64)
        for level in self.levels:
            ready = np.maximum.reduceat(ends[level.before], level.first_before, axis=0)
            if delay_ps is not None:
                ready += delay_ps[level.events, None]
            start = np.maximum.reduceat(ready, level.first_of_meeting, axis=0)
            ends[level.events] = start[level.meeting_of] + cases[level.events]
        return np.asarray(ends[:-1].reshape(own_ps.shape), dtype=np.int64)

    def check_order(self) -> None:
        """Raise TraceError where operations wait for each other in a circle."""
        _ = self.levels

    def retimed(self, start_ps: Ints, end_ps: Ints) -> Profile:
        """The profile with other times, from the begin of each step."""
        events = replace(self.profile.events, start_ps=start_ps, end_ps=end_ps)
        return replace(self.profile, events=events)

    def steps_ps(self, own_ps: Ints, delay_ps: Ints | None = None) -> Ints:
        """How long every step takes: of shape (steps) or (steps, cases)."""
        ends = self.ends_ps(own_ps, delay_ps)
        found = np.zeros((len(self.profile.steps), *ends.shape[1:]), dtype=np.int64)
        np.maximum.at(found, self.profile.events.step, ends)
        return found


def _ranges(first: Ints, last: Ints) -> Ints:
    """The places of several ranges, one after the other."""
    count = last - first
    skipped = np.repeat(first - np.concatenate([[0], np.cumsum(count)[:-1]]), count)
    return np.asarray(skipped + np.arange(int(count.sum())), dtype=np.int64)


def chained(*columns: Ints, order: Ints) -> Following:
    """Pairs of operations that follow each other among those with equal columns, by `order`."""
    places = np.lexsort((order, *columns))
    alike = np.ones(max(len(places) - 1, 0), dtype=np.bool_)
    for column in columns:
        alike &= column[places][1:] == column[places][:-1]
    return places[:-1][alike], places[1:][alike]
