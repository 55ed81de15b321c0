"""The tasks of a part of a step: what a page draws in lanes where it is zoomed in."""

from collections.abc import Sequence

import numpy as np

from stepsim.core.timeline import Timeline
from stepsim.run.spans import Spans
from stepsim.serve.lanes import shown_actors
from stepsim.show.palette import span_shades

_MOST_TASKS = 12_000


def tasks_within(timeline: Timeline, low_ps: int, high_ps: int) -> dict[str, object]:
    """Tasks that run between two times, on the rows of the timeline; a lane for every stream.

    Where they are too many there are none, and `too_many` says so.
    """
    graph, actors = timeline.graph, timeline.actors
    chosen, _ = shown_actors(graph, actors)
    parts: list[Spans] = []
    for spans in timeline.spans(actors.ranks[chosen].tolist()):
        parts.append(spans.taken((spans.end_ps > low_ps) & (spans.start_ps < high_ps)))
        if sum(map(len, parts)) > _MOST_TASKS:
            return {"too_many": True, "lanes": [], "low": low_ps, "high": high_ps}
    streams = sorted({stream for spans in parts for stream in np.unique(spans.stream).tolist()})
    axes = [op.axis for op in graph.comms]
    return {
        "too_many": False,
        "low": low_ps,
        "high": high_ps,
        "lanes": [parts[0].stream_words(stream) for stream in streams],
        "row": _joined([np.full(len(spans), i) for i, spans in enumerate(parts)]),
        "lane": _joined([np.searchsorted(streams, spans.stream) for spans in parts]),
        "shade": _joined([span_shades(spans, axes) for spans in parts]),
        "start": _joined([spans.start_ps for spans in parts]),
        "end": _joined([spans.end_ps for spans in parts]),
        "alone": _joined([spans.alone_ps for spans in parts]),
        "segment": _joined([spans.segment for spans in parts]),
        "names": [spans.names[name] for spans in parts for name in spans.name.tolist()],
    }


def _joined(columns: Sequence[np.ndarray]) -> list[int]:
    return [int(value) for column in columns for value in column.tolist()]
