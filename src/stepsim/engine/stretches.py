"""The tasks of a list that nobody else delays, beside communications that slow its compute.

What other communications take stays the same for a while, and while it does a list takes the same
time wherever it runs. So its tasks are solved in stretches: a stretch ends when everything that it
began has ended. A change in a stretch solves it anew; the stretches behind it are known. Times are
those of a run in which every task is by itself.
"""

from collections.abc import Sequence
from typing import Self

from msgspec import Struct, field

from stepsim.base.units import PS_PER_S
from stepsim.network.flights import time_left_ps
from stepsim.workload.overlap import CommDemand, CommEngine, GpuLimits, Kernels, row_slowdown

Taken = tuple[int, int, int]
"""SMs, bytes per second, and sum of delays in ps: what communications take of a GPU."""
History = tuple[tuple[int, Taken], ...]
"""What other communications take, from so many ps after a stretch's start on."""


class ListWork(Struct, frozen=True, kw_only=True, eq=False):
    """Tasks that only their own rank can delay: what each of them takes, and waits for.

    Task i takes `duration_ps[i]` alone, is compute where it has `kernels`, and is begun when all
    bits of `waits[i]` are set, those of the tasks before it; `followers[i]` wait for it. It takes
    `demands[i]` from compute beside it. The `first` wait for nothing.
    """

    duration_ps: tuple[int, ...]
    kernels: tuple[Kernels | None, ...]
    demands: tuple[Taken | None, ...]
    waits: tuple[int, ...]
    followers: tuple[tuple[int, ...], ...]
    first: tuple[int, ...]

    @classmethod
    def of(
        cls,
        duration_ps: Sequence[int],
        kernels: Sequence[Kernels | None],
        demands: Sequence[Taken | None],
        after: Sequence[Sequence[int]],
    ) -> Self:
        """From what every task waits for."""
        followers: list[list[int]] = [[] for _ in after]
        for task, before in enumerate(after):
            for earlier in before:
                followers[earlier].append(task)
        return cls(
            duration_ps=tuple(duration_ps),
            kernels=tuple(kernels),
            demands=tuple(demands),
            waits=tuple(sum(1 << earlier for earlier in set(before)) for before in after),
            followers=tuple(map(tuple, followers)),
            first=tuple(task for task, before in enumerate(after) if not before),
        )


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

    def of(self, kernels: Kernels, alone_ps: int, taken: Taken) -> float:
        """Share of its speed alone at which compute goes that takes `alone_ps` alone."""
        key = alone_ps, id(kernels), taken
        if key not in self._known:
            sms, bytes_per_s, delays_ps = taken
            delay_ps = min(delays_ps, CommEngine.POINT_TO_POINT.delay_ps)  # all delay by as much
            demand = CommDemand(sms=sms, bytes_per_s=float(bytes_per_s), delay_ps=delay_ps)
            self._known[key] = 1.0 / row_slowdown(kernels, alone_ps / PS_PER_S, [demand], self.gpu)
        return self._known[key]


class _Solving(Struct, kw_only=True):
    """A stretch while it is solved."""

    stretch: Stretch
    speeds: Speeds
    running: dict[int, _Running] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)
    ended: int = 0
    own: list[int] = field(default_factory=lambda: [0, 0, 0])

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
            self.own = [own + sign * more for own, more in zip(self.own, demand, strict=True)]

    def settle(self, taken: Taken, now: int) -> None:
        """Let compute go at its pace from now on."""
        work, own = self.stretch.work, self.own
        beside = taken[0] + own[0], taken[1] + own[1], taken[2] + own[2]
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
