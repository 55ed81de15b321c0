"""A task graph is run: the start and end of every task and transfer of every simulated rank."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from stepsim.base.arrays import Floats, Ints, Small
from stepsim.base.errors import PlanError, said
from stepsim.base.structs import replace
from stepsim.engine.lay_out import LaidOut, Runnable, Times, lay_out
from stepsim.graph.build import TaskGraph
from stepsim.graph.programs import SegmentKind
from stepsim.graph.task_table import STREAMS, TaskTable
from stepsim.network.fold import Actors, every_rank, fold
from stepsim.network.prices import Prices, Use
from stepsim.parallel.modes import Engine, Sharing
from stepsim.tables.spans import UNKNOWN, Spans

if TYPE_CHECKING:
    from array import array

    from stepsim.engine.beside import OverlapCost
    from stepsim.engine.nodes import NodeTimes
    from stepsim.engine.run import OnProgress
    from stepsim.network.contention import Contention


class Cohort(Struct, frozen=True, kw_only=True, dict=True):
    """Actors that run the same laid-out program: times of its tasks, of shape (tasks, actors)."""

    laid: LaidOut
    actors: NDArray[np.int64]
    start: Times
    end: Times

    @property
    def slowed(self) -> bool:
        """Whether any transfer took longer than it would beside its siblings alone."""
        longer = self.end - self.start > self.laid.duration_ps[:, None]
        return bool(longer[self.laid.slowed >= 0].any())

    def longer_ps(self, actors: slice) -> Times:
        """By how much communication slowed every task: shape (tasks, actors), 0 for transfers."""
        longer = self.end[:, actors] - self.start[:, actors] - self.laid.duration_ps[:, None]
        return np.where(self.laid.group[:, None] < 0, longer, 0)

    def segment_times(self) -> tuple[Times, Times]:
        """Start and end in ps of every segment of the program, of shape (segments, actors)."""
        return self._extents(self.laid.segment, len(self.laid.program))

    @cached_property
    def entry_times(self) -> tuple[Times, Times]:
        """Start and end in ps of every entry of the schedule's order: shape (entries, actors)."""
        place = self.laid.program.shape.entry[self.laid.segment]
        return self._extents(place, len(self.laid.program.entries))

    def _extents(self, place: Small, places: int) -> tuple[Times, Times]:
        """First start and last end of the tasks that have each place; -1 is none."""
        tasks = np.flatnonzero(place >= 0)
        if np.array_equal(place[tasks], np.arange(places)):
            return self.start[tasks], self.end[tasks]
        start = np.full((places, len(self.actors)), np.iinfo(np.int64).max)
        end = np.zeros((places, len(self.actors)), dtype=np.int64)
        np.minimum.at(start, place[tasks], self.start[tasks])
        np.maximum.at(end, place[tasks], self.end[tasks])
        return start, end


class _TaskTimes(Struct, frozen=True, kw_only=True):
    """Every task of one rank: segment, task of its task list (-1 for messages), start and end.

    `alone` is what compute takes alone, in ps, where communication slowed it, else `UNKNOWN`.
    """

    segment: Small
    inner: Small
    start: Times
    end: Times
    alone: Times


