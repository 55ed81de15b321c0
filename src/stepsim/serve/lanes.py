"""A timeline as a page draws it: one row per class of ranks, one span per action or transfer."""

from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.engine.lay_out import Times, far_actor
from stepsim.engine.timeline import Cohort, Timeline
from stepsim.explain.critical_path import critical_path
from stepsim.explore.batch import Batch
from stepsim.graph.build import TaskGraph
from stepsim.graph.programs import SegmentKind
from stepsim.network.fold import Actors
from stepsim.show.palette import span_shades
from stepsim.show.words import message_words, name_ranks
from stepsim.tables.spans import UNKNOWN, Spans, TaskKind
from stepsim.workload.rows import ParallelAxis

_MOST_SPANS = 40_000
_MOST_DIGITS = 9
_ACTIONS, _GRADIENTS, _MESSAGES = range(3)


class _Lanes(Struct, frozen=True, kw_only=True):
    """The spans of some rows; `row`, `lane`, `shade`, `start_ps`, ... have a value per span.

    A row has a lane for actions, one for gradient reductions and one for messages. `words` say
    what a span is. `critical` marks the critical path where it is known. `waits` are the numbers
    of the spans that each span waits for, and `axes` has a bit for every parallel axis that it
    uses; both are left out where only durations differ from a run before. `left_out` says which
    rows are not shown.
    """

    rows: tuple[str, ...]
    row: Ints
    lane: Ints
    shade: Ints
    start_ps: Ints
    end_ps: Ints
    words: tuple[str, ...]
    critical: Ints | None
    left_out: str
    waits: list[list[int]] | None = None
    axes: list[int] | None = None

    def plain(self) -> dict[str, object]:
        """The spans as a message to a page, in classes."""
        row = self.row.tolist()
        stems, numbers = _numbered(self.words)
        alike = list(zip(row, stems, strict=True))
        columns: dict[str, Sequence[Hashable]] = {
            "row": row,
            "lane": self.lane.tolist(),
            "shade": self.shade.tolist(),
            **_timed(self.start_ps, self.end_ps, alike),
            "stem": stems,
            "number": _since(numbers, alike),
        }
        if self.critical is not None:
            columns["critical"] = self.critical.tolist()
        if self.axes is not None:
            columns["axes"] = self.axes
        waits = None
        if self.waits is not None:
            numbered = enumerate(self.waits)
            waits = _classes(
                {"back": [tuple(i - before for before in after) for i, after in numbered]}
            )
        return {"rows": self.rows, "left_out": self.left_out, "waits": waits, **_classes(columns)}


def _classes(columns: Mapping[str, Sequence[Hashable]]) -> dict[str, object]:
    """Columns as the class of each row: `of[i]` is the number of its values in `classes`.

    Microbatches repeat what they do, so there are few classes. For example rows `a 1`, `b 1`, `a 1`
    are `of` 0, 1, 0 with the classes `a 1` and `b 1`.
    """
    numbers: dict[tuple[Hashable, ...], int] = {}
    of = [numbers.setdefault(row, len(numbers)) for row in zip(*columns.values(), strict=True)]
    values = zip(*numbers, strict=True) if numbers else [()] * len(columns)
    return {"of": of, "classes": dict(zip(columns, values, strict=True))}


def _timed(start_ps: Ints, end_ps: Ints, alike: Sequence[Hashable]) -> dict[str, list[int | None]]:
    """How much later each span starts than the last one alike, and how long it takes, in ps."""
    return {"start": _since(start_ps.tolist(), alike), "took": (end_ps - start_ps).tolist()}


def _since(values: Sequence[int | None], alike: Sequence[Hashable]) -> list[int | None]:
    """By how much each value is above the last of equal `alike`, or above 0; None stays None."""
    last: dict[Hashable, int] = {}
    above: list[int | None] = []
    for value, key in zip(values, alike, strict=True):
        above.append(None if value is None else value - last.get(key, 0))
        if value is not None:
            last[key] = value
    return above


def _numbered(words: Sequence[str]) -> tuple[list[str], list[int | None]]:
    """Words without the number that they end with, and that number.

    For example `0F1`, `send`, `0B3` are `0F`, `send`, `0B` with the numbers 1, None, 3.
    """
    stems: list[str] = []
    numbers: list[int | None] = []
    for word in words:
        stem = word.rstrip("0123456789")
        digits = word[len(stem) :]
        is_number = 0 < len(digits) <= _MOST_DIGITS and str(int(digits)) == digits
        stems.append(stem if is_number else word)
        numbers.append(int(digits) if is_number else None)
    return stems, numbers


def lanes_of_timeline(timeline: Timeline) -> _Lanes:
    """Spans of a run, with its critical path."""
    segments = {
        rank: timeline.place(rank)[0].laid.segment for rank in timeline.actors.ranks.tolist()
    }
    path = critical_path(timeline)
    on_path = {(step.rank, segments[step.rank].item(step.task)) for step in path}
    return _lanes(timeline, {(timeline.actors.of(rank), segment) for rank, segment in on_path})


def lanes_of_batch(batch: Batch, start: Times, end: Times) -> dict[str, object]:
    """Spans of one scenario of a batch; `start` and `end` are those of its nodes, in ps."""
    return _lanes(timeline_of_batch(batch, start, end), None).plain()


