"""What ran as CSV: one line per span, of simulated ranks and of recorded operations alike."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from stepsim.base.arrays import Ints
from stepsim.base.writing import csv_lines, write_whole
from stepsim.run.spans import UNKNOWN, Spans, TaskKind, TaskPhase

_Cell = int | str


def write_spans(tables: Iterable[Spans], path: Path) -> None:
    """Write tables of spans, one below the other; raises OutputError."""
    write_whole(path, csv_lines(span_lines(tables)).encode())


def span_lines(tables: Iterable[Spans]) -> Iterator[tuple[_Cell, ...]]:
    """The names of the columns, then the cells of every span; empty where it is not known."""
    for number, spans in enumerate(tables):
        cells = _cells(spans)
        if not number:
            yield tuple(cells)
        yield from zip(*cells.values(), strict=True)


def _cells(spans: Spans) -> dict[str, Sequence[_Cell]]:
    """Columns of cells by name: stages and actions of a schedule, steps of a recording."""
    actions = {number: entry.token for number, entry in enumerate(spans.entries or ())}
    scheduled = spans.entries is not None
    where = {"stage": _told(spans.stage)} if scheduled else {"step": _told(spans.step)}
    return {
        "rank": spans.rank.tolist(),
        **where,
        "stream": _told(spans.stream, spans.streams),
        "kind": _told(spans.kind, {kind: kind.name.lower() for kind in TaskKind}),
        "name": [spans.names[name] for name in spans.name.tolist()],
        "phase": _told(spans.phase, {phase: phase.name.lower() for phase in TaskPhase}),
        **({"action": _told(spans.entry, actions)} if scheduled else {}),
        "microbatch": _told(spans.microbatch),
        "bytes": _told(spans.size_bytes),
        "start_ps": spans.start_ps.tolist(),
        "end_ps": spans.end_ps.tolist(),
        **({"alone_ps": _told(spans.alone_ps)} if scheduled else {}),
    }


def _told(column: Ints, names: Mapping[int, str] | None = None) -> list[_Cell]:
    """Cells of a column: names where there are some, else numbers, empty where not known."""
    known: Mapping[int, _Cell] = {**(names or {}), UNKNOWN: ""}
    return [known.get(value, value) for value in column.tolist()]
