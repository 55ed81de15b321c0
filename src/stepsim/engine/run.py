"""The event engine: runs every actor's program and proves that all of it finished.

The only module that imports simpy. A task starts when everything it waits for has ended and, if it
is a transfer, when every member has arrived. Ends are SimPy events; equal times run in the order in
which they were scheduled, so every run is the same.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import simpy
from msgspec import Struct, field
from numpy.typing import NDArray
from simpy.events import EventPriority

from stepsim.base.errors import SimulationError
from stepsim.base.units import MAX_INT64
from stepsim.engine.lay_out import GROUPS, MESSAGES, LaidOut, Runnable, far_actor
from stepsim.graph.programs import SegmentKind
from stepsim.network.flights import Fabric, Transfer
from stepsim.network.fold import Actors
from stepsim.network.prices import Use
from stepsim.parallel.ranks import ParallelPlan
from stepsim.workload.rows import Group

OnProgress = Callable[[int, int], None]
"""Called now and then with (tasks ended, all tasks)."""

_REPORT_EVERY = 1 << 16
_STUCK_SHOWN = 5
_AFTER_ALL_OTHERS = EventPriority(2)

_Member = tuple[int, int]
"""An actor and one of its tasks."""

_Meeting = tuple[int, int, int, int]
"""A transfer: group kind, group (or sending actor), segment and task of the task list."""

_SENDS = int(SegmentKind.SEND)

_Times = list["array[int]"]
"""A time in ps for every task of every actor."""


def run(
    runnable: Runnable,
    actors: Actors,
    plan: ParallelPlan,
    fabric: Fabric | None = None,
    progress: OnProgress | None = None,
) -> tuple[_Times, _Times]:
    """Start and end of every task of every actor.

    `fabric` holds the links that transfers share. Raises SimulationError naming what is
    stuck when not every task can start, and when the run exceeds 2**63 - 1 ps.
    """
    fabric = fabric or Fabric(capacity=np.zeros(0))
    run = _Run(
        programs=runnable.programs,
        transfers=runnable.transfers,
        actors=actors,
        plan=plan,
        fabric=fabric,
        progress=progress,
    )
    return run.go()


class _Settling(simpy.Event):
    """Happens now, after all other events of this moment."""

    def __init__(self, env: simpy.Environment) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, _AFTER_ALL_OTHERS)


class _Flight(Struct, kw_only=True):
    """A transfer under way: its members, its phase, and the events that may end the phase.

    Only the event with the latest `forecast` counts: an earlier one is out of date.
    """

    members: list[_Member]
    transfer: Transfer
    phase: int = -1
    forecast: int = 0


class _Listed(Struct, frozen=True, kw_only=True):
    """Columns of a laid-out program and its segments, to be looked up one by one."""

    duration_ps: list[int]
    group: list[int]
    slowed: list[int]
    segment: "array[int]"
    inner: "array[int]"
    followers: list[tuple[int, ...]]
    kind: list[int]
    peer_stage: list[int]
    peer: "array[int]"

    @classmethod
    def of(cls, laid: LaidOut) -> Self:
        return cls(
            duration_ps=laid.duration_ps.tolist(),
            group=laid.group.tolist(),
            slowed=laid.slowed.tolist(),
            segment=_whole(laid.segment),
            inner=_whole(laid.inner),
            followers=laid.after.turned(len(laid)).tolist(),
            kind=laid.program.shape.kind.tolist(),
            peer_stage=laid.program.shape.peer_stage.tolist(),
            peer=_whole(laid.program.shape.peer),
        )


def _whole(column: NDArray[np.integer]) -> "array[int]":
    """Large numbers that differ, without an object for each."""
    return array("q", column.astype(np.int64).tobytes())


class _Run(Struct, kw_only=True):
    programs: Sequence[LaidOut]
    transfers: Sequence[Mapping[Use, Transfer]]
    actors: Actors
    plan: ParallelPlan
    fabric: Fabric
    progress: OnProgress | None
    env: simpy.Environment = field(default_factory=lambda: simpy.Environment(initial_time=0))
    start: _Times = field(default_factory=list)
    finish: _Times = field(default_factory=list)
    missing: list[list[int]] = field(default_factory=list)
    listed: list[_Listed] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)
    sizes: list[list[int]] = field(default_factory=list)
    far: dict[_Member, int] = field(default_factory=dict)
    arrived: dict[_Meeting, list[_Member]] = field(default_factory=dict)
    flights: dict[int, _Flight] = field(default_factory=dict)
    launched: int = 0
    settling: bool = False
    ended: int = 0
    total: int = 0

    def go(self) -> tuple[_Times, _Times]:
        self.start = [array("q", bytes(8 * len(laid))) for laid in self.programs]
        self.finish = [array("q", bytes(8 * len(laid))) for laid in self.programs]
        self.missing = [laid.after.counts.tolist() for laid in self.programs]
        self.total = sum(map(len, self.programs))
        listed = {id(laid): _Listed.of(laid) for laid in self.programs}
        self.listed = [listed[id(laid)] for laid in self.programs]
        nothing = np.zeros(0, dtype=np.int64)
        self.groups = [self.actors.groups.get(kind, nothing).tolist() for kind in GROUPS]
        self.sizes = [self.actors.sizes.get(kind, nothing).tolist() for kind in GROUPS]
        for actor, laid in enumerate(self.programs):
            for task in np.flatnonzero(laid.after.counts == 0).tolist():
                self.arrive(actor, task)
        self.env.run()
        if self.ended < self.total:
            raise SimulationError(self.stuck())
        return self.start, self.finish

    def arrive(self, actor: int, task: int) -> None:
        """A task whose own predecessors have ended: start it, or wait for the other members."""
        group = self.listed[actor].group[task]
        if group < 0:
            self.begin([(actor, task)])
            return
        key, size = self.meeting(actor, task, group)
        if size > 1:
            members = self.arrived.setdefault(key, [])
            members.append((actor, task))
            if len(members) < size:
                return
            del self.arrived[key]
        else:
            members = [(actor, task)]
        self.begin(members)

    def meeting(self, actor: int, task: int, group: int) -> tuple[_Meeting, int]:
        """The transfer that a task of an actor takes part in, and how many members it has."""
        listed = self.listed[actor]
        segment = listed.segment[task]
        if group != MESSAGES:
            where = self.groups[group][actor]
            return (group, where, segment, listed.inner[task]), self.sizes[group][where]
        if listed.kind[segment] == _SENDS:
            return (group, actor, segment, 0), 2
        stage = listed.peer_stage[segment]
        if (actor, stage) not in self.far:
            self.far[actor, stage] = far_actor(actor, stage, self.actors, self.plan)
        return (group, self.far[actor, stage], listed.peer[segment], 0), 2

    def begin(self, members: list[_Member]) -> None:
        """Start a task on all its members; its end is an event."""
        now = int(self.env.now)
        for actor, task in members:
            self.start[actor][task] = now
        actor, task = members[0]
        listed = self.listed[actor]
        use = listed.slowed[task]
        if use < 0:
            self.after(listed.duration_ps[task], self.end, members)
        else:
            self.launched += 1
            transfer = self.transfers[actor][self.programs[actor].uses[use]]
            self.flights[self.launched] = _Flight(members=members, transfer=transfer)
            self.next_phase(self.launched)

    def after(self, delay_ps: int, callback: Callable[[simpy.Event], None], value: Any) -> None:
        """Call back with an event of this value when the time has passed."""
        if int(self.env.now) + delay_ps > MAX_INT64:
            raise SimulationError(
                "the step exceeds 2**63 - 1 ps (106 days): it cannot be simulated"
            )
        event = self.env.timeout(delay_ps, value)
        event.callbacks.append(callback)

    def next_phase(self, number: int) -> None:
        """Begin the latency of a transfer's next phase, or end the transfer."""
        flight = self.flights[number]
        flight.phase += 1
        if flight.phase == len(flight.transfer.phases):
            del self.flights[number]
            self.release(flight.members)
            return
        self.after(flight.transfer.phases[flight.phase].latency_ps, self.send, number)

    def send(self, event: simpy.Event) -> None:
        """The latency of a phase is over: its bytes enter the links."""
        number: int = event.value or 0
        flight = self.flights[number]
        self.fabric.enter(number, flight.transfer.phases[flight.phase], int(self.env.now))
        self.settle_soon()

    def settle_soon(self) -> None:
        """Share the links anew when all events of this moment have happened."""
        if not self.settling:
            self.settling = True
            _Settling(self.env).callbacks.append(self.settle)

    def settle(self, _: simpy.Event) -> None:
        """Forecast the ends of all flights whose speed has changed."""
        self.settling = False
        now = int(self.env.now)
        for number, end_ps in self.fabric.settle(now):
            flight = self.flights[number]
            flight.forecast += 1
            self.after(end_ps - now, self.arrive_bytes, (number, flight.phase, flight.forecast))

    def arrive_bytes(self, event: simpy.Event) -> None:
        """The bytes of a phase have arrived, unless the forecast is out of date."""
        number, phase, forecast = event.value or (0, 0, 0)
        flight = self.flights.get(number)
        if flight and (flight.phase, flight.forecast) == (phase, forecast):
            self.fabric.leave(number)
            self.settle_soon()
            self.next_phase(number)

    def end(self, event: simpy.Event) -> None:
        """A task of fixed duration is over."""
        members: list[_Member] = event.value or []
        self.release(members)

    def release(self, members: list[_Member]) -> None:
        """Start what waited for a task that has ended on all its members."""
        now = int(self.env.now)
        for actor, task in members:
            self.finish[actor][task] = now
            missing = self.missing[actor]
            for follower in self.listed[actor].followers[task]:
                missing[follower] -= 1
                if not missing[follower]:
                    self.arrive(actor, follower)
            self.ended += 1
            if self.progress and self.ended % _REPORT_EVERY == 0:
                self.progress(self.ended, self.total)

    def stuck(self) -> str:
        """What could not start, and what each waits for."""
        waits = []
        for key, members in list(self.arrived.items())[:_STUCK_SHOWN]:
            names = ", ".join(self.describe(*member) for member in members)
            waits.append(f"{names}: waits for {self.absent(key, members)}")
        return (
            f"the run stopped with {self.total - self.ended} tasks unfinished: {'; '.join(waits)}"
        )

    def absent(self, key: _Meeting, members: list[_Member]) -> str:
        """Who has not arrived at a transfer."""
        number, where, _, _ = key
        group = GROUPS[number]
        if group is not Group.PP:
            there = {actor for actor, _ in members}
            away = [a for a in range(len(self.actors)) if self.actors.groups[group][a] == where]
            ranks = [int(self.actors.ranks[a]) for a in away if a not in there]
            return f"rank {', '.join(map(str, ranks))} of its {group} group"
        actor, task = members[0]
        segment = self.programs[actor].program.segment(self.programs[actor].segment[task])
        other = "recv" if segment.kind is SegmentKind.SEND else "send"
        return f"the {other} of stage {segment.peer_stage}"

    def describe(self, actor: int, task: int) -> str:
        """A task in words."""
        laid = self.programs[actor]
        segment = laid.program.segment(laid.segment[task])
        place = f" ({laid.program.entries[segment.entry].token})" if segment.entry >= 0 else ""
        rank = int(self.actors.ranks[actor])
        return f"rank {rank} {segment.kind.name.lower()} {laid.segment[task]}{place}"
