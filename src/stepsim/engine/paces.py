"""Compute under way beside communications: how fast it goes, and when it ends.

Time is passed in; nothing here waits. A task list that only its own rank can delay is one task for
the engine, and its times follow from what the rank's other communications take meanwhile
(`stretches`). Afterwards every task has its own times again.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import bounds, spans
from stepsim.engine.beside import OverlapCost, RowDemands, row_demands
from stepsim.engine.lay_out import LaidOut, Times
from stepsim.engine.stretches import ListWork, Speeds, Stretch, Taken, solved
from stepsim.network.fold import Actors
from stepsim.network.prices import Prices
from stepsim.workload.overlap import CommDemand


class _Under(Struct, kw_only=True):
    """A task of an actor under way: `stretch` began at `since_ps`, those before it are over."""

    task: int
    stretch: Stretch
    since_ps: int


class _Past(NamedTuple):
    """A stretch of an actor's task that ran from `since_ps`; with `is_last` all that follow it."""

    task: int
    since_ps: int
    stretch: Stretch
    is_last: bool


class Paces(Struct, kw_only=True):
    """The task lists under way, one of an actor at a time, and what slows them.

    Compute of a rank is on one stream. `past[a]` are the stretches of actor a that have run.
    """

    rows: list[RowDemands]
    speeds: Speeds
    past: list[list[_Past]] = field(default_factory=list)
    _taken: list[list[int]] = field(default_factory=list)
    _under: dict[int, _Under] = field(default_factory=dict)
    _touched: set[int] = field(default_factory=set)
    _known: dict[tuple[ListWork, int, Taken], Stretch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._taken = [[0, 0] for _ in self.rows]
        self.past = [[] for _ in self.rows]

    def enter(self, actor: int, task: int, work: ListWork, now_ps: int) -> int:
        """Begin the work of a task; when it ends if nothing changes, in ps."""
        sms, bytes_per_s = self._taken[actor]
        stretch = self._stretch(work, work.first, 0, (sms, bytes_per_s))
        self._under[actor] = _Under(task=task, stretch=stretch, since_ps=now_ps)
        return now_ps + stretch.left_ps

    def leave(self, actor: int) -> int:
        """End the work under way; the task whose it was."""
        under = self._under.pop(actor)
        self.past[actor].append(_Past(under.task, under.since_ps, under.stretch, True))
        return under.task

    def change(self, actor: int, demand: CommDemand, sign: int) -> bool:
        """Begin (1) or end (-1) a demand on an actor; whether compute under way may be slowed."""
        taken = self._taken[actor]
        taken[0] += sign * demand.sms
        taken[1] += sign * round(demand.bytes_per_s)
        if actor in self._under:
            self._touched.add(actor)
            return True
        return False

    def settle(self, now_ps: int) -> Iterator[tuple[int, int]]:
        """(actor, end in ps) of all work whose end the last changes have changed."""
        actors, self._touched = sorted(self._touched), set()
        for actor in actors:
            under, (sms, bytes_per_s) = self._under.get(actor), self._taken[actor]
            if under and under.stretch.taken != (sms, bytes_per_s):
                end_ps = under.since_ps + under.stretch.left_ps
                self._turn(actor, under, (sms, bytes_per_s), now_ps)
                if under.since_ps + under.stretch.left_ps != end_ps:
                    yield actor, under.since_ps + under.stretch.left_ps

    def _turn(self, actor: int, under: _Under, taken: Taken, now_ps: int) -> None:
        """Go on beside what is taken now."""
        stretch, since = under.stretch, under.since_ps
        while stretch.next and since + stretch.duration_ps <= now_ps:
            self.past[actor].append(_Past(under.task, since, stretch, False))
            since += stretch.duration_ps
            stretch = stretch.next
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
        if key not in self._known:
            self._known[key] = solved(work, begins, ended, ((0, taken),), self.speeds)
            self._follow(self._known[key])
        return self._known[key]

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


def make_paces(
    programs: Sequence[LaidOut], actors: Actors, prices: Prices, cost: OverlapCost
) -> Paces:
    """What communications take from the compute of every actor, before anything runs."""
    return Paces(rows=row_demands(programs, actors, prices, cost), speeds=Speeds(gpu=cost.gpu))


class _Flat(Struct, kw_only=True):
    """Tasks of stretches as columns, each with all that follow it where `is_last`."""

    numbers: dict[tuple[int, bool], int] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def number(self, past: _Past) -> int:
        """The number of what ran among all that is known."""
        key = id(past.stretch), past.is_last
        if key not in self.numbers:
            self.numbers[key] = len(self.counts)
            self._add(past)
        return self.numbers[key]

    def _add(self, past: _Past) -> None:
        known, since = len(self.tasks), 0
        stretch: Stretch | None = past.stretch
        while stretch:
            self.tasks += stretch.tasks
            self.starts += [since + each for each in stretch.starts]
            self.ends += [since + each for each in stretch.ends]
            since += stretch.duration_ps
            stretch = stretch.next if past.is_last else None
        self.counts.append(len(self.tasks) - known)


def apart(
    paces: Paces,
    coalesced: Sequence[LaidOut],
    whole: Sequence[LaidOut],
    times: tuple[Sequence[Times], Sequence[Times]],
) -> tuple[list[Times], list[Times]]:
    """Start and end of every task by itself, from those of `coalesced` programs and their paces."""
    flat = _Flat()
    ran = [
        np.array([flat.number(past) for past in several], dtype=np.int64) for several in paces.past
    ]
    counts = np.array(flat.counts, dtype=np.int64)
    begins = bounds(counts)[:-1]
    tasks, starts, ends = (
        np.array(column, dtype=np.int64) for column in (flat.tasks, flat.starts, flat.ends)
    )
    found: tuple[list[Times], list[Times]] = ([], [])
    for actor, (few, many, numbers) in enumerate(zip(coalesced, whole, ran, strict=True)):
        first = many.first[few.segment] + np.maximum(few.inner, 0)
        past = paces.past[actor]
        task = np.array([each.task for each in past], dtype=np.int64)
        since = np.array([each.since_ps for each in past], dtype=np.int64)
        inside = spans(begins[numbers], counts[numbers])
        places = first[task].repeat(counts[numbers]) + tasks[inside]
        for column, inner, all_times in zip((starts, ends), times, found, strict=True):
            of_tasks = np.zeros(len(many), dtype=np.int64)
            of_tasks[first] = inner[actor]
            of_tasks[places] = since.repeat(counts[numbers]) + column[inside]
            all_times.append(of_tasks)
    return found
