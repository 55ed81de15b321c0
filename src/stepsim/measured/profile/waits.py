"""What waits for what in a profile, and when everything then happens.

An operation is ready when the last operation it follows has ended, and its own delay is over.
Operations of one meeting start together, when the last of them is ready; each then takes its own
time. As nodes, whose ends `tables.ends` finds for many sets of durations at once.
"""

from collections.abc import Iterable
from functools import cached_property
from itertools import islice

import numpy as np

from stepsim.base.arrays import Ints, Small, bins, medians, whole_totals
from stepsim.base.errors import TraceError
from stepsim.base.structs import Noun, replace
from stepsim.core.ends import ends, ordered_waits
from stepsim.measured.profile.busy import busy_axes
from stepsim.measured.profile.events import Following, Profile, complete_ps, same
from stepsim.run.spans import COMMUNICATIONS, NodeWaits, TaskKind, earliest, extents, latest

# Times of nodes in as many cases that are looked at together: 134 MB.
_MOST_TIMES = 1 << 24


class _Nodes(Noun, eq=False):
    """The operations of a profile as nodes: `arrives` of each its arrival, `runs` its own time.

    An operation that meets nobody is one node. Others arrive, meet and run: a meeting waits for all
    its members' arrivals and takes no time, and each member runs after it.
    """

    waits: NodeWaits
    arrives: Small
    runs: Small

    def durations_ps(self, own_ps: Ints, delay_ps: Ints | int) -> Ints:
        """What every node takes."""
        duration_ps = np.zeros(len(self.waits), np.int64)
        duration_ps[self.runs] = own_ps
        duration_ps[self.arrives] += delay_ps
        return duration_ps


