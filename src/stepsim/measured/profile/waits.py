"""What waits for what in a profile, and when everything then happens.

An operation is ready when the last operation it follows has ended, and its own delay is over.
Operations of one meeting start together, when the last of them is ready; each then takes its own
time. As nodes, whose ends `tables.ends` finds for many sets of durations at once.
"""

from functools import cached_property

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Bools, Ints, Small
from stepsim.base.errors import TraceError
from stepsim.base.structs import replace
from stepsim.measured.profile.busy import Busy
from stepsim.measured.profile.events import Following, Profile
from stepsim.tables.ends import NodeWaits, ends, ordered_waits
from stepsim.tables.spans import TaskKind


class _Nodes(Struct, frozen=True, kw_only=True, eq=False):
    """The operations of a profile as nodes: `arrives` of each its arrival, `runs` its own time.

    An operation that meets nobody is one node. Others arrive, meet and run: a meeting waits for all
    its members' arrivals and takes no time, and each member runs after it.
    """

    waits: NodeWaits
    arrives: Small
    runs: Small


class Waits(Struct, frozen=True, kw_only=True, eq=False, dict=True):
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
        alone = told < 0
        own = np.where(alone, told.max(initial=-1) + 1 + np.cumsum(alone), told)
        return np.asarray(np.unique(own, return_inverse=True)[1], dtype=np.int64)

    @cached_property
    def _nodes(self) -> _Nodes:
        """What the nodes of all operations wait for; raises TraceError for a circle."""
        meetings = self.meetings
        count, members = len(meetings), np.bincount(meetings)
        meets = np.flatnonzero(members[meetings] > 1)
        number_of_meeting = np.cumsum(members > 1) - 1
        arrives = np.arange(count)
        arrives[meets] = count + np.arange(len(meets))
        joint = count + len(meets) + number_of_meeting[meetings[meets]]
        before = np.concatenate([self.before, arrives[meets], joint])
        after = np.concatenate([arrives[self.after], joint, meets])
        nodes = count + len(meets) + int((members > 1).sum())
        place, waits = ordered_waits(lambda: before.astype(np.int64) << 32 | after, nodes)
        self._check_order(place[:count] >= waits.runnable)
        return _Nodes(waits=waits, arrives=place[arrives], runs=place[:count])

    def _check_order(self, is_stuck: Bools) -> None:
        if is_stuck.any():
            stuck = int(np.flatnonzero(is_stuck)[0])
            raise TraceError(
                f"{self.profile.source}: {self.profile.describe(stuck)} waits for itself: its "
                "operations cannot have run in the order that was recorded"
            )

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
        """Time between what an operation follows and its own start, as recorded.

        It is the host's, and where waits are not complete, what other streams hold it up.
        """
        return np.asarray(np.maximum(self.profile.events.start_ps - self.ready_ps, 0), np.int64)

    def held_ps(self) -> Ints:
        """The part of each delay in which its rank runs something else: no host made it wait.

        None where the waits are complete. Without the rest, the host's, one rank alone takes as
        long as its busy time.
        """
        if self.complete:
            return np.zeros_like(self.delay_ps)
        events = self.profile.events
        busy = Busy.of(self.profile, ~events.of_kind(TaskKind.HOST))
        places = np.arange(len(events))
        held = busy.until(places, events.start_ps) - busy.until(places, self.ready_ps)
        return np.asarray(np.clip(held, 0, self.delay_ps), dtype=np.int64)

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
        nodes = self._nodes
        duration_ps = np.zeros((len(nodes.waits), *own_ps.shape[1:]), dtype=np.int64)
        duration_ps[nodes.runs] = own_ps
        if delay_ps is not None:
            shape = (-1, *(1 for _ in own_ps.shape[1:]))
            duration_ps[nodes.arrives] += delay_ps.reshape(shape)
        return np.asarray(ends(nodes.waits, duration_ps)[nodes.runs], dtype=np.int64)

    def check_order(self) -> None:
        """Raise TraceError where operations wait for each other in a circle."""
        _ = self._nodes

    def retimed(self, start_ps: Ints, end_ps: Ints) -> Profile:
        """The profile with other times, from the begin of each step."""
        events = replace(self.profile.events, start_ps=start_ps, end_ps=end_ps)
        return replace(self.profile, events=events)

    def ran(self, own_ps: Ints, delay_ps: Ints | None = None) -> Profile:
        """The profile as it runs with these times: members of a meeting begin when they arrive."""
        end = self.ends_ps(own_ps, delay_ps)
        together = self.retimed(end - own_ps, end)
        arrives = replace(self, profile=together).ready_ps + (0 if delay_ps is None else delay_ps)
        return self.retimed(np.minimum(arrives, end - own_ps), end)

    def steps_ps(self, own_ps: Ints, delay_ps: Ints | None = None) -> Ints:
        """How long every step takes: of shape (steps) or (steps, cases)."""
        ends = self.ends_ps(own_ps, delay_ps)
        found = np.zeros((len(self.profile.steps), *ends.shape[1:]), dtype=np.int64)
        np.maximum.at(found, self.profile.events.step, ends)
        return found


def chained(*columns: Ints, order: Ints) -> Following:
    """Pairs of operations that follow each other among those with equal columns, by `order`."""
    places = np.lexsort((order, *columns))
    alike = np.ones(max(len(places) - 1, 0), dtype=np.bool_)
    for column in columns:
        alike &= column[places][1:] == column[places][:-1]
    return places[:-1][alike], places[1:][alike]
