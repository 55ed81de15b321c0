"""A timeline as a page draws it: one row per class of ranks, one span per action or transfer."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.engine.fold import Actors
from stepsim.engine.layouts import Times
from stepsim.engine.timeline import Cohort, Timeline
from stepsim.explore.batch import Batch
from stepsim.graph.build import TaskGraph
from stepsim.graph.programs import Program, Segment, SegmentKind
from stepsim.results.critical_path import critical_path, path_tasks
from stepsim.show.palette import ACTION_SHADES, AXIS_SHADES, Shade
from stepsim.show.words import name_ranks
from stepsim.workload.rows import ParallelAxis

_MOST_SPANS = 40_000
_ACTIONS, _GRADIENTS, _MESSAGES = range(3)

_Extents = Callable[[int], tuple[Times, Times]]
"""Start and end in ps of every segment of an actor's program, by the actor's number."""


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

    def extents(actor: int) -> tuple[Times, Times]:
        cohort, column = timeline.place(int(timeline.actors.ranks[actor]))
        start, end = cohort.segment_times()
        return start[:, column], end[:, column]

    chosen, left_out = _chosen(timeline.graph, timeline.actors)
    found = path_tasks(timeline, critical_path(timeline))
    path = {(timeline.actors.of(each.rank), each.segment) for each in found}
    return _lanes(timeline.graph, timeline.actors, chosen, extents, left_out, path)


def lanes_of_batch(batch: Batch, start: Times, end: Times) -> _Lanes:
    """Spans of one scenario of a batch; `start` and `end` are those of its nodes, in ps."""

    def extents(actor: int) -> tuple[Times, Times]:
        laid, nodes = batch.programs[actor], batch.passes.program.nodes[actor]
        alone = np.array([actor])
        cohort = Cohort(laid=laid, actors=alone, start=start[nodes, None], end=end[nodes, None])
        first, last = cohort.segment_times()
        return first[:, 0], last[:, 0]

    chosen, left_out = _chosen(batch.job.graph, batch.actors)
    return _lanes(batch.job.graph, batch.actors, chosen, extents, left_out, None)


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


def _lanes(
    graph: TaskGraph,
    actors: Actors,
    chosen: Sequence[int],
    extents: _Extents,
    left_out: str,
    path: set[tuple[int, int]] | None,
) -> _Lanes:
    programs = [graph.programs[int(actors.stages[actor])] for actor in chosen]
    times = [extents(actor) for actor in chosen]
    kinds = [kind for program in programs for kind in _kinds(program)]
    lane, shade, words = zip(*kinds, strict=True)
    critical = None
    if path is not None:
        marks = [
            (actor, number) in path
            for actor, program in zip(chosen, programs, strict=True)
            for number in range(len(program.segments))
        ]
        critical = np.array(marks, dtype=np.int64)
    return _Lanes(
        rows=tuple(_row_names(graph, actors, chosen)),
        row=np.repeat(np.arange(len(chosen)), [len(program.segments) for program in programs]),
        lane=np.array(lane, dtype=np.int64),
        shade=np.array(shade, dtype=np.int64),
        start_ps=np.concatenate([start for start, _ in times]),
        end_ps=np.concatenate([end for _, end in times]),
        words=words,
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


def _kinds(program: Program) -> Iterator[tuple[int, int, str]]:
    """Lane, shade and words of every segment."""
    for segment in program.segments:
        yield _kind(program, segment)


def _kind(program: Program, segment: Segment) -> tuple[int, int, str]:
    match segment.kind:
        case SegmentKind.SEND:
            return _MESSAGES, AXIS_SHADES[ParallelAxis.PP], f"send to stage {segment.peer_stage}"
        case SegmentKind.RECV:
            words = f"receive from stage {segment.peer_stage}"
            return _MESSAGES, AXIS_SHADES[ParallelAxis.PP], words
        case SegmentKind.REDUCTION:
            return _GRADIENTS, AXIS_SHADES[ParallelAxis.DP], "gradient reduction"
        case _ if segment.entry >= 0:
            entry = program.entries[segment.entry]
            return _ACTIONS, ACTION_SHADES[entry.parts()[0].kind], entry.token
        case _:
            return _ACTIONS, Shade.PER_STEP, "after the pipeline"
