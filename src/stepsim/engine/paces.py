"""Compute under way beside communications: how fast it goes, and when it ends.

Time is passed in; nothing here waits. A task list that only its own rank can delay is one task for
the engine, and its times follow from what the rank's other communications take meanwhile
(`stretches`). Afterwards every task has its own times again.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import spans
from stepsim.engine.beside import OverlapCost, RowDemands, row_demands
from stepsim.engine.lay_out import LaidOut, Times
from stepsim.engine.stretches import ListWork, Speeds, Stretch, Taken, solved
from stepsim.network.fold import Actors
from stepsim.network.prices import Prices


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
        self._taken = [(0, 0, 0) for _ in self.rows]
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
        sms, bytes_per_s, delays_ps = self._taken[actor]
        self._taken[actor] = (
            sms + sign * demand[0],
            bytes_per_s + sign * demand[1],
            delays_ps + sign * demand[2],
        )
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
