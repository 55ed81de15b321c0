"""One training step, from a workload and a network to what is reported: read this first."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from stepsim.base import garbage
from stepsim.base.arrays import Floats
from stepsim.base.structs import replace
from stepsim.engine.fold import Actors, every_rank, fold
from stepsim.engine.lay_out import Runnable, lay_out
from stepsim.engine.layouts import Times
from stepsim.engine.prices import Prices, make_prices, prices_like
from stepsim.engine.timeline import Timeline, make_timeline
from stepsim.graph.build import TaskGraph, build_taskgraph
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.modes import Engine, Sharing
from stepsim.parallel.ranks import Crossing, ParallelPlan, find_crossing, idle_npus, place
from stepsim.parallel.stages import split_stages
from stepsim.results.findings import Finding
from stepsim.results.make_report import StepTotals, make_report, make_totals, simulated_ranks
from stepsim.results.report import Report, ResultDocument, SimulatedRanks
from stepsim.step.doubts import doubts_of, weigh_doubts
from stepsim.step.inputs import (
    MadeWork,
    WorkSource,
    choose_plan,
    choose_schedule,
    make_work,
    scaled_workload,
)
from stepsim.step.size import (
    MOST_EVENTS,
    OnSize,
    TooLarge,
    memory_of,
    size_of,
    too_large,
    with_memory,
)
from stepsim.workload.rows import Doubt, Workload

if TYPE_CHECKING:
    from stepsim.engine.contention import Contention
    from stepsim.engine.nodes import NodeTimes
    from stepsim.engine.run import OnProgress
    from stepsim.results.memory import StepMemory
    from stepsim.step.second_look import SecondLook

_DEFAULTS = StepOptions()
PRICES_KEPT = 8
"""Prices of as many steps are kept for those that follow."""


class PreparedStep(Struct, frozen=True, kw_only=True):
    """A step that is ready to run: its graph, what its communications cost, and how it is run.

    `workload` has its compute as the graph has it; `slow` are factors on the ranks' compute times.
    `doubts` are what the input can hardly mean, `assumed` what was taken for granted, `notes` what
    is as usual and may surprise. `memory` is what ranks hold, where that is known, `unfit` that it
    is more than they have, `crossing` which groups lie in several nodes or racks.
    `second_look` is what else is known of a model's step.
    """

    workload: Workload
    options: StepOptions
    graph: TaskGraph
    prices: Prices
    slow: Floats | None
    doubts: tuple[Doubt, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    memory: "StepMemory | None" = None
    unfit: TooLarge | None = None
    crossing: Crossing | None = None
    second_look: "SecondLook | None" = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """All that a user should know, where nobody says what doubts are worth."""
        first = (self.unfit.text(),) if self.unfit else ()
        crossed = (self.crossing.text,) if self.crossing else ()
        return (*first, *(doubt.text for doubt in self.doubts), *crossed, *self.assumed)


class SimulatedStep(Struct, frozen=True, kw_only=True):
    """A step that has run: what is reported, when every task ran, and at which prices.

    `ranks` says what the step of every simulated rank goes into. `memory` is what ranks hold, None
    where nobody said.
    """

    report: Report
    timeline: Timeline
    prices: Prices
    ranks: SimulatedRanks
    memory: "StepMemory | None" = None

    @property
    def step_time_s(self) -> float:
        """Step time in seconds."""
        return self.report.step_time_s

    @property
    def plan(self) -> ParallelPlan:
        """Who computes what: the degrees, and where groups of ranks lie."""
        return self.timeline.graph.plan

    def document(self) -> ResultDocument:
        """The report with a row per rank: what `stepsim simulate --json` writes."""
        return ResultDocument.of(self.report, self.ranks)


class RunStep(Struct, frozen=True, kw_only=True):
    """A step that has run, and of which nothing is said yet."""

    ready: PreparedStep
    timeline: Timeline

    def simulated(self, *, weigh: bool = False) -> SimulatedStep:
        """The step with all that is known of it; with `weigh` its doubts are told elsewhere."""
        ready, work, ranks = self.ready, self.ready.workload, simulated_ranks(self.timeline)
        doubts = () if weigh else tuple(doubt.text for doubt in ready.doubts)
        report = make_report(
            self.timeline,
            ready.prices,
            ranks,
            workload=work.source,
            warnings=(*doubts, *ready.assumed),
            reading=work.reading,
            notes=(*ready.notes, *_engine_notes(self.timeline, ready.options)),
            effort=work.effort,
            memory=ready.memory,
        )
        return SimulatedStep(
            report=replace(report, findings=tuple(self._findings())),
            timeline=self.timeline,
            prices=ready.prices,
            ranks=ranks,
            memory=ready.memory,
        )

    def _findings(self) -> Iterable[Finding]:
        """That it does not fit; else what a second look at a model's step says."""
        if self.ready.unfit:
            return (Finding(text=self.ready.unfit.text()),)
        look = self.ready.second_look
        return look.findings(self.timeline.step_time_ps) if look else ()

    def totals(self, *, breakdown: bool) -> StepTotals:
        """Its totals alone."""
        work = self.ready.workload
        return make_totals(
            self.timeline, workload=work.source, breakdown=breakdown, effort=work.effort
        )


