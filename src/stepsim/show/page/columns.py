"""The tasks of a timeline as columns of numbers, small enough to be sent in a page.

Ranks of one stage run the same program, so what a task is and what it waits for is found once per
stage; only times differ. Every text is kept once and named by its number.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Ints, Lists, Small, ints
from stepsim.base.structs import Names, Noun
from stepsim.core.flat import tasks_apart
from stepsim.core.timeline import Timeline
from stepsim.core.write import Program, TaskGraph
from stepsim.explain.critical_path import critical_path, path_runs
from stepsim.explain.report import Report
from stepsim.run.spans import UNKNOWN, Spans, TaskKind
from stepsim.show.palette import ACTION_SHADES, span_shades
from stepsim.show.tables.model import CommWords, action_words, comm_words, message_way, name_ranks
from stepsim.workload.axes import Stream

MOST_SPANS = 250_000


class _RankBand(Noun):
    """A band of the picture: the rank that is shown, whom it stands for, the streams it uses."""

    rank: int
    label: str
    ranks: str
    streams: tuple[Stream, ...]


class _ActionColumns(Noun):
    """Actions of the shown ranks: row, place in `entries`, times in ps, and a short text.

    A fused pair is two: `part` 0 and 1 of `parts` 2. `chunk` is the rank's, of `chunks`.
    """

    row: Ints
    entry: Ints
    shade: Ints
    part: Ints
    parts: Ints
    chunk: Ints
    chunks: int
    start_ps: Ints
    end_ps: Ints
    text: Names


class _OutsideColumns(Noun):
    """When ranks work outside the pipeline and in no action: row, times in ps."""

    row: Ints
    start_ps: Ints
    end_ps: Ints


class SpanColumns(Noun):
    """Spans of some ranks; every column has one value per span unless it says otherwise.

    `row` is a place in `rows`; times are in ps. `name`, `entry` and `comm` are places in `names`,
    `entries` and `comms` (-1: outside the pipeline, no communication). `peer` is the span at a
    message's other end, -1 where that is not shown. `alone_ps` is how long compute takes that
    communication slowed, -1 for what it did not slow. Span i waits for the spans
    `before[first_before[i]:first_before[i + 1]]`. `critical` marks the critical path.
    `left_out` says what the page would be too large for; empty if nothing.
    """

    rows: tuple[_RankBand, ...]
    row: Ints
    stream: Ints
    shade: Ints
    start_ps: Ints
    end_ps: Ints
    alone_ps: Ints
    name: Ints
    entry: Ints
    comm: Ints
    peer: Ints
    critical: Ints
    first_before: Ints
    before: Ints
    names: Names
    entries: Names
    comms: tuple[CommWords, ...]
    action: _ActionColumns
    outside: _OutsideColumns
    left_out: str

    def __len__(self) -> int:
        """Number of spans."""
        return len(self.start_ps)


def span_columns(timeline: Timeline, report: Report, most: int = MOST_SPANS) -> SpanColumns:
    """The tasks of one rank per class of ranks.

    Where there are more than `most` of them, one rank per stage is shown, then whole actions
    instead of their tasks, then some of the stages.
    """
    ranks, whole, left_out = _chosen(timeline, most)
    tables = list(timeline.spans(ranks, whole=whole))
    return _Collector(timeline=timeline, report=report, whole=whole).run(tables, left_out)


def _chosen(timeline: Timeline, most: int) -> tuple[list[int], bool, str]:
    """Ranks to show, whether by whole actions, and what is left out."""
    graph, actors = timeline.graph, timeline.actors
    tasks = [_task_count(program) for program in graph.programs]
    every = actors.ranks.tolist()
    firsts = [stage * graph.plan.stage_ranks for stage in range(graph.plan.pp)]
    if sum(tasks[graph.plan.stage_of(rank)] for rank in every) <= most:
        return every, False, ""
    if sum(tasks) <= most:
        said = f"the first rank of every stage; {len(every):,} ranks are simulated"
        return firsts, False, said
    segments = sum(map(len, graph.programs))
    stride = -(-segments // most)
    shown = firsts[::stride]
    stages = "of every stage" if stride == 1 else f"of {len(shown)} of {len(firsts)} stages"
    return shown, True, f"the first rank {stages}; whole actions instead of {sum(tasks):,} tasks"


def _task_count(program: Program) -> int:
    sizes = [
        each.runs * (len(program.lists[each.task_list].tasks) if each.task_list >= 0 else 1)
        for each in program.looks
    ]
    return sum(sizes)


def _outside_of(tables: Sequence[Spans]) -> _OutsideColumns:
    """What ranks do outside the pipeline while they are in no action.

    Messages and the host's work are no part of it: ranks are idle meanwhile.
    """
    found: list[tuple[Ints, Ints, Ints]] = []
    for row, spans in enumerate(tables):
        beside = spans.of_kind(TaskKind.HOST, TaskKind.SEND, TaskKind.RECV)
        own = (spans.entry == UNKNOWN) & ~beside
        start, end = _uncovered((spans.start_ps[own], spans.end_ps[own]), spans.actions())
        found.append((np.full(len(start), row), start, end))
    row_of, starts, ends = (
        np.concatenate(each).astype(np.int64) for each in zip(*found, strict=True)
    )
    return _OutsideColumns(row=row_of, start_ps=starts, end_ps=ends)


def _uncovered(spans: tuple[Ints, Ints], cover: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Starts and ends of the times that some span has and no cover, joined where they touch."""
    times = np.concatenate([*spans, *cover])
    own, other = len(spans[0]), len(cover[0])
    ones, zeros = np.ones(own, np.int64), np.zeros(own, np.int64)
    more, none = np.ones(other, np.int64), np.zeros(other, np.int64)
    order = np.argsort(times, kind="stable")
    held = np.cumsum(np.concatenate([ones, -ones, none, none])[order])
    covered = np.cumsum(np.concatenate([zeros, zeros, more, -more])[order])
    at = times[order]
    shown = np.flatnonzero((held[:-1] > 0) & (covered[:-1] == 0) & (np.diff(at) > 0))
    starts, ends = at[shown], at[shown + 1]
    joined = np.flatnonzero(starts[1:] == ends[:-1])
    return np.delete(starts, joined + 1), np.delete(ends, joined)