class Timeline(Struct, frozen=True, kw_only=True, dict=True):
    """The result of a run, and what ran it. Ranks that behave alike share an actor's times.

    `siblings_slow` says that transfers which the durations hold for one have slowed each other.
    `unslowed_ps` is the step time without what communications take from compute, where they do.
    """

    graph: TaskGraph
    actors: Actors
    cohorts: tuple[Cohort, ...]
    engine: Engine = Engine.SIMPY
    siblings_slow: bool = False
    unslowed_ps: int | None = None

    @property
    def slowed(self) -> bool:
        """Whether any transfer took longer than it would with the links to itself."""
        return self.siblings_slow or any(cohort.slowed for cohort in self.cohorts)

    @cached_property
    def step_time_ps(self) -> int:
        """End of the last task."""
        return max(int(cohort.end.max(initial=0)) for cohort in self.cohorts)

    @cached_property
    def pipeline_time_ps(self) -> int:
        """End of the last action of the pipeline schedule."""
        return max(int(cohort.entry_times[1].max(initial=0)) for cohort in self.cohorts)

    def tasks(self, rank: int) -> _TaskTimes:
        """Times of every task of a rank, coalesced task lists laid out."""
        cohort, column = self.place(rank)
        laid, start = cohort.laid, cohort.start[:, column]
        task_list = laid.program.task_lists[laid.segment]
        whole = laid.inner < 0
        longer = cohort.longer_ps(slice(column, column + 1))[:, 0]
        columns: list[tuple[Ints, Small, Times, Times, Times]] = []
        for number, times in laid.times.items():
            tasks = np.flatnonzero(whole & (task_list == number))
            inside = np.arange(len(times.start), dtype=np.int32)
            begin = np.repeat(start[tasks], len(inside))
            columns.append(
                (
                    np.repeat(tasks, len(inside)),
                    np.tile(inside, len(tasks)),
                    begin + np.tile(times.start, len(tasks)),
                    begin + np.tile(times.end, len(tasks)),
                    np.full(len(begin), UNKNOWN, dtype=np.int64),
                )
            )
        others = np.flatnonzero(~whole | (task_list < 0))
        end = cohort.end[:, column]
        alone = np.where(longer > 0, end - start - longer, UNKNOWN)
        columns.append((others, laid.inner[others], start[others], end[others], alone[others]))
        task, inner, starts, ends, alones = (
            np.concatenate(each) for each in zip(*columns, strict=True)
        )
        order = np.lexsort((inner, task))
        return _TaskTimes(
            segment=laid.segment[task][order],
            inner=inner[order],
            start=starts[order],
            end=ends[order],
            alone=alones[order],
        )

    def spans(self, ranks: Iterable[int] | None = None, *, whole: bool = False) -> Iterator[Spans]:
        """A table for each of these ranks, or for the representative of every class.

        A rank's rows are its tasks in the order of its program, coalesced task lists laid out; or
        its `whole` segments. Tables are made when they are asked for, one at a time.
        """
        table, stage, columns = TaskTable.of(self.graph), UNKNOWN, dict[str, Ints]()
        plan, groups = self.graph.plan, tuple(str(op.group) for op in self.graph.comms)
        for rank in self.actors.ranks.tolist() if ranks is None else ranks:
            times = self._segments(rank) if whole else self.tasks(rank)
            program = self.graph.programs[plan.stage_of(rank)]
            if program.stage != stage:
                stage = program.stage
                columns = table.of_program(program, times.segment, times.inner)
                peer = program.shape.peer_stage[times.segment].astype(np.int64)
                hops = np.where(times.inner < 0, peer, UNKNOWN)
            own = {
                "rank": np.full(len(times.start), rank, dtype=np.int64),
                "stage": np.full(len(times.start), stage, dtype=np.int64),
                "peer": np.where(hops < 0, UNKNOWN, rank + (hops - stage) * plan.stage_ranks),
                "start_ps": times.start,
                "end_ps": times.end,
                "alone_ps": times.alone,
            }
            yield Spans.of(
                columns | own, table.names, groups=groups, entries=program.entries, streams=STREAMS
            )

    def _segments(self, rank: int) -> _TaskTimes:
        """Times of every segment of a rank as a whole."""
        cohort, column = self.place(rank)
        start, end = (times[:, column] for times in cohort.segment_times())
        count = len(cohort.laid.program)
        longer = np.zeros(count, dtype=np.int64)
        slowed = cohort.longer_ps(slice(column, column + 1))[:, 0]
        np.add.at(longer, cohort.laid.segment, slowed)
        return _TaskTimes(
            segment=np.arange(count, dtype=np.int32),
            inner=np.full(count, -1, dtype=np.int32),
            start=start,
            end=end,
            alone=np.where(longer > 0, end - start - longer, UNKNOWN),
        )

    def place(self, rank: int) -> tuple[Cohort, int]:
        """Cohort and column with a rank's times; raises PlanError for a rank beyond the job."""
        if not 0 <= rank < self.graph.plan.npus:
            raise PlanError(f"rank is {rank}: expected 0 to {self.graph.plan.npus - 1}")
        return self._places[self.actors.of(rank)]

    @cached_property
    def _places(self) -> dict[int, tuple[Cohort, int]]:
        """Cohort and column of every actor."""
        return {
            actor: (cohort, column)
            for cohort in self.cohorts
            for column, actor in enumerate(cohort.actors.tolist())
        }


