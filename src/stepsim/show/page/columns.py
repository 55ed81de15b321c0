"""The tasks of a timeline as columns of numbers, small enough to be sent in a page.

Ranks of one stage run the same program, so what a task is and what it waits for is found once per
stage; only times differ. Every text is kept once and named by its number.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Ints
from stepsim.engine.timeline import Timeline
from stepsim.graph.actions import TaskKind, TaskList
from stepsim.graph.programs import Program, Segment, SegmentKind
from stepsim.parallel.schedules import OrderEntry
from stepsim.results.critical_path import critical_path, path_tasks
from stepsim.results.report import Report
from stepsim.show.palette import ACTION_SHADES, AXIS_SHADES, PHASE_SHADES, Shade
from stepsim.show.words import CommWords, action_words, comm_words, name_ranks
from stepsim.workload.rows import ParallelAxis, Stream

MOST_SPANS = 250_000


class _RankBand(Struct, frozen=True, kw_only=True):
    """A band of the picture: the rank that is shown, whom it stands for, the streams it uses."""

    rank: int
    label: str
    ranks: str
    streams: tuple[Stream, ...]


class _ActionColumns(Struct, frozen=True, kw_only=True):
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
    text: tuple[str, ...]


class SpanColumns(Struct, frozen=True, kw_only=True):
    """Spans of some ranks; every column has one value per span unless it says otherwise.

    `row` is a place in `rows`; times are in ps. `name`, `entry` and `comm` are places in `names`,
    `entries` and `comms` (-1: outside the pipeline, no communication). `peer` is the span at a
    message's other end, -1 where that is not shown. Span i waits for the spans
    `before[first_before[i]:first_before[i + 1]]`. `critical` marks the critical path.
    `left_out` says what the page would be too large for; empty if nothing.
    """

    rows: tuple[_RankBand, ...]
    row: Ints
    stream: Ints
    shade: Ints
    start_ps: Ints
    end_ps: Ints
    name: Ints
    entry: Ints
    comm: Ints
    peer: Ints
    critical: Ints
    first_before: Ints
    before: Ints
    names: tuple[str, ...]
    entries: tuple[str, ...]
    comms: tuple[CommWords, ...]
    action: _ActionColumns
    left_out: str

    def __len__(self) -> int:
        """Number of spans."""
        return len(self.start_ps)


def span_columns(timeline: Timeline, report: Report, most: int = MOST_SPANS) -> SpanColumns:
    """The tasks of one rank per class of ranks.

    Where there are more than `most` of them, one rank per stage is shown, then whole actions
    instead of their tasks, then some of the stages.
    """
    return _Collector(timeline=timeline, report=report).run(*_chosen(timeline, most))


def _chosen(timeline: Timeline, most: int) -> tuple[list[int], bool, str]:
    """Ranks to show, whether by whole actions, and what is left out."""
    graph, actors = timeline.graph, timeline.actors
    tasks = [_task_count(program, graph.task_lists) for program in graph.programs]
    every = actors.ranks.tolist()
    firsts = [stage * graph.plan.stage_ranks for stage in range(graph.plan.pp)]
    if sum(tasks[graph.plan.stage_of(rank)] for rank in every) <= most:
        return every, False, ""
    if sum(tasks) <= most:
        return firsts, False, f"first rank of every stage only, of {len(every):,} simulated"
    segments = sum(len(program.segments) for program in graph.programs)
    stride = -(-segments // most)
    some = f"first rank of {'every' if stride == 1 else f'one in {stride}'} stage only"
    return firsts[::stride], True, f"{some}, and whole actions instead of {sum(tasks):,} tasks"


def _task_count(program: Program, task_lists: Sequence[TaskList]) -> int:
    return sum(
        len(task_lists[s.task_list].tasks) if s.task_list >= 0 else 1 for s in program.segments
    )


class _Texts(Struct):
    """Texts by number, each once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


