"""Spans of a timeline as CSV: one line per task of every simulated rank."""

import io
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from stepsim.base.csv_cells import write_csv_rows
from stepsim.engine.timeline import Timeline
from stepsim.files.writing import write_whole

SPAN_COLUMNS = (
    "rank",
    "stage",
    "stream",
    "kind",
    "name",
    "phase",
    "action",
    "microbatch",
    "bytes",
    "start_ps",
    "end_ps",
)


def write_spans(timeline: Timeline, path: Path) -> None:
    """Write the spans of one rank per class of ranks that behave alike; raises OutputError."""
    text = io.StringIO()
    write_csv_rows(text, chain([SPAN_COLUMNS], span_rows(timeline)))
    write_whole(path, text.getvalue().encode())


def span_rows(timeline: Timeline) -> Iterator[tuple[int | str, ...]]:
    """The values of `SPAN_COLUMNS` of every span."""
    for span in timeline.spans():
        entry = span.entry
        yield (
            span.rank,
            span.stage,
            span.stream.name.lower(),
            span.kind.name.lower(),
            span.label,
            span.phase,
            entry.token if entry else "",
            entry.parts()[0].microbatch if entry else "",
            span.size_bytes,
            span.start_ps,
            span.end_ps,
        )
