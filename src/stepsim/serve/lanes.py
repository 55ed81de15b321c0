"""A timeline as a page draws it: one row per class of ranks, one span per action or transfer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from stepsim.base.arrays import Bools, Ints, Lists, bounds, row_numbers
from stepsim.base.structs import Noun
from stepsim.core.flat import far_actor
from stepsim.core.timeline import Timeline
from stepsim.core.write import Program, SegmentKind, TaskGraph
from stepsim.explain.critical_path import critical_path
from stepsim.explore.batch import Batch
from stepsim.network.fold import Actors
from stepsim.parallel.schedules.base import ACTION_KINDS, Order
from stepsim.run.spans import UNKNOWN, Spans, TaskKind
from stepsim.show.palette import span_shades
from stepsim.show.tables.model import message_way, name_ranks
from stepsim.workload.axes import ParallelAxis

_MOST_SPANS = 40_000
_ACTIONS, _GRADIENTS, _MESSAGES = range(3)


def lanes_of_timeline(timeline: Timeline) -> dict[str, object]:
    """The spans of a run as a message to a page: span i is of class `of[i]`.

    Columns of `classes` say the row of a span, its lane there (one for actions, one for gradient
    reductions, one for messages), its shade, its start and the number that its name ends with, both
    beside the last span of the same row and `stem` of a name, how long it `took`, whether it is on
    the critical path, and, bit by bit, the parallel axes that it uses. `waits` are, for every span,
    how far before it those stand that it waits for. `left_out` says which rows are not shown.
    """
    graph, actors = timeline.graph, timeline.actors
    chosen, left_out = shown_actors(graph, actors)
    rows = _Rows.of(graph, actors, chosen)
    tables = list(timeline.spans(actors.ranks[chosen].tolist(), whole=True))
    names, axes = _Names.of(tables, graph), [op.axis for op in graph.comms]
    alike = rows.row * len(names.stems) + names.stem
    spans = _joined(tables)
    columns = {
        "row": rows.row,
        "lane": _lanes(spans),
        "shade": span_shades(spans, axes),
        **_timed(spans, alike),
        "stem": names.stem,
        "number": _since(names.number, alike),
        "critical": rows.on_path(timeline),
        "axes": np.concatenate([_axis_bits(graph, program) for program in rows.programs]),
    }
    of, classes = _classes(columns)
    return {
        "rows": list(_row_names(graph, actors, chosen)),
        "left_out": left_out,
        "waits": rows.waits(graph, actors),
        "of": of,
        "classes": classes | names.texts(classes["stem"], classes["number"]),
    }


def times_of_batch(batch: Batch, start: Ints, end: Ints) -> dict[str, object]:
    """Start and end of the spans of one scenario alone, for a page that knows all else of them.

    `start` and `end` are those of the nodes of the batch, in ps.
    """
    nodes = len(batch.flat)
    timeline = Timeline(flat=batch.flat, start=start[:nodes], end=end[:nodes])
    chosen, _ = shown_actors(timeline.graph, timeline.actors)
    tables = list(timeline.spans(timeline.actors.ranks[chosen].tolist(), whole=True))
    spans = _joined(tables)
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


_JOINED = ("kind", "phase", "entry", "group", "start_ps", "end_ps", "alone_ps")


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
    def of(cls, tables: Sequence[Spans], graph: TaskGraph) -> "_Names":
        """The names of the spans of some rows."""
        names = [name for spans in tables for name in _names(spans, graph)]
        known: dict[str, int] = {}
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


def _names(spans: Spans, graph: TaskGraph) -> Iterator[tuple[str, int | None]]:
    """What every span of a rank is called: a stem, and a number behind it."""
    actions = list(_action_names(Order.of(spans.entries or ())))
    ways = {kind.value: message_way(kind) for kind in (TaskKind.SEND, TaskKind.RECV)}
    collective = TaskKind.COLLECTIVE.value
    columns = (spans.kind, spans.name, spans.entry, spans.peer // graph.plan.stage_ranks)
    for kind, name, entry, peer in zip(*(column.tolist() for column in columns), strict=True):
        if kind in ways:
            yield ways[kind], peer
        elif kind == collective:
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
    """The actors that are shown, with their programs: spans of row i begin with `first[i]`."""

    actors: list[int]
    programs: list[Program]
    first: Ints

    @classmethod
    def of(cls, graph: TaskGraph, actors: Actors, chosen: list[int]) -> "_Rows":
        """The rows of some actors."""
        programs = [graph.programs[stage] for stage in actors.stages[chosen].tolist()]
        first = np.cumsum([0, *map(len, programs)])
        return cls(actors=chosen, programs=programs, first=first)

    @property
    def row(self) -> Ints:
        """The row of every span."""
        return np.repeat(np.arange(len(self.actors)), np.diff(self.first))

    def on_path(self, timeline: Timeline) -> Ints:
        """1 for every span on the critical path, else 0."""
        ranks = timeline.actors.ranks[self.actors].tolist()
        first = dict(zip(ranks, self.first.tolist(), strict=False))
        marks = np.zeros(self.first[-1], np.int64)
        for step in critical_path(timeline):
            if step.rank in first:
                segment = timeline.flat.programs[step.actor].segment
                marks[first[step.rank] + segment.item(step.task)] = 1
        return marks

    def waits(self, graph: TaskGraph, actors: Actors) -> dict[str, object]:
        """How far before every span those stand that it waits for, in classes.

        Spans wait for earlier ones of their row, a receipt for the send as well.
        """
        first, after, before = self._firsts, list[Ints](), list[Ints]()
        for program, begin in zip(self.programs, first.values(), strict=True):
            after.append(program.after.owners.astype(np.int64) + begin)
            before.append(program.after.values.astype(np.int64) + begin)
        sends = [self._sends(row, graph, actors, first) for row in range(len(self.actors))]
        after += [receipts for receipts, _ in sends]
        before += [sent for _, sent in sends]
        spans = np.concatenate(after)
        far = spans - np.concatenate(before)
        order = np.argsort(spans, kind="stable")
        counts = np.bincount(spans, minlength=int(self.first[-1]))
        known: dict[tuple[int, ...], int] = {}
        lists = Lists(bounds(counts), far[order].astype(np.int32)).tolist()
        of = [known.setdefault(back, len(known)) for back in lists]
        return {"of": of, "classes": {"back": list(known)}}

    @property
    def _firsts(self) -> dict[int, int]:
        """The first span of every actor that is shown."""
        return dict(zip(self.actors, self.first.tolist(), strict=False))

    def _sends(
        self, row: int, graph: TaskGraph, actors: Actors, first: Mapping[int, int]
    ) -> tuple[Ints, Ints]:
        """The receipts of a row whose sends are shown, and these; `first` is `_firsts`."""
        program, actor = self.programs[row], self.actors[row]
        begins = np.full(graph.plan.pp, UNKNOWN, np.int64)
        for stage in program.senders:
            begins[stage] = first.get(far_actor(actor, stage, actors, graph.plan), UNKNOWN)
        receipts = np.flatnonzero(program.kind == SegmentKind.RECV)
        begin = begins[program.peer_stage[receipts]]
        receipts, begin = receipts[begin >= 0], begin[begin >= 0]
        return receipts + self.first[row], begin + program.peer[receipts]


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
