"""Compute under way beside communications: how fast it goes, and when it ends.

Time is passed in; nothing here waits. A task list that only its own rank can delay is one task for
the engine, and its times follow from what the rank's other communications take meanwhile. That
stays the same for a while, and while it does a list takes the same time wherever it runs. So its
tasks are solved in stretches: a stretch ends when everything that it began has ended. A change in a
stretch solves it anew; the stretches behind it are known. Afterwards every task has its own times
again, those of a run in which every task is by itself.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import spans
from stepsim.base.units import PS_PER_S
from stepsim.engine.beside import (
    NOTHING_TAKEN,
    ListWork,
    OverlapCost,
    RowDemands,
    Taken,
    changed,
    row_demands,
)
from stepsim.engine.lay_out import LaidOut, Times
from stepsim.network.flights import time_left_ps
from stepsim.network.fold import Actors
from stepsim.network.prices import Prices
from stepsim.workload.overlap import CommDemand, Demands, GpuLimits, row_slowdown

History = tuple[tuple[int, Taken], ...]
"""What other communications take, from so many ps after a stretch's start on."""


class _Running(Struct, kw_only=True):
    """A task under way: compute has so much time alone left at `since_ps`, and goes at `speed`."""

    end_ps: int
    left_ps: float
    since_ps: int = 0
    speed: float = 0.0


class Stretch(Struct, kw_only=True, eq=False):
    """Tasks of a list from a moment at which nothing is under way, to the next.

    `begins` are those that begin it, after those whose bits `ended` has; `then` and `ended_then`
    are the same of the next stretch. Its `tasks` start and end so many ps after it. The list ends
    `left_ps` after it starts, and runs `tasks_left` until then, if what `history` says last stays.
    """

    work: ListWork
    begins: tuple[int, ...]
    ended: int
    history: History
    then: tuple[int, ...] = ()
    ended_then: int = 0
    duration_ps: int = 0
    tasks: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    next: "Stretch | None" = None
    left_ps: int = 0
    tasks_left: int = 0

    @property
    def taken(self) -> Taken:
        """What other communications take at its end."""
        return self.history[-1][1]


class Speeds(Struct, kw_only=True):
    """How fast compute goes beside what is taken: a share of its speed alone."""

    gpu: GpuLimits
    _known: dict[tuple[int, int, Taken], float] = field(default_factory=dict)

    def of(self, kernels: Demands, alone_ps: int, taken: Taken) -> float:
        """Share of its speed alone at which compute goes that takes `alone_ps` alone."""
        key = alone_ps, id(kernels), taken
        if key not in self._known:
            sms, bytes_per_s, delays = taken
            longest_ps = max(delays, default=0)  # kernels are delayed once, by the longest delay
            demand = CommDemand(sms=sms, bytes_per_s=float(bytes_per_s), delay_ps=longest_ps)
            self._known[key] = 1.0 / row_slowdown(kernels, alone_ps / PS_PER_S, [demand], self.gpu)
        return self._known[key]


class _Solving(Struct, kw_only=True):
    """A stretch while it is solved."""

    stretch: Stretch
    speeds: Speeds
    running: dict[int, _Running] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)
    ended: int = 0
    own: Taken = NOTHING_TAKEN

    def go(self) -> None:
        """Find when its tasks start and end, and what comes next."""
        stretch, changes = self.stretch, iter(self.stretch.history[1:])
        self.ended = stretch.ended
        taken, change = stretch.history[0][1], next(changes, None)
        now, ready = 0, list(stretch.begins)
        while True:
            self.begin(ready, now)
            while change and change[0] == now:
                taken, change = change[1], next(changes, None)
            self.settle(taken, now)
            now = min((each.end_ps for each in self.running.values()), default=now)
            if change and change[0] < now:
                now = change[0]
            ready = self.end(now)
            if not self.running:
                break
        stretch.then, stretch.ended_then, stretch.duration_ps = tuple(ready), self.ended, now

    def begin(self, ready: list[int], now: int) -> None:
        """Begin tasks; those that take no time end at once, and others begin."""
        work = self.stretch.work
        for task in ready:  # grows while it is read
            duration_ps = work.duration_ps[task]
            self.begun[task] = now
            if duration_ps:
                self.running[task] = _Running(end_ps=now + duration_ps, left_ps=duration_ps)
                self.running[task].since_ps = now
                self.take(task, 1)
            else:
                self.finish(task, now, ready)

    def end(self, now: int) -> list[int]:
        """End what is over; what begins then."""
        ready: list[int] = []
        for task in [task for task, each in self.running.items() if each.end_ps == now]:
            del self.running[task]
            self.take(task, -1)
            self.finish(task, now, ready)
        return ready

    def finish(self, task: int, now: int, ready: list[int]) -> None:
        """Note when a task was run, and add what may begin."""
        stretch, work = self.stretch, self.stretch.work
        stretch.tasks.append(task)
        stretch.starts.append(self.begun[task])
        stretch.ends.append(now)
        self.ended |= 1 << task
        for follower in work.followers[task]:
            if not work.waits[follower] & ~self.ended:
                ready.append(follower)

    def take(self, task: int, sign: int) -> None:
        """Begin or end what a communication takes."""
        demand = self.stretch.work.demands[task]
        if demand:
            self.own = changed(self.own, demand, sign)

    def settle(self, taken: Taken, now: int) -> None:
        """Let compute go at its pace from now on."""
        work, beside = self.stretch.work, changed(taken, self.own, 1)
        for task, each in self.running.items():
            kernels = work.kernels[task]
            if kernels is None:
                continue
            speed = self.speeds.of(kernels, work.duration_ps[task], beside)
            if speed != each.speed:
                each.left_ps -= (now - each.since_ps) * each.speed
                each.since_ps, each.speed = now, speed
                each.end_ps = now + time_left_ps(each.left_ps, speed)


