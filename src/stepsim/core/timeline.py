"""A task graph is run: when every task and transfer of every simulated rank starts and ends."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stepsim.base.arrays import Floats, Ints, Small, ints, whole_totals
from stepsim.base.errors import SimulationError, said, within
from stepsim.base.structs import Noun
from stepsim.core.ends import ends, freed_by
from stepsim.core.flat import Flat, Tasks, expanded, flatten, lay_out, tasks_of
from stepsim.core.task_table import STREAMS, columns_of
from stepsim.core.write import TaskGraph
from stepsim.network.fold import Actors, every_rank, fold
from stepsim.network.prices import Prices
from stepsim.parallel.modes import Engine, Sharing
from stepsim.run.spans import UNKNOWN, Spans, extents

if TYPE_CHECKING:
    from stepsim.core.beside import OverlapCost, SlowedCompute
    from stepsim.core.events import OnProgress
    from stepsim.network.contention import Contention


Place = tuple[int, int]
"""An actor and the number of one of its tasks."""


class Cohort(Noun):
    """Actors that run the same `tasks`, and times of these in a run, of shape (tasks, actors).

    `nodes` are those of the tasks, of the same shape, in the `timeline`.
    """

    timeline: "Timeline"
    tasks: Tasks
    actors: Ints
    nodes: Small

    @property
    def start(self) -> Ints:
        """When tasks start, in ps."""
        return self.timeline.start.take(self.nodes)

    @property
    def end(self) -> Ints:
        """When tasks end, in ps."""
        return self.timeline.end.take(self.nodes)

    @property
    def longer_ps(self) -> Ints:
        """By how much communication slowed every task, 0 for transfers."""
        longer = self.end - self.start - self.tasks.duration_ps[:, None]
        return np.where(self.tasks.group[:, None] < 0, longer, 0)

    @property
    def entry_times(self) -> tuple[Ints, Ints]:
        """Start and end in ps of every entry of the schedule's order: shape (entries, actors)."""
        place = self.tasks.program.entry[self.tasks.segment]
        return extents(place, len(self.tasks.program.entries), self.start, self.end)


class RankTasks(NamedTuple):
    """Tasks of one rank, each by itself, and when they start and end, in ps.

    `alone` is what compute takes alone, in ps, where communication slowed it, else `UNKNOWN`.
    """

    tasks: Tasks
    start: Ints
    end: Ints
    alone: Ints


