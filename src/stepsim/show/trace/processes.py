"""Simulated and recorded runs told as processes: a process for every rank or class of ranks."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, count

import numpy as np
from msgspec import Struct

from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun, replace
from stepsim.base.units import format_time_ps
from stepsim.core.flat import far_actor
from stepsim.core.timeline import Timeline
from stepsim.core.write import Program, Segment, SegmentKind
from stepsim.explain.counters import Curves, link_rates, live_activations
from stepsim.explain.critical_path import waited_for
from stepsim.explain.memory import StepMemory, memory_curves
from stepsim.explain.report import Report
from stepsim.measured.profile.events import Profile
from stepsim.network.prices import Prices, Use
from stepsim.parallel.p2p import Message
from stepsim.run.spans import UNKNOWN, Spans
from stepsim.show.trace.document import Category, Fact, Label, Process, Slice, SliceColumns, Thread
from stepsim.show.trace.labels import Labels, Ways, actions_of, recorded_slices
from stepsim.show.trace.window import WHOLE, Window
from stepsim.step.prepared import SimulatedStep
from stepsim.workload.plan import Ranks

_MESSAGES = (SegmentKind.SEND, SegmentKind.RECV)
_RANGES_SHOWN = 4
_GB = 1e9
_GIB = 2**30


class TracedRun(Noun):
    """A run to be told: all its simulated ranks, or those that stand for `ranks`.

    What reaches into the `window` is told, whole. `name` tells the runs of one trace apart. Raises
    PlanError for ranks the job does not have, and for a window behind the step.
    """

    timeline: Timeline
    prices: Prices
    report: Report
    memory: StepMemory | None = None
    ranks: tuple[int, ...] | None = None
    window: Window = WHOLE
    name: str = ""

    def __post_init__(self) -> None:
        npus = self.report.npus
        for rank in self.ranks or ():
            if not 0 <= rank < npus:
                raise PlanError(f"ranks: the job has no rank {rank}: expected 0 to {npus - 1}")
        step_ps = self.report.step_time_ps
        if self.window.start_ps > step_ps:
            step = f"the step{self.name and ' of '}{self.name} takes {format_time_ps(step_ps)}"
            raise PlanError(f"window is {self.window}: {step}")

    def facts(self) -> dict[str, Fact]:
        """What was run, what came out, what was assumed and warned of."""
        report = self.report
        return {
            "workload": report.workload,
            "topology": report.topology,
            "schedule": report.schedule,
            "p2p": report.p2p,
            "contention": report.contention,
            "npus": report.npus,
            **report.plan,
            "microbatches": report.microbatches,
            "step_time_ps": report.step_time_ps,
            "pipeline_time_ps": report.pipeline_time_ps,
            "bubble_fraction": report.bubble_fraction,
            "settings": tuple(f"{name} {value}" for name, value in report.settings.items()),
            "assumptions": tuple(self._assumptions()),
            "warnings": report.warnings,
        }

    def shown(self) -> dict[int, Ranks]:
        """The actors that are shown, and the ranks for which each is."""
        asked = np.arange(self.report.npus) if self.ranks is None else np.array(self.ranks)
        asked = np.sort(asked.astype(np.int64))
        actor_of = self.timeline.actors.actor_of[asked]
        actors, firsts = np.unique(np.sort(actor_of), return_index=True)
        classes = np.split(asked[np.argsort(actor_of, kind="stable")], firsts[1:])
        return dict(zip(actors.tolist(), classes, strict=True))

    @property
    def messages(self) -> int:
        """How many numbers its messages take at most."""
        stages = self.timeline.actors.stages[list(self.shown())].tolist()
        return sum(len(self.timeline.graph.programs[stage]) for stage in stages)

    @property
    def slices(self) -> int:
        """How many slices are told of tasks; those of actions come on top."""
        ranks = self.timeline.actors.ranks
        told = (self.timeline.tasks(int(ranks[actor])) for actor in self.shown())
        return sum(int(self.window.holds(times.start, times.end).sum()) for times in told)

    def processes(self, numbers: Iterator[int], first_message: int) -> Iterator[Process]:
        """The step as a whole, then a process for every shown class of ranks, in order."""
        yield _step(self, numbers)
        shown = self.shown()
        slicer = _Slicer(
            timeline=self.timeline,
            labels=Labels(graph=self.timeline.graph, prices=self.prices),
            shown=tuple(shown),
            window=self.window,
            first_message=first_message,
        )
        tables = self.timeline.spans(self.timeline.actors.ranks[list(shown)].tolist())
        for (actor, ranks), spans in zip(shown.items(), tables, strict=True):
            yield Process(
                number=next(numbers),
                name=_titled(self, _ranks_name(self, actor, ranks)),
                threads=list(_threads(slicer, actor, spans, numbers)),
                counters=_counters(self, int(ranks[0])),
            )

    def _assumptions(self) -> Iterator[str]:
        actors, npus = len(self.timeline.actors), self.report.npus
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
        memory=step.memory,
        ranks=None if ranks is None else tuple(ranks),
        window=window,
        name=name,
    )


class TracedProfile(Noun):
    """A profile to be told: all its ranks, or `ranks`; what reaches into the `window`.

    Raises PlanError for ranks that were not recorded, and for a window behind the last operation.
    """

    profile: Profile
    ranks: tuple[int, ...] | None = None
    window: Window = WHOLE

    def __post_init__(self) -> None:
        known = {ran.rank for ran in self.profile.ranks}
        for rank in self.ranks or ():
            if rank not in known:
                raise PlanError(
                    f"ranks: {self.profile.source} has no rank {rank}: expected one of "
                    f"{', '.join(map(str, sorted(known)[:16]))}"
                )
        last = int(self.profile.events.end_ps.max())
        if self.window.start_ps > last:
            raise PlanError(
                f"window is {self.window}: {self.profile.source} takes {format_time_ps(last)}"
            )

    @property
    def messages(self) -> int:
        """How many numbers its messages take at most."""
        return int(self.profile.events.meeting.max()) + 1

    @property
    def slices(self) -> int:
        """How many operations are told."""
        return len(self._shown())

    def processes(self, numbers: Iterator[int], first_message: int) -> Iterator[Process]:
        """A process for every rank, in order."""
        spans, labels = self._shown(), dict[tuple[int, ...], Label]()
        for rank in np.unique(spans.rank).tolist():
            table = spans.taken(spans.rank == rank)
            stage, columns = int(table.stage[0]), recorded_slices(table, labels, first_message)
            yield Process(
                number=next(numbers),
                name=f"rank {rank}" + (f", stage {stage}" if stage != UNKNOWN else ""),
                threads=list(stream_threads(table, columns, numbers)),
                counters={},
            )

    def _shown(self) -> Spans:
        """The operations that are told, by start and end."""
        spans = self.profile.spans()
        shown = self.window.holds(spans.start_ps, spans.end_ps)
        if self.ranks is not None:
            shown &= np.isin(spans.rank, self.ranks)
        spans = spans.taken(shown)
        return spans.taken(np.lexsort((spans.end_ps, spans.start_ps)))


def trace_processes(runs: Iterable[TracedRun | TracedProfile]) -> Iterator[Process]:
    """The processes of a trace, one at a time, run by run.

    No process or thread has the number of another, for Perfetto knows threads by theirs, and takes
    one with its process's number for the main thread, and 0 for the idle one.
    """
    numbers, first_message = count(1), 1
    for run in runs:
        yield from run.processes(numbers, first_message)
        first_message += run.messages


def _counters(run: TracedRun, rank: int) -> dict[str, Curves]:
    """Live activations of a rank, and its bytes where it is known what they are for."""
    counters = {"live activations": live_activations(run.timeline, rank)}
    if run.memory:
        found = memory_curves(run.timeline, run.memory.held, rank)
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
    digits = len(str(run.report.npus - 1))
    ranges, alike = rank_ranges(ranks, digits), int(run.timeline.actors.counts[actor])
    if run.ranks is None and len(ranges) > _RANGES_SHOWN:
        ranges = [*ranges[:_RANGES_SHOWN], "..."]
    some = f"{len(ranks)} of " if len(ranks) < alike else ""
    told = f" ({some}{alike} alike)" if alike > 1 else ""
    stage = run.timeline.graph.plan.stage_of(int(ranks[0]))
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(ranges)}{told}, stage {stage}"


def _threads(
    slicer: "_Slicer", actor: int, spans: Spans, numbers: Iterator[int]
) -> Iterator[Thread]:
    """The schedule of a rank, then its streams."""
    slices = slicer.schedule(actor, spans)
    if slices:
        yield Thread(number=next(numbers), name="schedule", slices=slices)
    shown = spans.taken(slicer.window.holds(spans.start_ps, spans.end_ps))
    yield from stream_threads(shown, slicer.columns(actor, spans), numbers)


def stream_threads(spans: Spans, said: SliceColumns, numbers: Iterator[int]) -> Iterator[Thread]:
    """The streams of a rank by start; spans that overlap on one, such as messages, have lanes."""
    times = (spans.start_ps.tolist(), spans.end_ps.tolist())
    columns = (said.labels, *times, *said[1:], spans.alone_ps.tolist())
    for stream in np.unique(spans.stream).tolist():
        places = np.flatnonzero(spans.stream == stream)
        places = places[np.argsort(spans.start_ps[places], kind="stable")]
        taken = places.tolist()
        slices = map(Slice, *(map(column.__getitem__, taken) for column in columns))
        name = spans.stream_words(stream) or "operations"
        if (spans.start_ps[places[1:]] >= spans.end_ps[places[:-1]]).all():
            yield Thread(number=next(numbers), name=name, slices=slices)
            continue
        for lane, some in enumerate(lanes_of(slices)):
            yield Thread(number=next(numbers), name=f"{name} {lane + 1}", slices=some)


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


class _Slicer(Struct, kw_only=True):
    """Tells the spans of the `shown` actors that reach into a window.

    Messages between shown actors are numbered from `first_message`.
    """

    timeline: Timeline
    labels: Labels
    shown: Sequence[int]
    window: Window
    first_message: int
    _numbers: dict[int, int] = {}
    _carried: list[dict[int, Message]] = []
    _actions: dict[int, list[Label]] = {}

    def __post_init__(self) -> None:
        graph = self.timeline.graph
        sizes = [len(self.program(actor)) for actor in self.shown]
        firsts = list(accumulate(sizes, initial=self.first_message))
        self._numbers = dict(zip(self.shown, firsts, strict=False))
        for program, messages in zip(graph.programs, graph.messages(), strict=True):
            ends = (i for i, s in enumerate(program.segments) if s.kind in _MESSAGES)
            self._carried.append(dict(zip(ends, messages, strict=True)))

    def program(self, actor: int) -> Program:
        """What an actor runs."""
        return self.timeline.flat.programs[actor].program

    def schedule(self, actor: int, spans: Spans) -> list[Slice]:
        """The actions of a rank, and what it runs after the pipeline; `spans` are all of its."""
        program = self.program(actor)
        starts, ends = (times.tolist() for times in spans.actions())
        slices = list(map(Slice, self.actions(program), starts, ends))
        after = Label(
            name="optimizer and gradient sync",
            category=Category.PER_STEP,
            facts={"stage": program.stage},
        )
        for number in np.flatnonzero(program.kind == SegmentKind.PER_STEP).tolist():
            tasks = spans.taken(spans.segment == number)
            slices.append(Slice(after, int(tasks.start_ps.min()), int(tasks.end_ps.max())))
        return [each for each in slices if self.window.holds(each.start_ps, each.end_ps)]

    def columns(self, actor: int, spans: Spans) -> SliceColumns:
        """What is told of the spans of a rank that reach into the window."""
        teller = _Teller(slicer=self, actor=actor, starts=spans.start_ps.tolist())
        held = self.window.holds(spans.start_ps, spans.end_ps).tolist()
        ends, first = spans.end_ps.tolist(), 0
        for number, segment in enumerate(teller.program.segments):
            if segment.task_list < 0:
                teller.message(number, segment, first, ends[first], held[first])
                first += 1
            else:
                past = first + len(teller.program.lists[segment.task_list].tasks)
                teller.task_list(number, segment, first, ends[first:past], held[first:past])
                first = past
        return teller.said

    def actions(self, program: Program) -> list[Label]:
        """Labels of a program's entries."""
        if program.stage not in self._actions:
            self._actions[program.stage] = actions_of(program)
        return self._actions[program.stage]

    def carried(self, stage: int, segment: int) -> Message:
        """The message whose end a segment is."""
        return self._carried[stage][segment]

    def message_number(self, actor: int, number: int, segment: Segment) -> int:
        """Number of a message of a shown actor, 0 if its other end is not shown."""
        timeline = self.timeline
        peer = far_actor(actor, segment.peer_stage, timeline.actors, timeline.graph.plan)
        if peer not in self._numbers:
            return 0
        if segment.kind is SegmentKind.SEND:
            return self._numbers[actor] + number
        return self._numbers[peer] + segment.peer