def solved(
    work: ListWork, begins: tuple[int, ...], ended: int, history: History, speeds: Speeds
) -> Stretch:
    """The stretch that these tasks begin after those whose bits `ended` has."""
    stretch = Stretch(work=work, begins=begins, ended=ended, history=history)
    _Solving(stretch=stretch, speeds=speeds).go()
    return stretch


class _Under(Struct, kw_only=True):
    """A task of an actor under way: `stretch` began at `since_ps`, those before it are over."""

    task: int
    stretch: Stretch
    since_ps: int


class _Past(NamedTuple):
    """Stretches of an actor's task that ran from `since_ps` on: `tasks` of its list."""

    task: int
    since_ps: int
    stretch: Stretch
    tasks: int


class Paces(Struct, kw_only=True):
    """The task lists under way, one of an actor at a time, and what slows them.

    Compute of a rank is on one stream. `past[a]` are the stretches of actor a that have run.
    """

    rows: list[RowDemands]
    speeds: Speeds
    past: list[list[_Past]] = field(default_factory=list)
    _taken: list[Taken] = field(default_factory=list)
    _under: dict[int, _Under] = field(default_factory=dict)
    _touched: set[int] = field(default_factory=set)
    _known: dict[tuple[ListWork, int, Taken], Stretch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._taken = [NOTHING_TAKEN for _ in self.rows]
        self.past = [[] for _ in self.rows]

    def enter(self, actor: int, task: int, work: ListWork, now_ps: int) -> int:
        """Begin the work of a task; when it ends if nothing changes, in ps."""
        stretch = self._stretch(work, work.first, 0, self._taken[actor])
        self._under[actor] = _Under(task=task, stretch=stretch, since_ps=now_ps)
        return now_ps + stretch.left_ps

    def leave(self, actor: int) -> int:
        """End the work under way; the task whose it was."""
        under = self._under.pop(actor)
        self._note(actor, under, None)
        return under.task

    def _note(self, actor: int, under: _Under, until: Stretch | None) -> None:
        """Note what has run of the work under way, from its stretch to another, or to its end."""
        stretch, since = under.stretch, under.since_ps
        if stretch is until:
            return
        if len(stretch.history) > 1:  # what follows is known of others
            self.past[actor].append(_Past(under.task, since, stretch, len(stretch.tasks)))
            since += stretch.duration_ps
            if stretch.next is None or stretch.next is until:
                return
            stretch = stretch.next
        tasks = stretch.tasks_left - (until.tasks_left if until else 0)
        self.past[actor].append(_Past(under.task, since, stretch, tasks))

    def change(self, actor: int, demand: Taken, sign: int) -> bool:
        """Begin (1) or end (-1) a demand on an actor; whether compute under way may be slowed."""
        self._taken[actor] = changed(self._taken[actor], demand, sign)
        if actor in self._under:
            self._touched.add(actor)
            return True
        return False

    def settle(self, now_ps: int) -> Iterator[tuple[int, int]]:
        """(actor, end in ps) of all work whose end the last changes have changed."""
        actors, self._touched = sorted(self._touched), set()
        for actor in actors:
            under, taken = self._under.get(actor), self._taken[actor]
            if under and under.stretch.taken != taken:
                end_ps = under.since_ps + under.stretch.left_ps
                self._turn(actor, under, taken, now_ps)
                if under.since_ps + under.stretch.left_ps != end_ps:
                    yield actor, under.since_ps + under.stretch.left_ps

    def _turn(self, actor: int, under: _Under, taken: Taken, now_ps: int) -> None:
        """Go on beside what is taken now."""
        stretch, since = under.stretch, under.since_ps
        while stretch.next and since + stretch.duration_ps <= now_ps:
            since += stretch.duration_ps
            stretch = stretch.next
        self._note(actor, under, stretch)
        under.since_ps = since
        if since == now_ps:
            under.stretch = self._stretch(stretch.work, stretch.begins, stretch.ended, taken)
        else:
            history = (*stretch.history, (now_ps - since, taken))
            under.stretch = solved(
                stretch.work, stretch.begins, stretch.ended, history, self.speeds
            )
            self._follow(under.stretch)

    def _stretch(
        self, work: ListWork, begins: tuple[int, ...], ended: int, taken: Taken
    ) -> Stretch:
        """What follows these tasks while nothing else that is taken changes."""
        key = work, ended, taken
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = solved(work, begins, ended, ((0, taken),), self.speeds)
            self._follow(known)
        return known

    def _follow(self, stretch: Stretch) -> None:
        """Find all stretches that follow one, and when the list ends."""
        fresh = [stretch]
        while fresh[-1].then and not fresh[-1].next:
            last = fresh[-1]
            key = last.work, last.ended_then, last.taken
            if key in self._known:
                last.next = self._known[key]
                break
            last.next = solved(
                last.work, last.then, last.ended_then, ((0, last.taken),), self.speeds
            )
            self._known[key] = last.next
            fresh.append(last.next)
        for each in reversed(fresh):
            each.left_ps = each.duration_ps + (each.next.left_ps if each.next else 0)
            each.tasks_left = len(each.tasks) + (each.next.tasks_left if each.next else 0)


def make_paces(
    programs: Sequence[LaidOut], actors: Actors, prices: Prices, cost: OverlapCost
) -> Paces:
    """What communications take from the compute of every actor, before anything runs."""
    return Paces(rows=row_demands(programs, actors, prices, cost), speeds=Speeds(gpu=cost.gpu))


class _Flat(Struct, kw_only=True):
    """Tasks of stretches and of those that follow them, as columns: where those of each begin."""

    begins: dict[int, int] = field(default_factory=dict)
    tasks: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def begin(self, first: Stretch) -> int:
        """Where the tasks of a stretch begin; what follows it is behind them if nothing changed."""
        if id(first) not in self.begins:
            self.begins[id(first)] = len(self.tasks)
            since, stretch = 0, first
            while True:
                self.tasks += stretch.tasks
                self.starts += [since + start for start in stretch.starts]
                self.ends += [since + end for end in stretch.ends]
                since += stretch.duration_ps
                if stretch.next is None or len(first.history) > 1:
                    break
                stretch = stretch.next
        return self.begins[id(first)]


def apart(
    paces: Paces,
    coalesced: Sequence[LaidOut],
    whole: Sequence[LaidOut],
    times: tuple[Sequence[Times], Sequence[Times]],
) -> tuple[list[Times], list[Times]]:
    """Start and end of every task by itself, in ps, from the same `times` of `coalesced` programs.

    `whole` are the programs with every task by itself.
    """
    flat = _Flat()
    rows = [
        np.array(
            [(task, since, flat.begin(stretch), tasks) for task, since, stretch, tasks in past],
            dtype=np.int64,
        ).reshape(-1, 4)
        for past in paces.past
    ]
    tasks, *columns = (
        np.array(column, dtype=np.int64) for column in (flat.tasks, flat.starts, flat.ends)
    )
    found: tuple[list[Times], list[Times]] = ([], [])
    for actor, (few, many) in enumerate(zip(coalesced, whole, strict=True)):
        first = many.first[few.segment] + np.maximum(few.inner, 0)
        task, since, begin, count = rows[actor].T
        inside = spans(begin, count)
        places = first[task].repeat(count) + tasks[inside]
        for column, of_actors, all_times in zip(columns, times, found, strict=True):
            of_tasks = np.zeros(len(many), dtype=np.int64)
            of_tasks[first] = of_actors[actor]
            of_tasks[places] = since.repeat(count) + column[inside]
            all_times.append(of_tasks)
    return found