def simulate_step(
    workload: WorkSource,
    topology: Topology,
    options: StepOptions = _DEFAULTS,
    *,
    notes: Sequence[str] = (),
    weigh: bool = False,
    progress: "OnProgress | None" = None,
    on_size: OnSize | None = None,
) -> SimulatedStep:
    """Run one training step; `notes` are what was assumed before, and stand among the warnings.

    With `weigh` the report says what doubts about the workload are worth in step time. `on_size` is
    called with the step's size before it is built.
    Raises the errors of `stepsim.base.errors` when the input is wrong or contradictory.
    """
    with garbage.paused():
        ready = prepare(workload, topology, options, notes=notes, on_size=on_size)
        timeline = _run(ready, progress)
        step = RunStep(ready=ready, timeline=timeline).simulated(weigh=weigh)
        if weigh:
            report = _weighed(ready, step.report, topology)
            report = _with_crossing(ready, report, workload, topology, options)
            step = replace(step, report=report)
    return step


def quickest(options: StepOptions) -> StepOptions:
    """Columns in place of events, unless an engine is asked for or links are shared in time."""
    if options.engine is None and options.contention is not Sharing.FAIR:
        return replace(options, engine=Engine.LEVELS)
    return options


def step_totals(
    workload: WorkSource,
    topology: Topology,
    options: StepOptions,
    *,
    breakdown: bool,
    known: list[Prices],
) -> StepTotals:
    """Run one training step for its totals alone, the quickest way; raises as `simulate_step` does.

    `known` are prices of earlier steps; those of this one come to stand last.
    """
    with garbage.paused():
        return run_step(workload, topology, options, known).totals(breakdown=breakdown)


def run_step(
    workload: WorkSource, topology: Topology, options: StepOptions, known: list[Prices]
) -> RunStep:
    """Run one training step the quickest way; raises as `simulate_step` does.

    `known` are prices of earlier steps; those of this one come to stand last.
    """
    with garbage.paused():
        ready = prepare(workload, topology, quickest(options), like=known)
        others = [each for each in known if not each.are(ready.prices)]
        known[:] = [*others, ready.prices][-PRICES_KEPT:]
        return RunStep(ready=ready, timeline=_run(ready, quick=True))


def _weighed(ready: PreparedStep, report: Report, topology: Topology) -> Report:
    """The report with what the doubts are worth."""
    options = ready.options

    def again(workload: Workload) -> int:
        return _step_time_ps(prepare(workload, topology, options, like=[ready.prices]))

    found = weigh_doubts(ready.doubts, ready.workload, options, report, again)
    said = tuple(each.text for each in found if each.is_negligible)
    kept = tuple(each for each in found if not each.is_negligible)
    kept = (*report.findings, *kept)
    return replace(report, findings=kept, notes=(*report.notes, *said))


def _with_crossing(
    ready: PreparedStep,
    report: Report,
    workload: WorkSource,
    topology: Topology,
    options: StepOptions,
) -> Report:
    """The report with what it costs that groups lie in several nodes or racks: a run without."""
    crossing, look = ready.crossing, ready.second_look
    if crossing is None or not report.step_time_ps:
        return report
    from stepsim.step.doubts import smaller_degrees, with_crossing

    def step_time(other: StepOptions) -> int | None:
        prepared = prepare(workload, topology, other)
        return None if prepared.unfit and not ready.unfit else _step_time_ps(prepared)

    ranks, plan = ready.graph.plan, look.built.plan if look else None
    smaller = smaller_degrees(crossing, topology, ranks, plan, ready.options) if plan else iter(())
    return with_crossing(report, crossing, options, step_time, smaller)