class _Teller(Struct, kw_only=True, dict=True):
    """Tells one actor's program, segment by segment; `starts` are those of its spans.

    `done` and `called` are the end of every segment so far, and the name of what ended then.
    """

    slicer: _Slicer
    actor: int
    starts: Sequence[int]
    labels: list[Label] = []
    actions: list[Label | None] = []
    waited_for: list[str] = []
    messages: list[int] = []
    done: list[int] = []
    called: list[str] = []

    @cached_property
    def program(self) -> Program:
        """What the actor runs."""
        return self.slicer.program(self.actor)

    @cached_property
    def ways(self) -> Ways:
        """The ways between its rank and others."""
        rank = self.slicer.timeline.actors.ranks[self.actor]
        return self.slicer.labels.ways(int(rank))

    @cached_property
    def of_entries(self) -> list[Label]:
        """The labels of its actions."""
        return self.slicer.actions(self.program)

    @property
    def said(self) -> SliceColumns:
        """What is told of the spans so far."""
        return SliceColumns(self.labels, self.actions, self.waited_for, self.messages)

    def message(self, number: int, segment: Segment, first: int, end: int, held: bool) -> None:
        """Tell an end of a message, which is span `first` of the rank."""
        use = Use(
            comm=segment.comm,
            stage=self.program.stage,
            peer_stage=segment.peer_stage,
            sends=segment.kind is SegmentKind.SEND,
        )
        carried = self.slicer.carried(self.program.stage, number)
        label = self.slicer.labels.message(use, carried, self.ways)
        if held:
            start = self.starts[first]
            self.labels.append(label)
            self.actions.append(None)
            self.waited_for.append(self._waited_for(self._before(segment), number, 0, start))
            self.messages.append(self.slicer.message_number(self.actor, number, segment))
        self.done.append(end)
        self.called.append(label.name)

    def task_list(
        self, number: int, segment: Segment, first: int, ends: Sequence[int], held: Sequence[bool]
    ) -> None:
        """Tell the tasks of a task list, which are the spans of the rank from `first` on."""
        tasks = self.program.lists[segment.task_list].tasks
        labels = self.slicer.labels.tasks(
            self.program.stage, segment.task_list, segment.kind, self.ways
        )
        action = self.of_entries[segment.entry] if segment.entry >= 0 else None
        for inner, task in enumerate(tasks):
            if held[inner]:
                inside = ((ends[i], labels[i].name) for i in reversed(task.after))
                before = inside if task.after else self._before(segment)
                start = self.starts[first + inner]
                self.labels.append(labels[inner])
                self.waited_for.append(self._waited_for(before, number, inner, start))
        count = len(self.labels) - len(self.actions)
        self.actions += [action] * count
        self.messages += [0] * count
        last = max(range(len(ends)), key=ends.__getitem__)
        self.done.append(ends[last])
        self.called.append((action or labels[last]).name)

    def _before(self, segment: Segment) -> Iterator[tuple[int, str]]:
        """End and name of the segments that a segment waits for, the last first."""
        return ((self.done[s], self.called[s]) for s in reversed(segment.after))

    def _waited_for(
        self, before: Iterable[tuple[int, str]], number: int, inner: int, start: int
    ) -> str:
        """What ended when a task started: one of those before it, or another rank's task."""
        if not start:
            return ""
        for end, name in before:
            if end == start:
                return name
        timeline = self.slicer.timeline
        place = self.actor, timeline.flat.programs[self.actor].first.item(number) + inner
        other, _ = next(p for p in waited_for(timeline, place) if timeline.end_ps(p) == start)
        return f"rank {timeline.actors.ranks[other]}"
