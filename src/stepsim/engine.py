"""The event engine: runs every actor's program and proves that all of it finished.

The only module that imports simpy. A task starts when everything it waits for has ended and, if it
is a transfer, when every member has arrived. Ends are SimPy events; equal times run in the order in
which they were scheduled, so every run is the same.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import simpy

from stepsim.errors import SimulationError
from stepsim.execution import FlatProgram
from stepsim.parallel import ParallelPlan
from stepsim.program import SegmentKind
from stepsim.symmetry import Actors
from stepsim.units import MAX_INT64
from stepsim.workload import Group

Progress = Callable[[int, int], None]
"""Called now and then with (tasks ended, all tasks)."""

_REPORT_EVERY = 1 << 16
_STUCK_SHOWN = 5

Member = tuple[int, int]
"""An actor and one of its tasks."""

Meeting = tuple[Group, int, int, int]
"""A transfer: group kind, group (or sending actor), segment and task of the fragment."""


def run(
    flats: Sequence[FlatProgram],
    actors: Actors,
    plan: ParallelPlan,
    progress: Progress | None = None,
) -> list["array[int]"]:
    """Start of every task of every actor, in ps.

    Raises SimulationError naming what is stuck when not every task can start, and when the run
    exceeds 2**63 - 1 ps.
    """
    return _Run(flats=flats, actors=actors, plan=plan, progress=progress).go()


@dataclass(slots=True, kw_only=True)
class _Run:
    flats: Sequence[FlatProgram]
    actors: Actors
    plan: ParallelPlan
    progress: Progress | None
    env: simpy.Environment = field(default_factory=lambda: simpy.Environment(initial_time=0))
    start: list["array[int]"] = field(default_factory=list)
    missing: list[list[int]] = field(default_factory=list)
    arrived: dict[Meeting, list[Member]] = field(default_factory=dict)
    ended: int = 0
    total: int = 0

    def go(self) -> list["array[int]"]:
        self.start = [array("q", bytes(8 * len(flat.after))) for flat in self.flats]
        self.missing = [[len(before) for before in flat.after] for flat in self.flats]
        self.total = sum(len(flat.after) for flat in self.flats)
        for actor, flat in enumerate(self.flats):
            for task, before in enumerate(flat.after):
                if not before:
                    self.arrive(actor, task)
        self.env.run()
        if self.ended < self.total:
            raise SimulationError(self.stuck())
        return self.start

    def arrive(self, actor: int, task: int) -> None:
        """A task whose own predecessors have ended: start it, or wait for the other members."""
        flat = self.flats[actor]
        group = flat.group[task]
        if group is None:
            self.begin([(actor, task)], flat.duration_ps[task])
            return
        meeting, size = self.meeting(actor, task, group)
        if size > 1:
            members = self.arrived.setdefault(meeting, [])
            members.append((actor, task))
            if len(members) < size:
                return
            del self.arrived[meeting]
        else:
            members = [(actor, task)]
        self.begin(members, flat.duration_ps[task])

    def meeting(self, actor: int, task: int, group: Group) -> tuple[Meeting, int]:
        """The transfer a task takes part in, and how many members it has."""
        flat = self.flats[actor]
        number = flat.segment[task]
        if group is Group.PP:
            segment = flat.program.segments[number]
            if segment.kind is SegmentKind.SEND:
                return (group, actor, number, 0), 2
            shift = (segment.peer_stage - flat.program.stage) * self.plan.stage_ranks
            sender = int(self.actors.actor_of[self.actors.ranks[actor] + shift])
            return (group, sender, segment.peer, 0), 2
        where = int(self.actors.groups[group][actor])
        return (group, where, number, flat.inner[task]), int(self.actors.sizes[group][where])

    def begin(self, members: list[Member], duration_ps: int) -> None:
        """Start a task on all its members; its end is an event."""
        now = int(self.env.now)
        if now + duration_ps > MAX_INT64:
            raise SimulationError(
                "the step exceeds 2**63 - 1 ps (106 days): it cannot be simulated"
            )
        for actor, task in members:
            self.start[actor][task] = now
        event = self.env.timeout(duration_ps, members)
        event.callbacks.append(self.end)

    def end(self, event: simpy.Event) -> None:
        """Release the tasks that waited for the one that ended."""
        members: list[Member] = event.value or []
        for actor, task in members:
            missing = self.missing[actor]
            for follower in self.flats[actor].followers[task]:
                missing[follower] -= 1
                if not missing[follower]:
                    self.arrive(actor, follower)
            self.ended += 1
            if self.progress and self.ended % _REPORT_EVERY == 0:
                self.progress(self.ended, self.total)

    def stuck(self) -> str:
        """What could not start, and what each waits for."""
        lines = [f"the run stopped with {self.total - self.ended} tasks unfinished:"]
        for meeting, members in list(self.arrived.items())[:_STUCK_SHOWN]:
            names = ", ".join(self.describe(*member) for member in members)
            lines.append(f"  {names}: waits for {self.absent(meeting, members)}")
        return "\n".join(lines)

    def absent(self, meeting: Meeting, members: list[Member]) -> str:
        """Who has not arrived at a transfer."""
        group, where, _, _ = meeting
        if group is not Group.PP:
            there = {actor for actor, _ in members}
            away = [a for a in range(len(self.actors)) if self.actors.groups[group][a] == where]
            ranks = [int(self.actors.ranks[a]) for a in away if a not in there]
            return f"rank {', '.join(map(str, ranks))} of its {group} group"
        actor, task = members[0]
        segment = self.flats[actor].program.segments[self.flats[actor].segment[task]]
        other = "recv" if segment.kind is SegmentKind.SEND else "send"
        return f"the {other} of stage {segment.peer_stage}"

    def describe(self, actor: int, task: int) -> str:
        """A task in words."""
        flat = self.flats[actor]
        segment = flat.program.segments[flat.segment[task]]
        place = f" ({flat.program.entries[segment.entry].token})" if segment.entry >= 0 else ""
        rank = int(self.actors.ranks[actor])
        return f"rank {rank} {segment.kind.name.lower()} {flat.segment[task]}{place}"