def make_timeline(
    graph: TaskGraph,
    actors: Actors,
    programs: Sequence[LaidOut],
    starts: Sequence[Times],
    ends: Sequence[Times],
    *,
    engine: Engine,
    siblings_slow: bool = False,
    unslowed_ps: int | None = None,
) -> Timeline:
    """Timeline from the times of an engine, one array per actor."""
    by_flat: dict[int, list[int]] = {}
    for actor, laid in enumerate(programs):
        by_flat.setdefault(id(laid), []).append(actor)
    return Timeline(
        graph=graph,
        actors=actors,
        engine=engine,
        siblings_slow=siblings_slow,
        unslowed_ps=unslowed_ps,
        cohorts=tuple(
            Cohort(
                laid=programs[members[0]],
                actors=np.array(members, dtype=np.int64),
                start=_columns(starts, members),
                end=_columns(ends, members),
            )
            for members in by_flat.values()
        ),
    )


def _columns(times: Sequence[Times], actors: Sequence[int]) -> Times:
    if len(actors) == 1:
        return times[actors[0]][:, None]
    return np.stack([times[actor] for actor in actors], axis=1)


def transfers(
    cohort: Cohort, graph: TaskGraph, only: Container[Use] | None = None
) -> Iterator[tuple[Use, Times, Times]]:
    """Start and end of collectives and sends, of shape (times run, actors), use by use.

    With `only`, of these uses alone.
    """
    laid = cohort.laid
    stage = laid.program.stage
    alone: dict[Use, list[Ints]] = defaultdict(list)
    coalesced: dict[int, Ints] = {}
    for look, inner, tasks in laid.alike():
        if look.task_list >= 0 and inner < 0:
            coalesced[look.task_list] = tasks
            continue
        comm = laid.program.message
        if inner >= 0:
            comm = graph.task_lists[look.task_list].tasks[inner].comm
        if comm >= 0 and look.kind is not SegmentKind.RECV:
            sends = look.kind is SegmentKind.SEND
            use = Use(comm=comm, stage=stage, peer_stage=look.peer_stage, sends=sends)
            if only is None or use in only:
                alone[use].append(tasks)
    for use, several in alone.items():
        run = np.sort(np.concatenate(several))
        yield use, cohort.start[run], cohort.end[run]
    for task_list, tasks in coalesced.items():
        times, begin = laid.times[task_list], cohort.start[tasks]
        for inner, each in enumerate(graph.task_lists[task_list].tasks):
            if each.comm >= 0:
                use = Use(comm=each.comm, stage=stage)
                if only is None or use in only:
                    yield use, begin + times.start[inner], begin + times.end[inner]


MOST_EVENTS = 20_000
"""Tasks above which columns take the place of events, unless an engine is asked for."""


_SLOWED_RUNS, _STEADY = 16, 1e-3
"""Runs of a step whose compute is slowed, at most, and the change of its end that ends them."""

_TimesOfAll = tuple[list[Times], list[Times]]
"""Start and end of every task of every actor, in ps."""


def _end_of(times: _TimesOfAll) -> int:
    """When the last task of all ends, in ps."""
    return max(int(end.max(initial=0)) for end in times[1])