class Waits(Noun, eq=False, dict=True):
    """A profile with the pairs `before[i]`, `after[i]` of operations that follow each other.

    `complete` says whether these are all: a profile of kernels names no event of another stream
    that a kernel waits for.
    """

    profile: Profile
    before: Ints
    after: Ints
    complete: bool = True

    @cached_property
    def meetings(self) -> Ints:
        """The meeting of every operation, counted from 0; one without others meets itself."""
        told = self.profile.events.meeting
        return same(np.where(told < 0, ~np.arange(len(told)), told))

    @cached_property
    def _nodes(self) -> _Nodes:
        """What the nodes of all operations wait for; raises TraceError for a circle."""
        meetings = self.meetings
        count, members = len(meetings), np.bincount(meetings)
        meets = np.flatnonzero(members[meetings] > 1)
        joint = count + (np.cumsum(members > 1) - 1)[meetings[meets]]
        total = count + int((members > 1).sum())
        arrives = np.arange(count)
        arrives[meets] = total + np.arange(len(meets))
        before = np.concatenate([self.before, arrives[meets], joint])
        after = np.concatenate([arrives[self.after], joint, meets])
        before, after = (side[before != after] for side in (before, after))
        place, waits = ordered_waits(lambda: before << 32 | after, total + len(meets))
        is_stuck = place[:count] >= waits.runnable
        if is_stuck.any():
            raise TraceError(
                f"{self.profile.source}: {self.profile.describe(int(is_stuck.argmax()))} waits for "
                "itself: its operations cannot have run in the order that was recorded"
            )
        return _Nodes(waits=waits, arrives=place[arrives], runs=place[:count])

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
        begin = earliest(events.step, events.start_ps, bins(events.step))
        return np.asarray(begin[events.step], np.int64)

    @cached_property
    def delay_ps(self) -> Ints:
        """Time between what an operation follows and its own start, as recorded.

        It is the host's, and where waits are not complete, what other streams hold it up. Both ends
        of a message that are recorded to start together began when the later of them was ready: an
        end that waited for the other was not late.
        """
        events, meetings = self.profile.events, self.meetings
        count = bins(meetings)
        first, last = extents(meetings, count, events.start_ps, events.start_ps)
        together = events.is_message & (first == last)[meetings]
        later = latest(meetings, self.ready_ps, count)[meetings]
        ready = np.where(together, later, self.ready_ps)
        return np.asarray(np.maximum(events.start_ps - ready, 0), np.int64)

    def held_ps(self) -> Ints:
        """The part of each delay in which its rank runs something else: no host made it wait.

        None where the waits are complete. Without the rest, the host's, one rank alone takes as
        long as its busy time.
        """
        if self.complete:
            return np.zeros_like(self.delay_ps)
        events = self.profile.events
        held = np.zeros(len(events), np.int64)
        for places, busy in busy_axes(self.profile, ~events.of_kind(TaskKind.HOST)):
            held[places] = busy.within(self.ready_ps[places], events.start_ps[places])
        return np.asarray(np.clip(held, 0, self.delay_ps), np.int64)

    @cached_property
    def own_ps(self) -> Ints:
        """What each operation takes once its meeting is complete, as recorded."""
        return self.profile.events.end_ps - complete_ps(self.profile.events)

    @cached_property
    def ideal_ps(self) -> Ints:
        """The ideal of each operation's name and phase: computes' mean, communications' median."""
        events, own = self.profile.events, self.own_ps
        communicates = events.of_kind(*COMMUNICATIONS)
        key = same(events.name, events.phase, communicates.astype(np.int64))
        count = np.bincount(key)
        ideal = whole_totals(key, own, len(count)) / count
        if communicates.any():
            mine = key[communicates]
            ideal[mine] = medians(mine, own[communicates], len(count))[mine]
        return np.asarray(np.rint(ideal).astype(np.int64)[key])

    def ends_ps(self, own_ps: Ints, delay_ps: Ints | int = 0) -> Ints:
        """When operations end, from the begin of the step.

        `own_ps` replaces what each takes, `delay_ps` what passes before it is ready.
        """
        duration_ps = self._nodes.durations_ps(own_ps, delay_ps)
        end_ps = ends(self._nodes.waits, duration_ps, out=duration_ps)
        return np.asarray(end_ps[self._nodes.runs], np.int64)

    def retimed(self, start_ps: Ints, end_ps: Ints) -> Profile:
        """The profile with other times, from the begin of each step."""
        events = replace(self.profile.events, start_ps=start_ps, end_ps=end_ps)
        return replace(self.profile, events=events)

    def ran(self, own_ps: Ints, delay_ps: Ints) -> Profile:
        """The profile as it runs with these times: members of a meeting begin when they arrive."""
        end = self.ends_ps(own_ps, delay_ps)
        together = self.retimed(end - own_ps, end)
        arrives = replace(self, profile=together).ready_ps + delay_ps
        return self.retimed(np.minimum(arrives, end - own_ps), end)

    def steps_ps(self, own_ps: Ints, delay_ps: Ints) -> Ints:
        """How long every step takes, with the times of `ends_ps`."""
        return self.of_times([(own_ps, delay_ps)])[:, 0]

    def of_times(self, times: Iterable[tuple[Ints, Ints]]) -> Ints:
        """How long every step takes in ps, of shape (steps, cases).

        The times of a case are what its operations take, and the delays before them, in ps. Cases
        that change little of the first one cost least.
        """
        nodes, lasts, rest = self._nodes, self._lasts, iter(times)
        step, count = self.profile.events.step[lasts], len(nodes.waits)
        both = nodes.runs, nodes.arrives
        room = np.empty((max(_MOST_TIMES // count, 1), count), np.int64)
        found = [np.zeros((len(self.profile.steps), 0), np.int64)]
        while several := [*islice(rest, len(room))]:
            usual = several[0]
            duration_ps = room[: len(several)].reshape(count, len(several))
            duration_ps[:] = nodes.durations_ps(*usual)[:, None]
            for column, case in zip(duration_ps.T, several, strict=True):
                for node, first, takes in zip(both, usual, case, strict=True):
                    changed = np.flatnonzero(takes != first)
                    column[node[changed]] += takes[changed] - first[changed]
            found.append(np.zeros((len(self.profile.steps), len(several)), np.int64))
            end_ps = ends(nodes.waits, duration_ps, out=duration_ps)
            np.maximum.at(found[-1], step, end_ps[nodes.runs[lasts]])
        return np.concatenate(found, axis=1)

    @cached_property
    def _lasts(self) -> Ints:
        """Operations that no other of their step follows: one of them ends the step."""
        step, followed = self.profile.events.step, np.zeros(len(self.own_ps), np.bool_)
        followed[self.before[step[self.before] == step[self.after]]] = True
        return np.flatnonzero(~followed)


def chained(*columns: Ints, order: Ints) -> Following:
    """Pairs of operations that follow each other among those with equal columns, by `order`."""
    key = same(*columns)
    places = np.lexsort((order, key))
    follows = np.diff(key[places]) == 0
    return places[:-1][follows], places[1:][follows]