def _run(
    ready: PreparedStep, progress: "OnProgress | None" = None, *, quick: bool = False
) -> Timeline:
    """Run a step; the `quick` way makes no events where no transfer meets another."""
    laid = _laid_out_step(ready)
    quick = quick and ready.options.engine is None
    plan, contention = ready.graph.plan, laid.contention
    times = laid.apart(contention, plan) if quick and contention else None
    return _timeline(ready.graph, laid, times, progress)


def _step_time_ps(ready: PreparedStep) -> int:
    """The step time alone: columns need no timeline for it."""
    laid = _laid_out_step(ready)
    times = laid.by_levels(ready.graph.plan)
    return times.step_time_ps if times else _timeline(ready.graph, laid).step_time_ps


def _laid_out_step(ready: PreparedStep) -> "_LaidOutStep":
    options = ready.options
    return _lay_out(ready.graph, ready.prices, ready.slow, options.fold_ranks, options.engine)


def prepare(
    workload: WorkSource,
    topology: Topology,
    options: StepOptions = _DEFAULTS,
    *,
    notes: Sequence[str] = (),
    like: Sequence[Prices] = (),
    on_size: OnSize | None = None,
) -> PreparedStep:
    """Everything before the run: who runs what, in which order, and what communication costs.

    `like` are prices found before: those that serve this step are taken again. `on_size` is called
    with the step's size before its schedule is built.
    """
    made, asked = make_work(workload, topology, options), options
    options = made.options
    work, found = scaled_workload(made.workload, made.sized)
    plan, assumed = choose_plan(work, topology, made.sized)
    network = place(topology, plan, options.placement)
    if on_size:
        on_size(size_of(work, plan, options))
    schedule = choose_schedule(work, network, plan, options)
    stages = split_stages(work, plan, schedule.placement, options.stage_rows)
    memory = memory_of(work, made, schedule, stages, options)
    unfit = too_large(memory, made.built, topology, asked)
    work, full = with_memory(work, memory, made.built)
    graph = build_taskgraph(stages, schedule, plan, options)
    prices = prices_like(like, graph, network, options) or make_prices(graph, network, options)
    said(__name__, "workload %s: %d layers", work.source, work.layers)
    said(__name__, "topology %s: %d NPUs", network.name, network.npus)
    said(__name__, "schedule %s: %d stages", schedule.label, plan.pp)
    said(__name__, "task graph: %d communications", len(graph.comms))
    idle = options.idle(schedule, graph.p2p)
    assumed = [*made.notes, *found, *assumed, *idle, *full]
    every = (*work.warnings, *notes, *assumed, *stages.warnings)
    return PreparedStep(
        workload=work,
        options=options,
        graph=graph,
        prices=prices,
        slow=options.slow.factors(plan.npus) if options.slow else None,
        doubts=doubts_of(made.workload, options),
        assumed=every,
        notes=(*work.notes, *_unknown_device(made, topology), *idle_npus(network)),
        memory=memory,
        unfit=unfit,
        crossing=find_crossing(topology, network, plan, options.placement),
        second_look=_second_look(made, asked),
    )


def _second_look(made: MadeWork, asked: StepOptions) -> "SecondLook | None":
    """What else is known of a model's step."""
    effort = made.workload.effort
    if not (made.built and effort):
        return None
    from stepsim.step.second_look import SecondLook

    schedule = made.options.schedule
    return SecondLook(built=made.built, effort=effort, asked=asked, schedule=schedule)


def _unknown_device(made: MadeWork, topology: Topology) -> tuple[str, ...]:
    """That a file's compute times do not become those of the topology's device."""
    if made.built or not topology.device:
        return ()
    return (
        f"compute times are those of {made.workload.source}, of an unknown device: they are not "
        f"changed for {topology.device}, the device of {topology.name}",
    )