class LaidOutStep(Struct, frozen=True, kw_only=True):
    """Who is simulated, what each of them runs, on which shared links, and by which engine.

    `slow_compute` gives programs slowed by communications, None where they take nothing.
    """

    graph: TaskGraph
    actors: Actors
    runnable: Runnable
    contention: "Contention | None"
    engine: Engine
    slow_compute: "Callable[[_TimesOfAll], list[LaidOut]] | None" = None

    def timeline(self, progress: "OnProgress | None" = None) -> Timeline:
        """Run it, by columns or events."""
        times, unslowed_ps = self._times(progress), None
        if self.slow_compute:
            unslowed_ps = last_ps = _end_of(times)
            for _ in range(_SLOWED_RUNS):
                slowed = replace(self.runnable, programs=self.slow_compute(times))
                times = replace(self, runnable=slowed)._times(progress)
                before_ps, last_ps = last_ps, _end_of(times)
                if abs(last_ps - before_ps) <= _STEADY * last_ps:
                    break
        said(__name__, "all tasks ended")
        contention = self.contention
        return make_timeline(
            self.graph,
            self.actors,
            self.runnable.programs,
            *times,
            engine=self.engine,
            siblings_slow=contention is not None and contention.siblings_slow,
            unslowed_ps=unslowed_ps,
        )

    def _times(self, progress: "OnProgress | None") -> "_TimesOfAll":
        """Starts and ends of all tasks, by columns or events."""
        found = self.by_levels()
        return found.of_tasks() if found else self._events(progress)

    def by_levels(self) -> "NodeTimes | None":
        """When every task runs, where columns are asked for and can hold it."""
        if self.engine is not Engine.LEVELS:
            return None
        from stepsim.engine.nodes import run_levels

        return run_levels(self.runnable.programs, self.actors, self.graph.plan)

    def _events(self, progress: "OnProgress | None") -> "_TimesOfAll":
        """Starts and ends of all tasks, by events."""
        from stepsim.engine.run import run
        from stepsim.network.flights import Fabric

        fabric = Fabric(capacity=self.contention.capacity) if self.contention else None
        starts, ends = run(self.runnable, self.actors, self.graph.plan, fabric, progress)
        return [*map(_column, starts)], [*map(_column, ends)]


def _column(times: "array[int]") -> Times:
    """Times as numpy's usual integers: `ufunc.at` takes 20 times as long for C's `long long`."""
    return np.frombuffer(times, dtype=np.int64)


def find_actors(
    graph: TaskGraph, prices: Prices, slow: Floats | None, *, fold_ranks: bool
) -> tuple[Actors, "Contention | None"]:
    """Who is simulated, every rank or one of each class; and the links that are shared in time.

    `slow` are factors on the ranks' compute times.
    """
    if prices.sharing is Sharing.FAIR:
        from stepsim.network.contention import find_contention

        uses, streams = graph.uses, graph.streams()
        contention = find_contention(prices, uses, streams, slow, fold_ranks=fold_ranks)
        return contention.actors, contention
    return fold(prices, graph.uses, slow) if fold_ranks else every_rank(prices), None


def lay_out_step(
    graph: TaskGraph,
    prices: Prices,
    slow: Floats | None = None,
    fold_ranks: bool = True,
    engine: Engine | None = None,
    cost: "OverlapCost | None" = None,
) -> LaidOutStep:
    """Every rank, or one of each class of ranks that behave alike, and what each of them runs.

    `slow` are factors on the ranks' compute times. Unless an engine is asked for, columns take the
    place of events in large jobs whose links are not shared in time. With `cost` communication
    slows the compute beside it, and every task is by itself.
    """
    actors, contention = find_actors(graph, prices, slow, fold_ranks=fold_ranks)
    said(__name__, "%d of %d ranks are simulated", len(actors), graph.plan.npus)
    runnable = lay_out(graph, actors, prices, slow, contention, coalesce=cost is None)
    tasks = sum(map(len, runnable.programs))
    said(__name__, "%d tasks laid out", tasks)
    if engine is None:
        many = tasks > MOST_EVENTS and not contention
        engine = Engine.LEVELS if many else Engine.SIMPY
    slow_tasks = None
    if cost:
        from stepsim.engine.beside import slow_compute

        slow_tasks = partial(slow_compute, runnable.programs, actors, prices, cost)
    return LaidOutStep(
        graph=graph,
        actors=actors,
        runnable=runnable,
        contention=contention,
        engine=engine,
        slow_compute=slow_tasks,
    )


def run_graph(
    graph: TaskGraph,
    prices: Prices,
    *,
    slow: Floats | None = None,
    fold_ranks: bool = True,
    engine: Engine | None = None,
    progress: "OnProgress | None" = None,
    cost: "OverlapCost | None" = None,
) -> Timeline:
    """Run a task graph, laid out as `lay_out_step` does."""
    return lay_out_step(graph, prices, slow, fold_ranks, engine, cost).timeline(progress)
