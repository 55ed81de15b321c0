"""Runs told as processes: the step as a whole, then every rank or class of ranks."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

import numpy as np
from msgspec import Struct

from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.base.units import format_time_ps
from stepsim.engine.prices import Prices
from stepsim.engine.timeline import Timeline
from stepsim.parallel.ranks import Ranks
from stepsim.results.counters import Curves, link_rates, live_activations
from stepsim.results.critical_path import Walk
from stepsim.results.memory import memory_curves
from stepsim.results.report import Report
from stepsim.show.trace.document import Category, Fact, Label, Process, Slice, Thread
from stepsim.show.trace.labels import Labels
from stepsim.show.trace.slices import Slicer
from stepsim.show.trace.window import WHOLE, Window
from stepsim.step.simulate import SimulatedStep
from stepsim.workload.rows import Stream

_RANGES_SHOWN = 4
_GB = 1e9
_GIB = 2**30


class TracedRun(Struct, frozen=True, kw_only=True):
    """A run to be told: all its simulated ranks, or those that stand for `ranks`.

    What reaches into the `window` is told, whole. `name` tells the runs of one trace apart. Raises
    PlanError for ranks the job does not have, and for a window behind the step.
    """

    timeline: Timeline
    prices: Prices
    report: Report
    ranks: tuple[int, ...] | None = None
    window: Window = WHOLE
    name: str = ""

    def __post_init__(self) -> None:
        npus = self.report.plan.npus
        for rank in self.ranks or ():
            if not 0 <= rank < npus:
                raise PlanError(f"ranks: the job has no rank {rank}: expected 0 to {npus - 1}")
        step_ps = self.report.step_time_ps
        if self.window.start_ps > step_ps:
            step = f"the step{self.name and ' of '}{self.name} takes {format_time_ps(step_ps)}"
            raise PlanError(f"window is {self.window}: {step}")

    def facts(self) -> dict[str, Fact]:
        """What was run, what came out, what was assumed and warned of."""
        report, plan = self.report, self.report.plan
        return {
            "workload": report.workload,
            "topology": report.topology,
            "schedule": report.schedule,
            "p2p": report.p2p,
            "contention": report.contention,
            "npus": plan.npus,
            **{str(axis): degree for axis, degree in plan.degrees().items()},
            "microbatches": plan.microbatches,
            "step_time_ps": report.step_time_ps,
            "pipeline_time_ps": report.pipeline_time_ps,
            "bubble_fraction": report.bubble_fraction,
            "settings": tuple(f"{name} {value}" for name, value in report.settings.items()),
            "assumptions": tuple(self._assumptions()),
            "warnings": report.warnings,
        }

    def shown(self) -> dict[int, Ranks]:
        """The actors that are shown, and the ranks for which each is."""
        asked = np.arange(self.report.plan.npus) if self.ranks is None else np.array(self.ranks)
        asked = np.sort(asked.astype(np.int64))
        actor_of = self.timeline.actors.actor_of[asked]
        actors, firsts = np.unique(np.sort(actor_of), return_index=True)
        classes = np.split(asked[np.argsort(actor_of, kind="stable")], firsts[1:])
        return dict(zip(actors.tolist(), classes, strict=True))

    @property
    def slices(self) -> int:
        """How many slices are told of tasks; those of actions come on top."""
        ranks = self.timeline.actors.ranks
        told = (self.timeline.tasks(int(ranks[actor])) for actor in self.shown())
        return sum(int(self.window.holds(times.start, times.end).sum()) for times in told)

    def _assumptions(self) -> Iterator[str]:
        actors, npus = len(self.timeline.actors), self.report.plan.npus
        if actors < npus:
            yield (
                f"{actors} of {npus} ranks are simulated, the others behave alike: a process "
                "stands for all ranks of its class"
            )
        yield "the bytes of a transfer are counted evenly over the time it takes"
        yield "an activation is live from the start of its forward to the end of its backward"


def traced(
    step: SimulatedStep,
    ranks: Sequence[int] | None = None,
    window: Window = WHOLE,
    name: str = "",
) -> TracedRun:
    """A simulated step as part of a trace; raises PlanError as `TracedRun` does."""
    return TracedRun(
        timeline=step.timeline,
        prices=step.prices,
        report=step.report,
        ranks=None if ranks is None else tuple(ranks),
        window=window,
        name=name,
    )


def trace_processes(runs: Iterable[TracedRun]) -> Iterator[Process]:
    """The processes of a trace, one at a time: of each run the step, then its ranks in order.

    No process or thread has the number of another, for Perfetto knows threads by theirs, and takes
    one with its process's number for the main thread, and 0 for the idle one.
    """
    numbers, messages = count(1), 0
    for run in runs:
        yield _step(run, numbers)
        shown = run.shown()
        slicer = Slicer(
            walk=Walk(timeline=run.timeline),
            labels=Labels(graph=run.timeline.graph, prices=run.prices),
            shown=tuple(shown),
            window=run.window,
            first_message=messages + 1,
        )
        for actor, ranks in shown.items():
            yield Process(
                number=next(numbers),
                name=_titled(run, _ranks_name(run, actor, ranks)),
                threads=list(_threads(slicer, actor, numbers)),
                counters=_counters(run, int(ranks[0])),
            )
        messages = slicer.last_message


def _counters(run: TracedRun, rank: int) -> dict[str, Curves]:
    """Live activations of a rank, and its bytes where it is known what they are for."""
    counters = {"live activations": live_activations(run.timeline, rank)}
    if run.report.memory:
        found = memory_curves(run.timeline, run.report.memory.held, rank)
        counters["memory (GiB)"] = replace(found, values=found.values / _GIB)
    return {name: run.window.of_curves(curves) for name, curves in counters.items()}


def rank_ranges(ranks: Ranks, digits: int = 1) -> list[str]:
    """Ascending ranks as `0-7` and `9`, filled up with zeros to so many digits."""
    ends = np.flatnonzero(np.diff(ranks) != 1)
    firsts, lasts = ranks[np.r_[0, ends + 1]], ranks[np.r_[ends, len(ranks) - 1]]
    pairs = zip(firsts.tolist(), lasts.tolist(), strict=True)
    return [
        f"{first:0{digits}}-{last:0{digits}}" if last > first else f"{first:0{digits}}"
        for first, last in pairs
    ]


def _step(run: TracedRun, numbers: Iterator[int]) -> Process:
    """The step as one slice that says all that is known of the run, and the use of its links."""
    report, window = run.report, run.window
    label = Label(name=report.workload, category=Category.STEP, facts=run.facts())
    whole = Slice(label, window.start_ps, min(report.step_time_ps, window.end_ps))
    part = f", {window} of it" if window != WHOLE else ""
    rates = link_rates(run.timeline, run.prices)
    counters = {}
    for column, link in enumerate(report.links):
        if link.used:
            values = rates.values[:, column : column + 1] / (link.used * _GB)
            shown = Curves(names=("GB/s per link in use",), time_ps=rates.time_ps, values=values)
            counters[link.name] = run.window.of_curves(shown)
    return Process(
        number=next(numbers),
        name=_titled(run, f"step of {format_time_ps(report.step_time_ps)}{part}"),
        threads=[Thread(number=next(numbers), name="step", slices=[whole])],
        counters=counters,
    )


def _titled(run: TracedRun, name: str) -> str:
    return f"{run.name}: {name}" if run.name else name


def _ranks_name(run: TracedRun, actor: int, ranks: Ranks) -> str:
    """The ranks that a process stands for; all that were asked for are named.

    Zeros go first, for Perfetto sorts processes of equally many slices by name.
    """
    digits = len(str(run.report.plan.npus - 1))
    ranges, alike = rank_ranges(ranks, digits), int(run.timeline.actors.counts[actor])
    if run.ranks is None and len(ranges) > _RANGES_SHOWN:
        ranges = [*ranges[:_RANGES_SHOWN], "..."]
    some = f"{len(ranks)} of " if len(ranks) < alike else ""
    told = f" ({some}{alike} alike)" if alike > 1 else ""
    stage = run.report.plan.stage_of(int(ranks[0]))
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(ranges)}{told}, stage {stage}"


def _threads(slicer: Slicer, actor: int, numbers: Iterator[int]) -> Iterator[Thread]:
    """The schedule of a rank, then its streams; messages in flight together have lanes."""
    slices = slicer.schedule(actor)
    if slices:
        yield Thread(number=next(numbers), name="schedule", slices=slices)
    for stream, found in sorted(slicer.streams(actor).items()):
        name = stream.name.lower().replace("_", " ")
        lanes = lanes_of(found) if stream is Stream.EAGER else [found]
        for lane, some in enumerate(lanes):
            shown = f"{name} {lane + 1}" if len(lanes) > 1 else name
            yield Thread(number=next(numbers), name=shown, slices=some)


def lanes_of(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Slices by start shared out over as few lanes as their overlaps allow.

    Each is on the first lane that is free.
    """
    lanes: list[list[Slice]] = []
    for each in slices:
        free = next((lane for lane in lanes if lane[-1].end_ps <= each.start_ps), None)
        if free is None:
            lanes.append([each])
        else:
            free.append(each)
    return lanes
