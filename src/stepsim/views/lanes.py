"""A timeline as a page draws it: one row per class of ranks, one span per action or transfer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from stepsim.base.arrays import Bools, Ints, Lists, bounds, ints, rows_of
from stepsim.base.axes import ParallelAxis
from stepsim.base.structs import Noun, Numbers, Values, replace
from stepsim.core.flat import Tasks, met_messages, tasks_of
from stepsim.core.path import path_runs
from stepsim.core.timeline import Timeline
from stepsim.core.write import TaskGraph
from stepsim.explain.report import Lanes, Report, ResultDocument
from stepsim.network.fold import Actors
from stepsim.parallel.schedules import Action
from stepsim.run.spans import UNKNOWN, Spans, TaskKind
from stepsim.show.figures.timelines import DrawnRun
from stepsim.show.frames import Columns, columns_of_rows
from stepsim.show.palette import span_shades
from stepsim.step.prepared import SimulatedStep
from stepsim.views.words import comm_words, name_ranks

_MOST_SPANS = 40_000
_MOST_TASKS = 250_000
_ACTIONS, _GRADIENTS, _MESSAGES = range(3)


def lanes_of_timeline(
    timeline: Timeline, *, whole: bool = True, between: tuple[int, int] | None = None
) -> Values:
    """The spans of a run as a message to a page: span i is of class `of[i]`.

    Columns of `classes` say the row of a span, its lane there (one for actions, one for gradient
    reductions, one for messages), its shade, how long after the span before it starts and how long
    it `took`, whether it is on the critical path, and, bit by bit, the parallel axes that it uses.
    It is called by its `stem`, and where it is `counted` by a number behind it, which is so much
    above that of the last counted span. `waits` are classes of how far before a span those stand
    that it waits for. `left_out` says which rows are not shown. What is not `whole` is of tasks, as
    `tasks_of_timeline` says.
    """
    graph, actors = timeline.graph, timeline.actors
    chosen, left_out = shown_actors(graph, actors)
    rows = _Rows.of(graph, actors, chosen, whole=whole)
    partly = rows.first[-1] > _MOST_TASKS
    if partly and between is None:
        return {"too_many": True}
    tables = list(timeline.spans(actors.ranks[chosen].tolist(), whole=whole))
    kept: Bools | slice = slice(None)
    if partly and between:
        running = [(spans.end_ps > between[0]) & (spans.start_ps < between[1]) for spans in tables]
        tables = [spans.taken(which) for spans, which in zip(tables, running, strict=True)]
        kept = np.concatenate(running)
        if kept.sum() > _MOST_TASKS:
            return {"too_many": True}
    spans = Spans.joined(*tables)
    lane, lanes = _lanes(spans, whole=whole)
    columns = _columns(tables, spans, lane, [op.axis for op in graph.comms])
    columns["critical"] = rows.on_path(timeline)[kept]
    if whole:
        columns["axes"] = rows.axis_bits(graph)[kept]
    else:
        columns |= {"comm": spans.group, "alone": spans.alone_ps}
    names = _counted(each for spans in tables for each in _names(spans, whole=whole))
    return {
        "rows": list(_row_names(graph, actors, chosen)),
        "lanes": lanes,
        "left_out": left_out,
        "waits": None if partly else _classes({}, {"back": rows.waits(graph, actors)}),
        **_classes(columns, names),
    }


def stored(step: SimulatedStep) -> ResultDocument:
    """The document of a step with the spans that a page draws, where they are not too many."""
    lanes = lanes_of_timeline(step.timeline)
    timeline = msgspec.convert(lanes, Lanes) if "classes" in lanes else None
    return replace(step.document(), timeline=timeline)


def tasks_of_timeline(
    timeline: Timeline, report: Report | None = None, *, between: tuple[int, int] | None = None
) -> dict[str, object]:
    """The tasks of a run as `lanes_of_timeline` has its actions, and what their `lanes` are called.

    Classes have `comm`, the number in `comms` of what a transfer sends, and `alone`, how long a
    slowed task would take, in place of axes; both are -1 where a task has none. Of a run of too
    many those that run `between` two times, without what they wait for.
    """
    told = [comm_words(op, report.use_of(op) if report else None) for op in timeline.graph.comms]
    return lanes_of_timeline(timeline, whole=False, between=between) | {"comms": told}


def lanes_of_recorded(run: DrawnRun) -> dict[str, object]:
    """A recorded run as `lanes_of_timeline` has simulated ones; its spans stand apart."""
    labels, tables = zip(*run.rows, strict=True)
    spans = Spans.joined(*tables)
    lane = np.where(spans.of_kind(TaskKind.COMPUTE), _ACTIONS, _GRADIENTS)
    columns = _columns(tables, spans, lane)
    names = _counted((spans.names[i], None) for i in spans.name.tolist())
    rows = [f"{run.axis} {label}" if run.axis else label for label in labels]
    return {"rows": rows, "left_out": "", "apart": True, **_classes(columns, names)}


def times_of_timeline(timeline: Timeline) -> dict[str, object]:
    """Start and end of the spans alone, for a page that knows all else of them."""
    chosen, _ = shown_actors(timeline.graph, timeline.actors)
    spans = Spans.joined(*timeline.spans(timeline.actors.ranks[chosen].tolist(), whole=True))
    return _classes(_times(spans), {})


def shown_actors(graph: TaskGraph, actors: Actors) -> tuple[list[int], str]:
    """Actors that are shown: one per class of ranks, else one per stage, else of some stages."""
    sizes = [len(program) for program in graph.programs]
    stages = actors.stages.tolist()
    if sum(sizes[stage] for stage in stages) <= _MOST_SPANS:
        return list(range(len(actors))), ""
    firsts = [stages.index(stage) for stage in range(graph.plan.pp)]
    stride = -(-sum(sizes) // _MOST_SPANS)
    shown = firsts[::stride]
    stages = "of every stage" if stride == 1 else f"of {len(shown)} of {len(firsts)} stages"
    return shown, f"first rank {stages}"


def _classes(columns: Mapping[str, Ints], lists: Columns) -> Values:
    """Columns of spans as the class of each, and the columns of the classes.

    Microbatches repeat what they do, so there are few classes. For example rows `0 1`, `1 1`, `0 1`
    are of the classes 0, 1, 0, which are `0 1` and `1 1`.
    """
    every = {name: column.tolist() for name, column in columns.items()} | dict(lists)
    known: dict[tuple[Any, ...], int] = {}
    of = [known.setdefault(row, len(known)) for row in zip(*every.values(), strict=True)]
    return {"of": of, "classes": columns_of_rows(every, known)}


def _counted(names: Iterable[tuple[str, int | None]]) -> Columns:
    """Stems of names, and how much the number behind each is above the last one, None without."""
    found, last = list[tuple[str, int | None]](), 0
    for stem, number in names:
        found.append((stem, None if number is None else number - last))
        last = last if number is None else number
    return columns_of_rows(("stem", "number"), found)


def _columns(
    tables: Sequence[Spans], spans: Spans, lane: Ints, axes: Sequence[ParallelAxis] | None = None
) -> dict[str, Ints]:
    """What is told of all spans: those of the tables of all rows, and all of them in one."""
    return {
        "row": np.repeat(np.arange(len(tables)), [*map(len, tables)]),
        "lane": lane,
        "shade": span_shades(spans, axes),
        **_times(spans),
    }


def _times(spans: Spans) -> dict[str, Ints]:
    """How long after the one before it each span starts, and how long it takes, in ps."""
    return {"start": np.diff(spans.start_ps, prepend=0), "took": spans.duration_ps}


def _names(spans: Spans, *, whole: bool) -> Iterator[tuple[str, int | None]]:
    """What every span of a rank is called: a stem, and a number behind it, of a whole action."""
    actions = [
        (f"{each.stage}{each.kind}", each.microbatch)
        if isinstance(each, Action)
        else (each.token, None)
        for each in spans.entries or ()
    ]
    entries = np.where(spans.of_kind(TaskKind.COMPUTE) & whole, spans.entry, UNKNOWN)
    for name, entry in rows_of(spans.name, entries):
        yield actions[entry] if entry != UNKNOWN else (spans.names[name], None)


class _Rows(Noun):
    """The actors that are shown, with their tasks: spans of row i begin with `first[i]`.

    A span is a task, or where `whole` a segment.
    """

    actors: list[int]
    tasks: list[Tasks]
    first: Ints
    whole: bool

    @classmethod
    def of(cls, graph: TaskGraph, actors: Actors, chosen: list[int], *, whole: bool) -> "_Rows":
        """The rows of some actors, of their `whole` segments or of tasks."""
        stages = actors.stages[chosen].tolist()
        apart = {stage: tasks_of(graph.programs[stage], graph, whole=whole) for stage in stages}
        tasks = [apart[stage] for stage in stages]
        return cls(actors=chosen, tasks=tasks, first=np.cumsum([0, *map(len, tasks)]), whole=whole)

    def on_path(self, timeline: Timeline) -> Ints:
        """1 for every span on the critical path, else 0."""
        rows = {actor: row for row, actor in enumerate(self.actors)}
        marks = np.zeros(self.first[-1], np.int64)
        for run in path_runs(timeline):
            row = rows.get(run.actor)
            if row is not None:
                inner = 0 if self.whole else np.maximum(run.tasks, 0)
                first = self.first[row] + self.tasks[row].first[run.segments]
                marks[first[:, None] + inner] = 1
        return marks

    def axis_bits(self, graph: TaskGraph) -> Ints:
        """The parallel axes that every segment uses: bit i is axis i."""
        axes, found = list(ParallelAxis), []
        bits = [1 << axes.index(op.axis) for op in graph.comms]  # those of several axes add up
        for program in (tasks.program for tasks in self.tasks):
            looks = (
                program.lists[look.task_list].comms if look.task_list >= 0 else [program.message]
                for look in program.looks
            )
            used = ints([sum({bits[comm] for comm in comms}) for comms in looks])
            found.append(used[program.look])
        return np.concatenate(found)

    def waits(self, graph: TaskGraph, actors: Actors) -> list[Numbers]:
        """How far before every span those stand that it waits for.

        Spans wait for earlier ones of their row, a receipt for the send as well.
        """
        rows = zip(self.tasks, self.first, strict=False)
        own = ((each.after.owners + begin, each.after.values + begin) for each, begin in rows)
        met = met_messages(self.actors, self.tasks, self.first, actors, graph.plan)
        spans, before = map(np.concatenate, zip(*own, *met, strict=True))
        far = spans - before
        order = np.argsort(spans, kind="stable")
        counts = np.bincount(spans, minlength=int(self.first[-1]))
        return Lists(bounds(counts), far[order].astype(np.int32)).tolist()


def _row_names(graph: TaskGraph, actors: Actors, chosen: Sequence[int]) -> Iterator[str]:
    """Whom a row stands for."""
    per_stage = len(chosen) <= graph.plan.pp
    for actor in chosen:
        words = f"stage {int(actors.stages[actor])}"
        if not per_stage:
            words += f", {name_ranks(np.flatnonzero(actors.actor_of == actor).tolist())}"
        yield words


def _lane_words(stream: str) -> str:
    """The lane of a stream: kernels, messages by their direction, else one of its own."""
    if stream.endswith("recv"):
        return "receipts"
    if stream.startswith("pp") or stream == "eager":
        return "sends"
    return "kernels" if stream == "compute" else stream


def _lanes(spans: Spans, *, whole: bool) -> tuple[Ints, list[str]]:
    """The lane of every span, and what lanes are called, of `whole` segments what streams are."""
    streams, stream = np.unique(spans.stream, return_inverse=True)
    words = [*map(spans.stream_words, streams.tolist())]
    if whole:
        messages = np.where(spans.is_message, _MESSAGES, _ACTIONS)
        return np.where(spans.kind == TaskKind.COLLECTIVE, _GRADIENTS, messages), words
    words = list(map(_lane_words, words))
    lanes = list(dict.fromkeys(words))
    return ints([*map(lanes.index, words)])[stream], lanes