class Timeline(Noun, dict=True):
    """The result of a run, and what ran it: start and end of every node of `flat`, in ps.

    Ranks that behave alike share an actor's times. `siblings_slow` says that transfers which the
    durations hold for one have slowed each other. `unslowed_ps` is the step time without what
    communications take from compute, where they do.
    """

    flat: Flat
    start: Ints
    end: Ints
    engine: Engine = Engine.SIMPY
    siblings_slow: bool = False
    unslowed_ps: int | None = None

    @property
    def graph(self) -> TaskGraph:
        """What ran."""
        return self.flat.graph

    @property
    def actors(self) -> Actors:
        """Who is simulated."""
        return self.flat.actors

    @cached_property
    def cohorts(self) -> tuple[Cohort, ...]:
        """The actors, those that run the same tasks together."""
        alike: dict[int, list[int]] = defaultdict(list)
        for actor, tasks in enumerate(self.flat.programs):
            alike[id(tasks)].append(actor)
        return tuple(map(self._cohort, alike.values()))

    def of_rank(self, rank: int) -> Cohort:
        """The actor of a rank by itself; raises PlanError for a rank beyond the job."""
        within("rank", rank, 0, self.graph.plan.npus - 1)
        return self._cohort([self.actors.of(rank)])

    def entry_times(self, rank: int) -> tuple[Ints, Ints]:
        """Start and end in ps of every entry of a rank's order."""
        start, end = self.of_rank(rank).entry_times
        return start[:, 0], end[:, 0]

    def _cohort(self, actors: Sequence[int]) -> Cohort:
        nodes = [self.flat.node_of[actor] for actor in actors]
        return Cohort(
            timeline=self,
            tasks=self.flat.programs[actors[0]],
            actors=ints(actors),
            nodes=nodes[0][:, None] if len(nodes) == 1 else np.stack(nodes, axis=1),
        )

    @property
    def slowed(self) -> bool:
        """Whether any transfer took longer than it would with the links to itself."""
        shared = self.flat.slowed
        return self.siblings_slow or any(
            self.end[node] - self.start[node] > transfer.duration_ps
            for node, transfer in shared.items()
        )

    @property
    def step_time_ps(self) -> int:
        """End of the last task."""
        return int(self.end.max(initial=0))

    @cached_property
    def pipeline_time_ps(self) -> int:
        """End of the last action of the pipeline schedule."""
        return max(int(cohort.entry_times[1].max(initial=0)) for cohort in self.cohorts)

    def tasks(self, rank: int, apart: Tasks | None = None) -> RankTasks:
        """When every task of a rank runs, contracted task lists laid out.

        `apart` are the tasks of its stage, where they are known.
        """
        ran = self.of_rank(rank)
        apart = apart or tasks_of(ran.tasks.program, self.graph)
        place, (start, end) = expanded(ran.tasks, apart, ran.start[:, 0], ran.end[:, 0])
        longer = ran.longer_ps[place, 0]
        return RankTasks(apart, start, end, np.where(longer > 0, end - start - longer, UNKNOWN))

    def spans(self, ranks: Iterable[int] | None = None, *, whole: bool = False) -> Iterator[Spans]:
        """A table for each of these ranks, or for the representative of every class.

        A rank's rows are its tasks in the order of its program, contracted task lists laid out; or
        its `whole` segments. Tables are made when they are asked for, one at a time.
        """
        stage, columns, names = UNKNOWN, dict[str, Ints](), dict[str, int]()
        plan, groups = self.graph.plan, tuple(str(op.group) for op in self.graph.comms)
        for rank in self.actors.ranks.tolist() if ranks is None else ranks:
            program = self.of_rank(rank).tasks.program
            if program.stage != stage:
                stage = program.stage
                apart = tasks_of(program, self.graph, whole=whole)
                columns = columns_of(apart, self.graph, names)
                hops = program.peer_stage[apart.segment].astype(np.int64)
            _, *times = self._segments(rank, apart) if whole else self.tasks(rank, apart)
            own = {
                "rank": np.full(len(hops), rank, np.int64),
                "stage": np.full(len(hops), stage, np.int64),
                "peer": np.where(hops < 0, UNKNOWN, rank + (hops - stage) * plan.stage_ranks),
                **dict(zip(("start_ps", "end_ps", "alone_ps"), times, strict=True)),
            }
            yield Spans.of(
                len(hops),
                **columns | own,
                names=tuple(names),
                groups=groups,
                entries=program.entries,
                streams=STREAMS,
            )

    def _segments(self, rank: int, whole: Tasks) -> RankTasks:
        """When every segment of a rank runs, which are `whole` tasks."""
        ran, count = self.of_rank(rank), len(whole)
        segment = ran.tasks.segment
        start, end = (times[:, 0] for times in extents(segment, count, ran.start, ran.end))
        longer = whole_totals(segment.astype(np.int64), ran.longer_ps[:, 0], count)
        alone = np.where(longer > 0, end - start - longer, UNKNOWN)
        return RankTasks(whole, start, end, alone)

    def start_ps(self, place: Place) -> int:
        """When a task of an actor starts."""
        return self.start.item(self.flat.node_of[place[0]].item(place[1]))

    def end_ps(self, place: Place) -> int:
        """When a task of an actor ends."""
        return self.end.item(self.flat.node_of[place[0]].item(place[1]))

    @cached_property
    def freed(self) -> tuple[Ints, ...]:
        """Of what every task of every actor waits for, the last that ends when it starts, or -1.

        It is kept, for a path asks it of each of its tasks.
        """
        programs = zip(self.flat.programs, self.flat.node_of, strict=True)
        return tuple(
            freed_by(tasks.after, self.start.take(nodes), self.end.take(nodes))
            for tasks, nodes in programs
        )

    def freed_by(self, place: Place) -> Place:
        """What ended when a task started: of its own rank, or else of one that it meets.

        Raises SimulationError where nothing did: no task of a run is such that starts later than 0,
        unless links are shared fairly.
        """
        actor, task = place
        before = self.freed[actor].item(task)
        if before < 0:
            met = ((a, self.freed[a].item(i)) for a, i in self.flat.members(actor, task))
            actor, before = next((each for each in met if each[1] >= 0), (actor, before))
        if before < 0:
            now = self.start_ps(place)
            raise SimulationError(f"critical path: nothing ends at {now} ps, where a task starts")
        return actor, before

    @cached_property
    def path(self) -> tuple[Place, ...]:
        """The critical path in order of time: each starts when the one before it ends.

        Where several tasks end last, it ends with the one of the lowest actor. Raises
        SimulationError if the path has a gap, which no run has unless links are shared fairly. It
        is kept for what shows a step after its report: README's picture takes 1.066 s so, and
        1.075 without.
        """
        ends = [self.end[nodes] for nodes in self.flat.node_of]
        last = int(np.argmax([end.max(initial=-1) for end in ends]))
        path = [(last, int(np.argmax(ends[last])))]
        while self.start_ps(path[-1]):
            path.append(self.freed_by(path[-1]))
        return tuple(reversed(path))