class _Shape(Struct, kw_only=True):
    """What the spans of a stage are: a value per span, and places within the rank's spans.

    `first[s]` is the first span of segment s; `before[i]` what span i waits for; `far[i]` the
    stage and segment of a message's other end.
    """

    stream: list[int] = field(default_factory=list)
    shade: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    entry: list[int] = field(default_factory=list)
    comm: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    before: list[tuple[int, ...]] = field(default_factory=list)
    far: list[tuple[int, int, int]] = field(default_factory=list)


class _Collector(Struct, kw_only=True):
    """Adds up the columns rank by rank."""

    timeline: Timeline
    report: Report
    names: _Texts = field(default_factory=_Texts)
    entries: _Texts = field(default_factory=_Texts)

    def run(self, ranks: Sequence[int], whole: bool, left_out: str) -> SpanColumns:
        """Columns of these ranks; `whole` actions are one span each."""
        plan = self.timeline.graph.plan
        shapes = {stage: self._shape(stage, whole) for stage in sorted(map(plan.stage_of, ranks))}
        mine = [shapes[plan.stage_of(rank)] for rank in ranks]
        sizes = [len(shape.stream) for shape in mine]
        base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        times = [self._times(rank, whole) for rank in ranks]
        before = [
            tuple(int(offset) + i for i in waits)
            for shape, offset in zip(mine, base, strict=False)
            for waits in shape.before
        ]
        return SpanColumns(
            rows=tuple(self._rows(ranks, mine)),
            row=np.repeat(np.arange(len(ranks)), sizes),
            stream=_joined(shape.stream for shape in mine),
            shade=_joined(shape.shade for shape in mine),
            name=_joined(shape.name for shape in mine),
            entry=_joined(shape.entry for shape in mine),
            comm=_joined(shape.comm for shape in mine),
            start_ps=np.concatenate([start for start, _ in times]),
            end_ps=np.concatenate([end for _, end in times]),
            peer=self._peers(ranks, mine, base),
            critical=self._critical(ranks, mine, base, whole),
            first_before=np.cumsum([0, *map(len, before)], dtype=np.int64),
            before=np.array([i for waits in before for i in waits], dtype=np.int64),
            action=self._actions(ranks),
            names=tuple(self.names.numbers),
            entries=tuple(self.entries.numbers),
            comms=tuple(self._comms()),
            left_out=left_out,
        )

    def _times(self, rank: int, whole: bool) -> tuple[Ints, Ints]:
        if whole:
            cohort, column = self.timeline.place(rank)
            start, end = cohort.segment_times()
            return start[:, column], end[:, column]
        times = self.timeline.tasks(rank)
        return times.start, times.end

    def _shape(self, stage: int, whole: bool) -> _Shape:
        graph = self.timeline.graph
        program = graph.programs[stage]
        shape = _Shape()
        ends: list[tuple[int, ...]] = []
        for segment in program.segments:
            entry = program.entries[segment.entry] if segment.entry >= 0 else None
            before = tuple(i for earlier in segment.after for i in ends[earlier])
            shape.first.append(len(shape.stream))
            if whole or segment.task_list < 0:
                self._add_whole(shape, segment, entry, before)
                ends.append((shape.first[-1],))
            else:
                ends.append(self._add_tasks(shape, segment, entry, before))
        return shape

    def _add_tasks(
        self, shape: _Shape, segment: Segment, entry: OrderEntry | None, before: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add the tasks of a task list; returns those that nothing in it waits for."""
        graph = self.timeline.graph
        tasks = graph.task_lists[segment.task_list].tasks
        base = len(shape.stream)
        for task in tasks:
            if task.comm >= 0:
                shade = AXIS_SHADES[graph.comms[task.comm].axis]
            elif task.kind is TaskKind.HOST:
                shade = Shade.HOST
            else:
                shade = PHASE_SHADES[task.phase] if entry else Shade.PER_STEP
            after = tuple(base + i for i in task.after) or before
            words = task.label if task.comm < 0 else f"{task.label}: {graph.comms[task.comm].kind}"
            self._add(shape, task.stream, shade, words, entry, task.comm, after)
        waited_for = {i for task in tasks for i in task.after}
        return tuple(base + i for i in range(len(tasks)) if i not in waited_for)

    def _add_whole(
        self, shape: _Shape, segment: Segment, entry: OrderEntry | None, before: tuple[int, ...]
    ) -> None:
        match segment.kind:
            case SegmentKind.SEND | SegmentKind.RECV:
                way = "send to" if segment.kind is SegmentKind.SEND else "receive from"
                shade, words = AXIS_SHADES[ParallelAxis.PP], f"{way} stage {segment.peer_stage}"
                shape.far.append((len(shape.stream), segment.peer_stage, segment.peer))
            case SegmentKind.REDUCTION:
                shade, words = AXIS_SHADES[ParallelAxis.DP], "gradient reduction"
            case _:
                shade = ACTION_SHADES[entry.parts()[0].kind] if entry else Shade.PER_STEP
                words = "action" if entry else "per step"
        self._add(shape, segment.stream, shade, words, entry, segment.comm, before)

    def _add(
        self,
        shape: _Shape,
        stream: Stream,
        shade: int,
        words: str,
        entry: OrderEntry | None,
        comm: int,
        before: tuple[int, ...],
    ) -> None:
        shape.stream.append(stream)
        shape.shade.append(shade)
        shape.name.append(self.names.number(words))
        shape.entry.append(self.entries.number(action_words(entry)) if entry else -1)
        shape.comm.append(comm)
        shape.before.append(before)

    def _peers(self, ranks: Sequence[int], mine: Sequence[_Shape], base: Ints) -> Ints:
        """The span at the other end of every message, where its rank is shown."""
        plan, actors = self.timeline.graph.plan, self.timeline.actors
        shown = {actors.of(rank): row for row, rank in enumerate(ranks)}
        peers = np.full(int(base[-1]), -1, dtype=np.int64)
        for row, (rank, shape) in enumerate(zip(ranks, mine, strict=True)):
            for place, stage, segment in shape.far:
                far = rank + (stage - plan.stage_of(rank)) * plan.stage_ranks
                other = shown.get(actors.of(far))
                if other is not None and segment >= 0:
                    peers[base[row] + place] = base[other] + mine[other].first[segment]
        return peers

    def _critical(
        self, ranks: Sequence[int], mine: Sequence[_Shape], base: Ints, whole: bool
    ) -> Ints:
        """1 on the critical path, else 0."""
        row_of = {rank: row for row, rank in enumerate(ranks)}
        found = np.zeros(int(base[-1]), dtype=np.int64)
        for each in path_tasks(self.timeline, critical_path(self.timeline)):
            row = row_of.get(each.rank)
            if row is not None:
                inner = 0 if whole else max(each.inner, 0)
                found[base[row] + mine[row].first[each.segment] + inner] = 1
        return found

    def _rows(self, ranks: Sequence[int], mine: Sequence[_Shape]) -> Iterator[_RankBand]:
        plan, actors = self.timeline.graph.plan, self.timeline.actors
        staged = plan.pp > 1 and len(ranks) <= plan.pp
        for rank, shape in zip(ranks, mine, strict=True):
            alike = np.flatnonzero(actors.actor_of == actors.actor_of[rank])
            yield _RankBand(
                rank=rank,
                label=f"stage {plan.stage_of(rank)}" if staged else f"rank {rank}",
                ranks=name_ranks(alike.tolist()),
                streams=tuple(Stream(s) for s in sorted({Stream.COMPUTE, *shape.stream})),
            )

    def _actions(self, ranks: Sequence[int]) -> _ActionColumns:
        places, text = [], []
        for row, rank in enumerate(ranks):
            cohort, column = self.timeline.place(rank)
            start, end = (times[:, column].tolist() for times in cohort.entry_times)
            for entry, *times in zip(cohort.laid.program.entries, start, end, strict=True):
                number, parts = self.entries.number(action_words(entry)), entry.parts()
                for part, action in enumerate(parts):
                    shade = ACTION_SHADES[action.kind]
                    places.append((row, number, shade, part, len(parts), action.chunk, *times))
                    text.append(f"{action.kind}{action.microbatch}")
        columns = np.array(places, dtype=np.int64).reshape(-1, 8).T
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


def _joined(columns: Iterable[list[int]]) -> Ints:
    return np.concatenate([np.array(column, dtype=np.int64) for column in columns])