class _Texts(Struct):
    """Texts by number, each once."""

    numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


class _Waits(NamedTuple):
    """What the spans of a stage wait for, by their places within a rank.

    `first[s]` is the first span of segment s; span i waits for the spans `before[i]`.
    """

    first: Small
    before: Lists

    @classmethod
    def of(cls, graph: TaskGraph, stage: int, whole: bool) -> "_Waits":
        """Those of a stage's tasks, or of its `whole` segments."""
        program = graph.programs[stage]
        if whole:
            return cls(np.arange(len(program), dtype=np.int32), program.after)
        tasks = tasks_apart(program, graph)
        return cls(tasks.first, tasks.after)


class _Collector(Struct, kw_only=True):
    """Adds up the columns of shown ranks: a table of spans for each, of tasks or of segments."""

    timeline: Timeline
    report: Report
    whole: bool
    names: _Texts = field(default_factory=_Texts)
    entries: _Texts = field(default_factory=_Texts)

    def run(self, tables: Sequence[Spans], left_out: str) -> SpanColumns:
        """The columns; `left_out` is what is said of what they do not show."""
        graph, sizes = self.timeline.graph, [len(spans) for spans in tables]
        base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        firsts = {int(spans.stage[0]): spans for spans in tables}
        of_stage = {stage: _Waits.of(graph, stage, self.whole) for stage in firsts}
        names = {stage: self._names(spans) for stage, spans in firsts.items()}
        entries = {stage: self._entries(spans) for stage, spans in firsts.items()}
        stages = [int(spans.stage[0]) for spans in tables]
        waits = [of_stage[stage] for stage in stages]
        counts = np.concatenate([each.before.counts for each in waits])
        before = [each.before.values + offset for each, offset in zip(waits, base, strict=False)]
        axes = [op.axis for op in graph.comms]
        return SpanColumns(
            rows=tuple(self._rows(tables)),
            row=np.repeat(np.arange(len(tables)), sizes),
            shade=np.concatenate([span_shades(spans, axes) for spans in tables]),
            name=np.concatenate([names[stage] for stage in stages]),
            entry=np.concatenate([entries[stage] for stage in stages]),
            comm=np.concatenate([spans.group for spans in tables]),
            **{
                name: np.concatenate([getattr(spans, name) for spans in tables])
                for name in ("stream", "start_ps", "end_ps", "alone_ps")
            },
            peer=self._peers(tables, waits, base),
            critical=self._critical(tables, waits, base),
            first_before=np.append(0, np.cumsum(counts, dtype=np.int64)),
            before=np.concatenate(before).astype(np.int64),
            action=self._actions(tables),
            outside=_outside_of(tables),
            names=tuple(self.names.numbers),
            entries=tuple(self.entries.numbers),
            comms=tuple(self._comms()),
            left_out=left_out,
        )

    def _names(self, spans: Spans) -> Ints:
        """The number of what each span of a rank is called."""
        plan, comms = self.timeline.graph.plan, self.timeline.graph.comms
        columns = (spans.kind, spans.name, spans.group, spans.peer)
        numbers = []
        for kind, name, group, peer in zip(*(column.tolist() for column in columns), strict=True):
            words = spans.names[name]
            if peer != UNKNOWN:
                words = f"{message_way(kind)}{plan.stage_of(peer)}"
            elif group != UNKNOWN:
                words = f"{words}: {comms[group].kind}"
            numbers.append(self.names.number(words))
        return ints(numbers)

    def _entries(self, spans: Spans) -> Ints:
        """The number of the words for the action of each span of a rank, -1 where there is none."""
        words = [action_words(entry) for entry in spans.entries or ()]
        numbers = [self.entries.number(words[i]) if i >= 0 else -1 for i in spans.entry.tolist()]
        return ints(numbers)

    def _peers(self, tables: Sequence[Spans], waits: Sequence[_Waits], base: Ints) -> Ints:
        """The span at the other end of every message, where its rank is shown."""
        graph, actors = self.timeline.graph, self.timeline.actors
        shown = {actors.of(int(spans.rank[0])): row for row, spans in enumerate(tables)}
        peers = np.full(int(base[-1]), -1, np.int64)
        for row, spans in enumerate(tables):
            program = graph.programs[int(spans.stage[0])]
            for end in np.flatnonzero(spans.peer != UNKNOWN).tolist():
                other = shown.get(actors.of(int(spans.peer[end])))
                far = int(program.peer[spans.segment[end]])
                if other is not None and far >= 0:
                    peers[base[row] + end] = base[other] + waits[other].first[far]
        return peers

    def _critical(self, tables: Sequence[Spans], waits: Sequence[_Waits], base: Ints) -> Ints:
        """1 on the critical path, else 0."""
        row_of = {int(spans.rank[0]): row for row, spans in enumerate(tables)}
        marks = np.zeros(int(base[-1]), np.int64)
        for run in path_runs(self.timeline, critical_path(self.timeline)):
            row = row_of.get(run.rank)
            if row is not None:
                inner = 0 if self.whole else np.maximum(run.tasks, 0)
                marks[base[row] + waits[row].first[run.segments][:, None] + inner] = 1
        return marks

    def _rows(self, tables: Sequence[Spans]) -> Iterator[_RankBand]:
        plan, actors = self.timeline.graph.plan, self.timeline.actors
        staged = plan.pp > 1 and len(tables) <= plan.pp
        for spans in tables:
            rank, stage = int(spans.rank[0]), int(spans.stage[0])
            alike = np.flatnonzero(actors.actor_of == actors.actor_of[rank])
            used = spans.stream[spans.end_ps > spans.start_ps].tolist()
            streams = sorted({Stream.COMPUTE.value, *used})
            yield _RankBand(
                rank=rank,
                label=f"stage {stage}" if staged else f"rank {rank}",
                ranks=name_ranks(alike.tolist()),
                streams=tuple(Stream(stream) for stream in streams),
            )

    def _actions(self, tables: Sequence[Spans]) -> _ActionColumns:
        places, text = [], []
        for row, spans in enumerate(tables):
            start, end = (times.tolist() for times in spans.actions())
            for entry, *times in zip(spans.entries or (), start, end, strict=True):
                number, parts = self.entries.number(action_words(entry)), entry.parts()
                for part, action in enumerate(parts):
                    shade = ACTION_SHADES[action.kind]
                    places.append((row, number, shade, part, len(parts), action.chunk, *times))
                    text.append(f"{action.kind}{action.microbatch}")
        columns = ints(places).reshape(-1, 8).T
        return _ActionColumns(
            row=columns[0],
            entry=columns[1],
            shade=columns[2],
            part=columns[3],
            parts=columns[4],
            chunk=columns[5],
            chunks=1 + int(columns[5].max(initial=0)),
            start_ps=columns[6],
            end_ps=columns[7],
            text=tuple(text),
        )

    def _comms(self) -> Iterator[CommWords]:
        """What is said of every communication."""
        known = {(use.group, use.kind, use.size_bytes): use for use in self.report.comms}
        for op in self.timeline.graph.comms:
            yield comm_words(op, known.get((op.group, op.kind, op.size_bytes)))