def times_of_batch(batch: Batch, start: Times, end: Times) -> dict[str, object]:
    """Start and end of the spans alone, for a page that knows all else of them."""
    timeline = timeline_of_batch(batch, start, end)
    chosen, _ = shown_actors(timeline.graph, timeline.actors)
    tables = list(timeline.spans(timeline.actors.ranks[chosen].tolist(), whole=True))
    starts, ends = ([getattr(spans, n) for spans in tables] for n in ("start_ps", "end_ps"))
    return _classes(
        _timed(np.concatenate(starts), np.concatenate(ends), [0] * sum(map(len, starts)))
    )


def timeline_of_batch(batch: Batch, start: Times, end: Times) -> Timeline:
    """One scenario of a batch as a run; `start` and `end` are those of its nodes, in ps."""
    cohorts = tuple(
        Cohort(laid=laid, actors=np.array([i]), start=start[nodes, None], end=end[nodes, None])
        for i, (laid, nodes) in enumerate(
            zip(batch.programs, batch.passes.program.nodes, strict=True)
        )
    )
    return Timeline(graph=batch.job.graph, actors=batch.actors, cohorts=cohorts)


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


def _lanes(timeline: Timeline, path: set[tuple[int, int]] | None) -> _Lanes:
    """Rows of the chosen actors; `path` are actors and segments on the critical path, if known."""
    graph, actors = timeline.graph, timeline.actors
    chosen, left_out = shown_actors(graph, actors)
    tables = list(timeline.spans(actors.ranks[chosen].tolist(), whole=True))
    sizes = [len(spans) for spans in tables]
    axes = [op.axis for op in graph.comms]
    critical = waits = bits = None
    if path is not None:
        marks = [(a, s) in path for a, n in zip(chosen, sizes, strict=True) for s in range(n)]
        critical = np.array(marks, dtype=np.int64)
        waits = _waits(graph, actors, chosen)
        bits = [bit for actor in chosen for bit in _axis_bits(graph, int(actors.stages[actor]))]
    return _Lanes(
        rows=tuple(_row_names(graph, actors, chosen)),
        row=np.repeat(np.arange(len(chosen)), sizes),
        lane=np.concatenate([_lane_of(spans) for spans in tables]),
        shade=np.concatenate([span_shades(spans, axes) for spans in tables]),
        start_ps=np.concatenate([spans.start_ps for spans in tables]),
        end_ps=np.concatenate([spans.end_ps for spans in tables]),
        words=tuple(words for spans in tables for words in _words(spans, graph)),
        critical=critical,
        left_out=left_out,
        waits=waits,
        axes=bits,
    )


def _waits(graph: TaskGraph, actors: Actors, chosen: Sequence[int]) -> list[list[int]]:
    """What every span waits for: earlier ones of its rank, and of a receipt the send."""
    programs = [graph.programs[int(actors.stages[actor])] for actor in chosen]
    first = np.cumsum([0, *map(len, programs)]).tolist()
    rows = {actor: row for row, actor in enumerate(chosen)}
    waits: list[list[int]] = []
    for actor, program, begin in zip(chosen, programs, first, strict=False):
        own = [[begin + before for before in after] for after in program.shape.after.tolist()]
        for segment in np.flatnonzero(program.shape.kind == SegmentKind.RECV).tolist():
            stage = program.shape.peer_stage.item(segment)
            row = rows.get(far_actor(actor, stage, actors, graph.plan))
            if row is not None:
                own[segment].append(first[row] + program.shape.peer.item(segment))
        waits += own
    return waits


def _axis_bits(graph: TaskGraph, stage: int) -> list[int]:
    """The parallel axes that every segment of a stage uses: bit i is axis i."""
    program, axes = graph.programs[stage], list(ParallelAxis)
    bits = []
    for look in program.looks:
        comms = program.lists[look.task_list].comms if look.task_list >= 0 else [program.message]
        used = {axes.index(graph.comms[comm].axis) for comm in comms}
        bits.append(sum(1 << axis for axis in used))
    return [bits[look] for look in program.look.tolist()]


def _row_names(graph: TaskGraph, actors: Actors, chosen: Sequence[int]) -> Iterator[str]:
    """Whom a row stands for."""
    per_stage = len(chosen) <= graph.plan.pp
    for actor in chosen:
        alike = np.flatnonzero(actors.actor_of == actor).tolist()
        stage = int(actors.stages[actor])
        yield f"stage {stage}" if per_stage else f"stage {stage}, {name_ranks(alike)}"


def _lane_of(spans: Spans) -> Ints:
    """The lane of every span of a row."""
    messages = np.where(spans.of_kind(TaskKind.SEND, TaskKind.RECV), _MESSAGES, _ACTIONS)
    return np.where(spans.kind == TaskKind.COLLECTIVE, _GRADIENTS, messages)


def _words(spans: Spans, graph: TaskGraph) -> Iterator[str]:
    """What every span of a rank is called."""
    tokens = [entry.token for entry in spans.entries or ()]
    columns = (spans.kind, spans.name, spans.entry, spans.peer)
    for kind, name, entry, peer in zip(*(column.tolist() for column in columns), strict=True):
        if peer != UNKNOWN:
            yield message_words(kind, graph.plan.stage_of(peer))
        elif kind == TaskKind.COLLECTIVE:
            yield spans.names[name]
        else:
            yield tokens[entry] if entry != UNKNOWN else "after the pipeline"
