"""A timeline as a page draws it: one row per class of ranks, one span per action or transfer."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.engine.lay_out import Times
from stepsim.engine.timeline import Cohort, Timeline
from stepsim.explain.critical_path import critical_path, path_tasks
from stepsim.explore.batch import Batch
from stepsim.graph.build import TaskGraph
from stepsim.network.fold import Actors
from stepsim.show.palette import span_shades
from stepsim.show.words import message_words, name_ranks
from stepsim.tables.spans import UNKNOWN, Spans, TaskKind

_MOST_SPANS = 40_000
_ACTIONS, _GRADIENTS, _MESSAGES = range(3)


class _Lanes(Struct, frozen=True, kw_only=True):
    """The spans of some rows; `row`, `lane`, `shade`, `start_ps`, ... have a value per span.

    A row has a lane for actions, one for gradient reductions and one for messages. `words` say
    what a span is. `critical` marks the critical path where it is known. `left_out` says which
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

    def plain(self) -> dict[str, object]:
        """The spans as a message to a page."""
        return {
            "rows": self.rows,
            "row": self.row.tolist(),
            "lane": self.lane.tolist(),
            "shade": self.shade.tolist(),
            "start": self.start_ps.tolist(),
            "end": self.end_ps.tolist(),
            "words": self.words,
            "critical": None if self.critical is None else self.critical.tolist(),
            "left_out": self.left_out,
        }


def lanes_of_timeline(timeline: Timeline) -> _Lanes:
    """Spans of a run, with its critical path."""
    tasks = path_tasks(timeline, critical_path(timeline))
    return _lanes(timeline, {(timeline.actors.of(task.rank), task.segment) for task in tasks})


def lanes_of_batch(batch: Batch, start: Times, end: Times) -> _Lanes:
    """Spans of one scenario of a batch; `start` and `end` are those of its nodes, in ps."""
    cohorts = tuple(
        Cohort(laid=laid, actors=np.array([i]), start=start[nodes, None], end=end[nodes, None])
        for i, (laid, nodes) in enumerate(
            zip(batch.programs, batch.passes.program.nodes, strict=True)
        )
    )
    return _lanes(Timeline(graph=batch.job.graph, actors=batch.actors, cohorts=cohorts), None)


def _chosen(graph: TaskGraph, actors: Actors) -> tuple[list[int], str]:
    """Actors that are shown: one per class of ranks, else one per stage, else of some stages."""
    sizes = [len(program.segments) for program in graph.programs]
    stages = actors.stages.tolist()
    if sum(sizes[stage] for stage in stages) <= _MOST_SPANS:
        return list(range(len(actors))), ""
    firsts = [stages.index(stage) for stage in range(graph.plan.pp)]
    stride = -(-sum(sizes) // _MOST_SPANS)
    which = "every" if stride == 1 else f"one in {stride}"
    return firsts[::stride], f"first rank of {which} stage, of {len(actors):,} simulated"


def _lanes(timeline: Timeline, path: set[tuple[int, int]] | None) -> _Lanes:
    """Rows of the chosen actors; `path` are actors and segments on the critical path, if known."""
    graph, actors = timeline.graph, timeline.actors
    chosen, left_out = _chosen(graph, actors)
    tables = list(timeline.spans(actors.ranks[chosen].tolist(), whole=True))
    sizes = [len(spans) for spans in tables]
    axes = [op.axis for op in graph.comms]
    critical = None
    if path is not None:
        marks = [(a, s) in path for a, n in zip(chosen, sizes, strict=True) for s in range(n)]
        critical = np.array(marks, dtype=np.int64)
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
    )


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