def run_graph(
    graph: TaskGraph,
    prices: Prices,
    *,
    slow: Floats | None = None,
    fold_ranks: bool = True,
    engine: Engine | None = None,
    progress: "OnProgress | None" = None,
) -> Timeline:
    """Run a task graph: every rank, or one of each class of ranks that behave alike.

    `slow` are factors on the ranks' compute times. Unless an engine is asked for, columns take the
    place of events in large jobs whose links are not shared in time.
    """
    laid = _lay_out(graph, prices, slow, fold_ranks, engine)
    return _timeline(graph, laid, progress=progress)


class _LaidOutStep(Struct, frozen=True, kw_only=True):
    """Who is simulated, what each of them runs, on which shared links, and by which engine."""

    actors: Actors
    runnable: Runnable
    contention: "Contention | None"
    engine: Engine

    def by_levels(self, plan: ParallelPlan) -> "NodeTimes | None":
        """When every task runs, where columns find it and can hold it."""
        if self.engine is not Engine.LEVELS:
            return None
        from stepsim.engine.nodes import run_levels

        return run_levels(self.runnable.programs, self.actors, plan)

    def apart(self, contention: "Contention", plan: ParallelPlan) -> "NodeTimes | None":
        """When every task runs, if no transfer meets another.

        Where more runs of its kind were found to have some that meet, it is not tried.
        """
        tried = contention.quotient.apart
        if tried[False] > tried[True]:
            return None
        from stepsim.engine.nodes import run_apart

        found = run_apart(self.runnable, self.actors, plan)
        tried[found is not None] += 1
        return found


def _lay_out(
    graph: TaskGraph, prices: Prices, slow: Floats | None, fold_ranks: bool, engine: Engine | None
) -> _LaidOutStep:
    if prices.sharing is Sharing.FAIR:
        from stepsim.engine.contention import find_contention

        contention = find_contention(graph, prices, slow, fold_ranks=fold_ranks)
        actors = contention.quotient.actors
    else:
        contention = None
        actors = fold(graph, prices, slow) if fold_ranks else every_rank(graph, prices)
    said(__name__, "%d of %d ranks are simulated", len(actors), graph.plan.npus)
    runnable = lay_out(graph, actors, prices, slow, contention)
    tasks = sum(map(len, runnable.programs))
    said(__name__, "%d tasks laid out", tasks)
    if engine is None:
        engine = Engine.LEVELS if tasks > MOST_EVENTS and not contention else Engine.SIMPY
    return _LaidOutStep(actors=actors, runnable=runnable, contention=contention, engine=engine)


def _timeline(
    graph: TaskGraph,
    laid: _LaidOutStep,
    found: "NodeTimes | None" = None,
    progress: "OnProgress | None" = None,
) -> Timeline:
    """The timeline of a run: of times that were `found`, or by columns or events."""
    found, contention = found or laid.by_levels(graph.plan), laid.contention
    times = found.of_tasks() if found else _events(laid, graph.plan, progress)
    said(__name__, "all tasks ended")
    return make_timeline(
        graph,
        laid.actors,
        laid.runnable.programs,
        *times,
        engine=laid.engine,
        siblings_slow=contention is not None and contention.siblings_slow,
    )


def _events(
    laid: _LaidOutStep, plan: ParallelPlan, progress: "OnProgress | None"
) -> tuple[list[Times], list[Times]]:
    """Starts and ends of all tasks, by events."""
    from stepsim.engine.run import run
    from stepsim.network.flights import Fabric

    fabric = Fabric(capacity=laid.contention.capacity) if laid.contention else None
    starts, ends = run(laid.runnable, laid.actors, plan, fabric, progress)
    return [*map(np.asarray, starts)], [*map(np.asarray, ends)]


def _engine_notes(timeline: Timeline, options: StepOptions) -> Iterator[str]:
    """That columns took the place of events, where nobody asked for them."""
    if timeline.engine is Engine.LEVELS and options.engine is None:
        yield (
            f"more than {MOST_EVENTS:,} tasks: their times are found level by level; they are "
            "those of the events (--engine simpy)"
        )


def said(module: str, text: str, *values: object) -> None:
    """Say something in a module's name, with `values` in place of `%d` and `%s`.

    Nobody listens where nobody has imported `logging`, which takes longer than all that is said.
    """
    if logging := sys.modules.get("logging"):
        logging.getLogger(module).info(text, *values, stacklevel=2)
