"""A timeline as a page draws it: one row per class of ranks, one span per action or transfer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stepsim.base.arrays import Bools, Ints, Lists, Small, bounds, ints, row_numbers
from stepsim.base.structs import Noun
from stepsim.core.flat import far_actor, tasks_apart
from stepsim.core.timeline import Timeline
from stepsim.core.write import Program, SegmentKind, TaskGraph
from stepsim.explain.critical_path import critical_path, path_runs
from stepsim.explain.report import Report
from stepsim.network.fold import Actors
from stepsim.parallel.schedules.base import ACTION_KINDS, Order
from stepsim.run.spans import UNKNOWN, Spans, TaskKind
from stepsim.show.figures.timelines import DrawnRun
from stepsim.show.palette import span_shades
from stepsim.show.tables.model import comm_words, message_way, name_ranks
from stepsim.workload.axes import ParallelAxis

_MOST_SPANS = 40_000
_MOST_TASKS = 250_000
_ACTIONS, _GRADIENTS, _MESSAGES = range(3)


def lanes_of_timeline(timeline: Timeline) -> dict[str, object]:
    """The spans of a run as a message to a page: span i is of class `of[i]`.

    Columns of `classes` say the row of a span, its lane there (one for actions, one for gradient
    reductions, one for messages), its shade, its start and the number that its name ends with, both
    beside the last span of the same row and `stem` of a name, how long it `took`, whether it is on
    the critical path, and, bit by bit, the parallel axes that it uses. `waits` are, for every span,
    how far before it those stand that it waits for. `left_out` says which rows are not shown.
    """
    return _lanes_of(timeline)


def tasks_of_timeline(
    timeline: Timeline, report: Report | None = None, *, between: tuple[int, int] | None = None
) -> dict[str, object]:
    """The tasks of a run as `lanes_of_timeline` has its actions, a lane for every stream.

    Classes have `comm`, the number in `comms` of what a transfer sends, and `alone`, how long a
    slowed task would take, in place of axes; both are -1 where a task has none. Of a run of too
    many those that run `between` two times, without what they wait for.
    """
    uses = report.comms if report else ()
    known = {(use.group, use.kind, use.size_bytes): use for use in uses}
    ops = timeline.graph.comms
    told = [comm_words(op, known.get((op.group, op.kind, op.size_bytes))) for op in ops]
    return _lanes_of(timeline, whole=False, between=between) | {"comms": told}


def _lanes_of(
    timeline: Timeline, *, whole: bool = True, between: tuple[int, int] | None = None
) -> dict[str, Any]:
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
    names = _Names.of(each for spans in tables for each in _names(spans, graph, whole=whole))
    axes = [op.axis for op in graph.comms]
    row = rows.row[kept]
    alike = row * len(names.stems) + names.stem
    spans = _joined(tables)
    streams, stream = np.unique(spans.stream, return_inverse=True)
    columns = {
        "row": row,
        "lane": _lanes(spans) if whole else stream,
        "shade": span_shades(spans, axes),
        **_timed(spans, alike),
        "stem": names.stem,
        "number": _since(names.number, alike),
        "critical": rows.on_path(timeline)[kept],
        **(
            {"axes": rows.axis_bits(graph)[kept]}
            if whole
            else {"comm": spans.group, "alone": spans.alone_ps}
        ),
    }
    of, classes = _classes(columns)
    return {
        "rows": list(_row_names(graph, actors, chosen)),
        "lanes": [tables[0].stream_words(each) for each in streams.tolist()],
        "left_out": left_out,
        "waits": None if partly else rows.waits(graph, actors),
        "of": of,
        "classes": classes | names.texts(classes["stem"], classes["number"]),
    }


def lanes_of_recorded(run: DrawnRun) -> dict[str, object]:
    """A recorded run as `lanes_of_timeline` has simulated ones; its spans stand apart."""
    spans = _joined([spans for _, spans in run.rows])
    row = np.repeat(np.arange(len(run.rows)), [len(spans) for _, spans in run.rows])
    named = ((spans.names[i], None) for _, spans in run.rows for i in spans.name.tolist())
    names = _Names.of(named)
    columns = {
        "row": row,
        "lane": np.where(spans.of_kind(TaskKind.COMPUTE), _ACTIONS, _GRADIENTS),
        "shade": span_shades(spans),
        **_timed(spans, row * len(names.stems) + names.stem),
        "stem": names.stem,
    }
    of, classes = _classes(columns)
    texts = names.texts(classes["stem"], classes["stem"])
    axis = f"{run.axis} " * bool(run.axis)
    rows = [f"{axis}{label}" for label, _ in run.rows]
    return {"rows": rows, "left_out": "", "apart": True, "of": of, "classes": classes | texts}


def times_of_timeline(timeline: Timeline) -> dict[str, object]:
    """Start and end of the spans alone, for a page that knows all else of them."""
    chosen, _ = shown_actors(timeline.graph, timeline.actors)
    spans = _joined(list(timeline.spans(timeline.actors.ranks[chosen].tolist(), whole=True)))
    columns = _timed(spans, np.zeros(len(spans), np.int64))
    return dict(zip(("of", "classes"), _classes(columns), strict=True))


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


def _classes(columns: Mapping[str, Ints]) -> tuple[list[int], dict[str, list[Any]]]:
    """Columns as the class of each row, and the columns of the classes.

    Microbatches repeat what they do, so there are few classes. For example rows `0 1`, `1 1`, `0 1`
    are of the classes 0, 1, 0, which are `0 1` and `1 1`.
    """
    rows = np.stack([*columns.values()], axis=1)
    first, number = row_numbers(rows)
    return number.tolist(), dict(zip(columns, rows[first].T.tolist(), strict=True))


_JOINED = ("stream", "kind", "phase", "entry", "group", "start_ps", "end_ps", "alone_ps")


def _joined(tables: Sequence[Spans]) -> Spans:
    """One table of all rows, with what their lanes, shades and times follow from."""
    columns = {name: [getattr(spans, name) for spans in tables] for name in _JOINED}
    return Spans.of({name: np.concatenate(parts) for name, parts in columns.items()}, ())


def _timed(spans: Spans, alike: Ints) -> dict[str, Ints]:
    """How much later each span starts than the last one alike, and how long it takes, in ps."""
    return {"start": _since(spans.start_ps, alike), "took": spans.end_ps - spans.start_ps}


def _since(values: Ints, alike: Ints) -> Ints:
    """By how much each value is above the last one of equal `alike`, or above 0.

    For example 5, 1, 7, 4 of `alike` 0, 1, 0, 1 are 5, 1, 2, 3.
    """
    order = np.argsort(alike, kind="stable")
    before, after = order[:-1], order[1:]
    same = alike[before] == alike[after]
    last = np.zeros_like(values)
    last[after[same]] = values[before[same]]
    return values - last


class _Names(Noun):
    """What spans are called: span i is `stems[stem[i]]`, then `number[i]` if the stem is `counted`.

    For example `0F1`, `send to stage 2` and `after the pipeline` have the stems `0F`, `send to
    stage ` and `after the pipeline`, of which the last is not counted.
    """

    stems: list[str]
    counted: set[int]
    stem: Ints
    number: Ints

    @classmethod
    def of(cls, named: Iterable[tuple[str, int | None]]) -> "_Names":
        """The names of spans: a stem, and the number behind it where it is counted."""
        names, known = list(named), dict[str, int]()
        stem = [known.setdefault(stem, len(known)) for stem, _ in names]
        return cls(
            stems=list(known),
            counted={known[stem] for stem, number in names if number is not None},
            stem=np.array(stem),
            number=np.array([number or 0 for _, number in names]),
        )

    def texts(self, stems: Sequence[int], numbers: Sequence[int]) -> dict[str, list[Any]]:
        """Columns of stems as texts, and of numbers without those of stems that are not counted."""
        pairs = zip(stems, numbers, strict=True)
        return {
            "stem": [self.stems[stem] for stem in stems],
            "number": [number if stem in self.counted else None for stem, number in pairs],
        }


def _names(spans: Spans, graph: TaskGraph, *, whole: bool) -> Iterator[tuple[str, int | None]]:
    """What every span of a rank is called: a stem, and a number behind it."""
    actions = list(_action_names(Order.of(spans.entries or ())))
    ways = {kind.value: message_way(kind) for kind in (TaskKind.SEND, TaskKind.RECV)}
    collective = TaskKind.COLLECTIVE.value
    columns = (spans.kind, spans.name, spans.entry, spans.peer // graph.plan.stage_ranks)
    for kind, name, entry, peer in zip(*(column.tolist() for column in columns), strict=True):
        if kind in ways:
            yield ways[kind], peer
        elif kind == collective or not whole:
            yield spans.names[name], None
        else:
            yield actions[entry] if entry != UNKNOWN else ("after the pipeline", None)


def _action_names(order: Order) -> Iterator[tuple[str, int | None]]:
    """The token of every entry without its microbatch, and that; a pair has no such number."""
    paired: Bools = order.kind[:, 1:].max(axis=1, initial=UNKNOWN) >= 0
    columns = (order.kind[:, 0], order.stage[:, 0], order.microbatch[:, 0], paired)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for entry, (kind, stage, microbatch, is_pair) in enumerate(rows):
        if is_pair:
            yield order[entry].token, None
        else:
            yield f"{stage}{ACTION_KINDS[kind]}", microbatch


class _Rows(Noun):
    """The actors that are shown, with their programs: spans of row i begin with `first[i]`.

    Segment s of row i begins with span `places[i][s]` of the row, and `after[i]` are its waits.
    """

    actors: list[int]
    programs: list[Program]
    places: list[Small]
    after: list[Lists]
    first: Ints
    whole: bool

    @classmethod
    def of(cls, graph: TaskGraph, actors: Actors, chosen: list[int], *, whole: bool) -> "_Rows":
        """The rows of some actors, of their `whole` segments or of tasks."""
        stages = actors.stages[chosen].tolist()
        apart = {stage: tasks_apart(graph.programs[stage], graph, whole=whole) for stage in stages}
        laid = [apart[stage] for stage in stages]
        return cls(
            actors=chosen,
            programs=[tasks.program for tasks in laid],
            places=[tasks.first for tasks in laid],
            after=[tasks.after for tasks in laid],
            first=np.cumsum([0, *map(len, laid)]),
            whole=whole,
        )

    @property
    def row(self) -> Ints:
        """The row of every span."""
        return np.repeat(np.arange(len(self.actors)), np.diff(self.first))

    def on_path(self, timeline: Timeline) -> Ints:
        """1 for every span on the critical path, else 0."""
        ranks = timeline.actors.ranks[self.actors].tolist()
        rows = {rank: row for row, rank in enumerate(ranks)}
        marks = np.zeros(self.first[-1], np.int64)
        for run in path_runs(timeline, critical_path(timeline)):
            row = rows.get(run.rank)
            if row is not None:
                inner = 0 if self.whole else np.maximum(run.tasks, 0)
                marks[self.first[row] + self.places[row][run.segments][:, None] + inner] = 1
        return marks

    def axis_bits(self, graph: TaskGraph) -> Ints:
        """The parallel axes that every segment uses: bit i is axis i."""
        return np.concatenate([_axis_bits(graph, program) for program in self.programs])

    def waits(self, graph: TaskGraph, actors: Actors) -> dict[str, object]:
        """How far before every span those stand that it waits for, in classes.

        Spans wait for earlier ones of their row, a receipt for the send as well.
        """
        rows = list(zip(self.after, self.first.tolist(), strict=False))
        sends = [self._sends(row, graph, actors) for row in range(len(self.actors))]
        after = [waits.owners.astype(np.int64) + begin for waits, begin in rows]
        before = [waits.values.astype(np.int64) + begin for waits, begin in rows]
        spans = np.concatenate([*after, *(receipts for receipts, _ in sends)])
        far = spans - np.concatenate([*before, *(sent for _, sent in sends)])
        order = np.argsort(spans, kind="stable")
        counts = np.bincount(spans, minlength=int(self.first[-1]))
        known: dict[tuple[int, ...], int] = {}
        lists = Lists(bounds(counts), far[order].astype(np.int32)).tolist()
        of = [known.setdefault(back, len(known)) for back in lists]
        return {"of": of, "classes": {"back": list(known)}}

    def _sends(self, row: int, graph: TaskGraph, actors: Actors) -> tuple[Ints, Ints]:
        """The receipts of a row whose sends are shown, and these."""
        program, actor = self.programs[row], self.actors[row]
        row_of = {actor: row for row, actor in enumerate(self.actors)}
        senders = {
            stage: row_of.get(far_actor(actor, stage, actors, graph.plan), UNKNOWN)
            for stage in program.senders
        }
        receipts = np.flatnonzero(program.kind == SegmentKind.RECV)
        peers = zip(
            program.peer_stage[receipts].tolist(), program.peer[receipts].tolist(), strict=True
        )
        sent = ints(
            [
                self.first[s] + self.places[s][far] if (s := senders[stage]) >= 0 else UNKNOWN
                for stage, far in peers
            ]
        )
        shown = sent >= 0
        return (self.first[row] + self.places[row][receipts])[shown], sent[shown]


def _axis_bits(graph: TaskGraph, program: Program) -> Ints:
    """The parallel axes that every segment of a stage uses: bit i is axis i."""
    axes, bits = list(ParallelAxis), []
    for look in program.looks:
        comms = program.lists[look.task_list].comms if look.task_list >= 0 else [program.message]
        used = {axes.index(graph.comms[comm].axis) for comm in comms}
        bits.append(sum(1 << axis for axis in used))
    of_segments: Ints = np.array(bits)[program.look]
    return of_segments


def _row_names(graph: TaskGraph, actors: Actors, chosen: Sequence[int]) -> Iterator[str]:
    """Whom a row stands for."""
    per_stage = len(chosen) <= graph.plan.pp
    for actor in chosen:
        words = f"stage {int(actors.stages[actor])}"
        if not per_stage:
            words += f", {name_ranks(np.flatnonzero(actors.actor_of == actor).tolist())}"
        yield words


def _lanes(spans: Spans) -> Ints:
    """The lane of every span."""
    messages = np.where(spans.of_kind(TaskKind.SEND, TaskKind.RECV), _MESSAGES, _ACTIONS)
    return np.where(spans.kind == TaskKind.COLLECTIVE, _GRADIENTS, messages)
