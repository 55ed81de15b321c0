"""What ran as CSV: one line per task of every simulated rank, or per recorded operation."""

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from stepsim.engine.timeline import Timeline
from stepsim.files.writing import write_csv_rows, write_whole
from stepsim.measured.profile.events import UNKNOWN, EventKind, EventPhase, Profile

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


OPERATION_COLUMNS = (
    *("rank", "step", "stream", "kind", "name", "phase", "microbatch", "bytes"),
    *("start_ps", "end_ps"),
)
"""What is said of a recorded operation; empty where it is not known."""


def write_spans(timeline: Timeline, path: Path) -> None:
    """Write the spans of one rank per class of ranks that behave alike; raises OutputError."""
    _write(path, SPAN_COLUMNS, span_rows(timeline))


def write_operations(profile: Profile, path: Path) -> None:
    """Write all operations of a profile; raises OutputError."""
    _write(path, OPERATION_COLUMNS, operation_rows(profile))


def _write(path: Path, header: Sequence[str], rows: Iterable[tuple[int | str, ...]]) -> None:
    text = io.StringIO()
    write_csv_rows(text, chain([header], rows))
    write_whole(path, text.getvalue().encode())


def operation_rows(profile: Profile) -> Iterator[tuple[int | str, ...]]:
    """The values of `OPERATION_COLUMNS` of every operation."""
    events = profile.events
    columns = (
        *(events.rank, events.step, events.stream, events.kind, events.name, events.phase),
        *(events.microbatch, events.size_bytes, events.start_ps, events.end_ps),
    )
    for row in zip(*(column.tolist() for column in columns), strict=True):
        rank, step, stream, kind, name, phase, microbatch, size, start, end = row
        yield (
            profile.ranks[rank].rank,
            "" if step == UNKNOWN else profile.steps[step],
            "" if stream == UNKNOWN else stream,
            EventKind(kind).name.lower(),
            profile.names[name],
            "" if phase == UNKNOWN else EventPhase(phase).name.lower(),
            "" if microbatch == UNKNOWN else microbatch,
            "" if size == UNKNOWN else size,
            start,
            end,
        )


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