MOST_EVENTS = 20_000
"""Tasks above which columns take the place of events, unless an engine is asked for."""


# Runs of a step whose compute is slowed, at most, and the change of its end that ends them.
_SLOWED_RUNS, _STEADY = 16, 1e-3


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


def run_graph(
    graph: TaskGraph,
    prices: Prices,
    *,
    slow: Floats | None = None,
    fold_ranks: bool = True,
    engine: Engine | None = None,
    cost: "OverlapCost | None" = None,
    progress: "OnProgress | None" = None,
    apart: bool = True,
) -> Timeline:
    """Run what every rank runs, or one of each class of ranks that behave alike.

    `slow` are factors on the ranks' compute times. Unless an engine is asked for, columns take the
    place of events in large jobs whose links are not shared in time. With `cost` communication
    slows the compute beside it: then a table is run in which every task is `apart`. Without, when
    tasks inside of contracted lists run is not told: ends alone are.
    """
    actors, contention = find_actors(graph, prices, slow, fold_ranks=fold_ranks)
    said(__name__, "%d of %d ranks are simulated", len(actors), graph.plan.npus)
    laid = graph, actors, prices, slow, contention
    flat, unslowed_ps = flatten(*laid), None
    alone = lay_out(*laid, contract=False)[0] if cost else []
    tasks = sum(map(len, alone or flat.programs))
    said(__name__, "%d tasks laid out", tasks)
    if engine is None or contention:
        many = tasks > MOST_EVENTS and not contention
        engine = Engine.LEVELS if many else Engine.SIMPY
    run = partial(_times, engine, contention, progress)
    times = run(flat, flat.duration_ps)
    if cost:
        from stepsim.core.beside import SlowedCompute

        unslowed_ps = int(times[1].max(initial=0))
        slowing = SlowedCompute(flat=flat, apart=alone, prices=prices, cost=cost)
        times = _settled(slowing, times, run)
        if apart:
            flat = flatten(*laid, contract=False)
            duration_ps = flat.duration_ps
            for nodes, own, took in zip(flat.node_of, alone, slowing.took_ps, strict=True):
                slowed = np.flatnonzero(took != own.duration_ps)
                duration_ps[nodes[slowed]] = took[slowed]
            times = run(flat, duration_ps)
    said(__name__, "all tasks ended")
    return Timeline(
        flat=flat,
        start=times[0],
        end=times[1],
        engine=engine,
        siblings_slow=contention is not None and contention.siblings_slow,
        unslowed_ps=unslowed_ps,
    )


def _settled(
    slowing: "SlowedCompute",
    times: tuple[Ints, Ints],
    run: Callable[[Flat, Ints], tuple[Ints, Ints]],
) -> tuple[Ints, Ints]:
    """Start and end of all nodes once what slowed tasks take changes no more.

    `times` are those of a run in which communications take nothing.
    """
    last_ps = int(times[1].max(initial=0))
    for _ in range(_SLOWED_RUNS):
        times = run(slowing.flat, slowing.durations(*times))
        before_ps, last_ps = last_ps, int(times[1].max(initial=0))
        if abs(last_ps - before_ps) <= _STEADY * last_ps:
            break
    return times


def _times(
    engine: Engine,
    contention: "Contention | None",
    progress: "OnProgress | None",
    flat: Flat,
    duration_ps: Ints,
) -> tuple[Ints, Ints]:
    """Start and end of all nodes, which take so long, in ps, by columns or events."""
    if engine is Engine.LEVELS:
        end = ends(flat.waits, duration_ps)
        return end - duration_ps, end
    from stepsim.core.events import run
    from stepsim.network.flights import Fabric

    fabric = Fabric(capacity=contention.capacity) if contention else None
    return run(flat.waits, duration_ps, flat.slowed, fabric, progress)
