"""Simulated and recorded runs told as processes: a process for every rank or class of ranks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np

from stepsim.base.arrays import bins, places_by, rows_of
from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun, Numbers, replace
from stepsim.base.units import format_time_ps
from stepsim.core.ends import freed_by
from stepsim.core.flat import Tasks, tasks_of
from stepsim.core.write import Program, SegmentKind
from stepsim.documents.trace import Category, Curves, Fact, Label, Process, Slice, Thread
from stepsim.explain.counters import link_rates, live_activations
from stepsim.explain.memory import memory_curves
from stepsim.measured.profile.events import Profile
from stepsim.run.spans import UNKNOWN, Spans, TaskKind
from stepsim.step.prepared import SimulatedStep
from stepsim.views.labels import Comms, actions_of, labels_of
from stepsim.views.window import WHOLE, Window
from stepsim.views.words import name_ranks
from stepsim.workload.plan import Ranks

# What the slice of the whole step says of its report.
_TOLD = (
    *("workload", "topology", "schedule", "p2p", "contention", "npus", "microbatches"),
    *("step_time_ps", "pipeline_time_ps", "bubble_fraction", "warnings"),
)
_GB = 1e9
_GIB = 2**30


class TracedRun(Noun, kw_only=False):
    """A step to be told: all its simulated ranks, or those that stand for `ranks`.

    What reaches into the `window` is told, whole. `name` tells the runs of one trace apart. Raises
    PlanError for ranks the job does not have, and for a window behind the step.
    """

    step: SimulatedStep
    ranks: Sequence[int] | None = None
    window: Window = WHOLE
    name: str = ""

    def __post_init__(self) -> None:
        report = self.step.report
        for rank in self.ranks or ():
            if not 0 <= rank < report.npus:
                most = report.npus - 1
                raise PlanError(f"ranks: the job has no rank {rank}: expected 0 to {most}")
        self.window.check(f"the step{self.name and ' of '}{self.name}", report.step_time_ps)

    def facts(self) -> dict[str, Fact]:
        """What was run, what came out, what was assumed and warned of."""
        report = self.step.report
        return {
            **{name: getattr(report, name) for name in _TOLD},
            **report.plan,
            "settings": tuple(f"{name} {value}" for name, value in report.settings.items()),
            "assumptions": tuple(self._assumptions()),
        }

    def shown(self) -> dict[int, Ranks]:
        """The actors that are shown, and the ranks for which each is."""
        asked = np.arange(self.step.report.npus) if self.ranks is None else np.array(self.ranks)
        asked = np.sort(asked.astype(np.int64))
        actors = self.step.timeline.actors
        places = places_by(actors.actor_of[asked], len(actors))
        return {actor: asked[some] for actor, some in enumerate(places) if len(some)}

    def comms(self) -> Comms:
        """What is known of the communications of the step, by their numbers."""
        told = list[dict[str, Fact]]()
        for op in self.step.timeline.graph.comms:
            use = self.step.report.use_of(op)
            how: dict[str, Fact] = (
                {"ranks": use.ranks, "algorithm": " or ".join(use.algorithms)} if use else {}
            )
            told.append({"group": op.group, "collective": op.kind} | how)
        return told

    @property
    def messages(self) -> int:
        """How many numbers its messages take at most."""
        return sum(self._sizes())

    @property
    def slices(self) -> int:
        """How many slices are told of tasks; those of actions come on top."""
        timeline = self.step.timeline
        ranks = timeline.actors.ranks
        told = (timeline.tasks(int(ranks[actor])) for actor in self.shown())
        return sum(int(self.window.holds(times.start, times.end).sum()) for times in told)

    def processes(self, first_message: int) -> Iterator[Process]:
        """The step as a whole, then a process for every shown class of ranks, in order."""
        yield _step(self)
        shown = self.shown()
        firsts = accumulate(self._sizes(), initial=first_message)
        first_messages = dict(zip(shown, firsts, strict=False))
        timeline = self.step.timeline
        tables = timeline.spans(timeline.actors.ranks[list(shown)].tolist())
        for (actor, ranks), spans in zip(shown.items(), tables, strict=True):
            teller = _Teller(
                run=self,
                actor=actor,
                spans=spans,
                first_messages=first_messages,
            )
            yield Process(
                name=_titled(self, _ranks_name(self, actor, ranks)),
                threads=_threads(teller),
                counters=_counters(self, int(ranks[0])),
            )

    def _sizes(self) -> list[int]:
        """How many segments every shown actor runs."""
        timeline = self.step.timeline
        stages = timeline.actors.stages[list(self.shown())].tolist()
        return [len(timeline.graph.programs[stage]) for stage in stages]

    def _assumptions(self) -> Iterator[str]:
        actors, npus = len(self.step.timeline.actors), self.step.report.npus
        if actors < npus:
            yield (
                f"{actors} of {npus} ranks are simulated, the others behave alike: a process "
                "stands for all ranks of its class"
            )
        yield "the bytes of a transfer are counted evenly over the time it takes"
        yield "an activation is live from the start of its forward to the end of its backward"


class TracedProfile(Noun):
    """A profile to be told: all its ranks, or `ranks`; what reaches into the `window`.

    Raises PlanError for ranks that were not recorded, and for a window behind the last operation.
    """

    profile: Profile
    ranks: Numbers | None = None
    window: Window = WHOLE

    def __post_init__(self) -> None:
        known = {ran.rank for ran in self.profile.ranks}
        for rank in self.ranks or ():
            if rank not in known:
                raise PlanError(
                    f"ranks: {self.profile.source} has no rank {rank}: expected one of "
                    f"{', '.join(map(str, sorted(known)[:16]))}"
                )
        self.window.check(self.profile.source, int(self.profile.events.end_ps.max()))

    @property
    def messages(self) -> int:
        """How many numbers its messages take at most."""
        return bins(self.profile.events.meeting)

    @property
    def slices(self) -> int:
        """How many operations are told."""
        return len(self._shown())

    def processes(self, first_message: int) -> Iterator[Process]:
        """A process for every rank, in order."""
        spans = self._shown()
        for rank in np.unique(spans.rank).tolist():
            table = spans.taken(spans.rank == rank)
            stage, labels = int(table.stage[0]), labels_of(table)
            met = table.is_message & (table.meeting != UNKNOWN)
            messages = np.where(met, table.meeting + first_message, 0)
            slices = [
                Slice(label, start, end, message=message)
                for label, start, end, message in rows_of(
                    labels, table.start_ps, table.end_ps, messages
                )
            ]
            yield Process(
                name=f"rank {rank}" + (f", stage {stage}" if stage != UNKNOWN else ""),
                threads=stream_threads(table, slices),
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
    """The processes of a trace, one at a time, run by run."""
    first_message = 1
    for run in runs:
        yield from run.processes(first_message)
        first_message += run.messages


def _counters(run: TracedRun, rank: int) -> dict[str, Curves]:
    """Live activations of a rank, and its bytes where it is known what they are for."""
    timeline, memory = run.step.timeline, run.step.memory
    counters = {"live activations": live_activations(timeline, rank)}
    if memory:
        found = memory_curves(timeline, memory.held, rank)
        counters["memory (GiB)"] = replace(found, values=found.values / _GIB)
    return {name: run.window.of_curves(curves) for name, curves in counters.items()}


def _step(run: TracedRun) -> Process:
    """The step as one slice that says all that is known of the run, and the use of its links."""
    report, window = run.step.report, run.window
    label = Label(name=report.workload, category=Category.STEP, facts=run.facts())
    whole = Slice(label, window.start_ps, min(report.step_time_ps, window.end_ps))
    part = f", {window} of it" if window != WHOLE else ""
    rates = link_rates(run.step.timeline, run.step.prices)
    counters = {}
    for column, link in enumerate(report.links):
        if link.used:
            values = rates.values[:, column : column + 1] / (link.used * _GB)
            shown = Curves(names=("GB/s per link in use",), time_ps=rates.time_ps, values=values)
            counters[link.name] = run.window.of_curves(shown)
    return Process(
        name=_titled(run, f"step of {format_time_ps(report.step_time_ps)}{part}"),
        threads=[Thread(name="step", slices=[whole])],
        counters=counters,
    )


def _titled(run: TracedRun, name: str) -> str:
    return f"{run.name}: {name}" if run.name else name


def _ranks_name(run: TracedRun, actor: int, ranks: Ranks) -> str:
    """The ranks that a process stands for; all that were asked for are named.

    Zeros go first, for Perfetto sorts processes of equally many slices by name.
    """
    digits, alike = len(str(run.step.report.npus - 1)), int(run.step.timeline.actors.counts[actor])
    names = name_ranks(ranks.tolist(), digits, *([] if run.ranks is None else [len(ranks)]))
    some = f"{len(ranks)} of " if len(ranks) < alike else ""
    told = f" ({some}{alike} alike)" if alike > 1 else ""
    stage = run.step.timeline.graph.plan.stage_of(int(ranks[0]))
    return f"{names}{told}, stage {stage}"


def _threads(teller: "_Teller") -> Iterator[Thread]:
    """The schedule of a rank, then its streams."""
    spans, actions = teller.spans, actions_of(teller.program.entries)
    slices = teller.schedule(actions)
    if slices:
        yield Thread(name="schedule", slices=slices)
    shown = spans.taken(teller.run.window.holds(spans.start_ps, spans.end_ps))
    yield from stream_threads(shown, teller.slices(actions))


def stream_threads(spans: Spans, told: Sequence[Slice]) -> Iterator[Thread]:
    """The streams of a rank by start; spans that overlap on one, such as messages, have lanes."""
    for stream in np.unique(spans.stream).tolist():
        places = spans.in_time(np.flatnonzero(spans.stream == stream))
        slices = [told[place] for place in places.tolist()]
        name = spans.stream_words(stream) or "operations"
        lanes = lanes_of(slices)
        for lane, some in enumerate(lanes, 1):
            told_apart = f" {lane}" * (len(lanes) > 1)
            yield Thread(name=name + told_apart, slices=some)


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


class _Teller(Noun, eq=False):
    """Tells the spans of an actor that reach into the window of a run.

    `first_messages` has the number of the first message of every actor that is shown.
    """

    run: TracedRun
    actor: int
    spans: Spans
    first_messages: Mapping[int, int]

    @property
    def program(self) -> Program:
        """What the actor runs."""
        return self.run.step.timeline.flat.programs[self.actor].program

    def schedule(self, actions: Sequence[Label]) -> list[Slice]:
        """The actions of a rank, and what it runs after the pipeline."""
        program, spans = self.program, self.spans
        slices = [Slice(*each) for each in rows_of(actions, *spans.actions())]
        after = Label(
            name="optimizer and gradient sync",
            category=Category.PER_STEP,
            facts={"stage": program.stage},
        )
        for number in np.flatnonzero(program.kind == SegmentKind.PER_STEP).tolist():
            tasks = spans.taken(spans.segment == number)
            slices.append(Slice(after, int(tasks.start_ps.min()), int(tasks.end_ps.max())))
        return [each for each in slices if self.run.window.holds(each.start_ps, each.end_ps)]

    def slices(self, actions: Sequence[Label]) -> list[Slice]:
        """The spans as slices, which have the labels of their `actions` beside their own."""
        spans, tasks = self.spans, tasks_of(self.program, self.run.step.timeline.graph)
        labels = labels_of(spans, self.run.comms())
        is_message = spans.is_message.tolist()
        entries = spans.entry.tolist()
        of_spans = [actions[entry] if entry != UNKNOWN else None for entry in entries]
        said = [(of or own).name for own, of in zip(labels, of_spans, strict=True)]
        held = np.flatnonzero(self.run.window.holds(spans.start_ps, spans.end_ps)).tolist()
        waited_for = self._waited_for(tasks, held, [each.name for each in labels], said)
        messages = (self._message(i) if is_message[i] else 0 for i in held)
        starts, ends, alone = (
            each.tolist() for each in (spans.start_ps, spans.end_ps, spans.alone_ps)
        )
        return [
            Slice(labels[i], starts[i], ends[i], of_spans[i], waited, message, alone[i])
            for i, waited, message in zip(held, waited_for, messages, strict=True)
        ]

    def _message(self, place: int) -> int:
        """The number of a message, 0 where its other end is not shown."""
        segment = self.spans.segment.item(place)
        other = self.run.step.timeline.actors.of(self.spans.peer.item(place))
        if other not in self.first_messages:
            return 0
        if self.spans.kind[place] == TaskKind.SEND:
            return self.first_messages[self.actor] + segment
        return self.first_messages[other] + self.program.peer.item(segment)

    def _waited_for(
        self, tasks: Tasks, held: list[int], names: Sequence[str], said: Sequence[str]
    ) -> Iterator[str]:
        """What ended when each span that is `held` started: one of the rank, or another rank's.

        A span goes by its name within its segment, elsewhere by what is `said` of what ends last.
        """
        spans = self.spans
        ended = freed_by(tasks.after, spans.start_ps, spans.end_ps)
        where = rows_of(spans.start_ps[held], ended[held], tasks.segment[held], tasks.inner[held])
        segments = tasks.segment.tolist()
        for start_ps, before, segment, inner in where:
            if not start_ps:
                yield ""
            elif before < 0:
                yield self._other(segment, inner)
            else:
                yield (names if segments[before] == segment else said)[before]

    def _other(self, segment: int, inner: int) -> str:
        """The rank whose task ended when one of this rank started, `inner` of a segment or -1."""
        timeline = self.run.step.timeline
        first = timeline.flat.programs[self.actor].first.item(segment)
        other, _ = timeline.freed_by((self.actor, first + max(inner, 0)))
        return f"rank {timeline.actors.ranks[other]}"
