"""Lengths of documents: a law written as a text, or a file of them.

A file has one number a line (`#` begins a comment), or is a CSV or Parquet table with a column
`length`, `tokens` or `num_tokens` (or one column alone), or JSON lines with such a field, or with
numbers alone. A column or field `count` says how many documents have a row's length.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stepsim.base.errors import PlanError, WorkloadError
from stepsim.base.structs import File
from stepsim.files.reading import (
    csv_rows,
    number_of,
    open_file,
    parquet_library,
    read_text,
    whole_number,
)
from stepsim.workload.documents import (
    LONGEST,
    Lengths,
    ListedLengths,
    parse_lengths,
)

_COLUMNS = ("length", "lengths", "tokens", "num_tokens", "n_tokens")
_COUNT = "count"
_MOST = 50_000_000
_MOST_ALIKE = 1 << 40
# A line of a file, the length there, and how many documents have it.
_Row = tuple[int, object, object]


def lengths_of(
    lengths: File | Sequence[int],
) -> tuple[Lengths, str]:
    """Lengths as Python has them, and where they are from: a file, a law, or numbers.

    Raises the errors of `read_lengths`.
    """
    if isinstance(lengths, File):
        return read_lengths(str(lengths)), str(lengths)
    return ListedLengths(lengths=tuple(lengths)), "a list"


def read_lengths(text: str, numbers: Mapping[str, float] = {}) -> Lengths:
    """The lengths that a text names: a file of them, else a law with `numbers` in place of its own.

    Raises WorkloadError naming file, line and value, PlanError for a law that cannot be.
    """
    path = Path(text)
    if "(" in text and not path.exists():
        return parse_lengths(text, numbers)
    if numbers:
        raise PlanError(f"{', '.join(numbers)}: a list of lengths has no such number")
    rows = _READERS.get(path.suffix.lower(), _of_lines)
    lengths: list[int] = []
    for line, value, count in rows(path):
        place = f"{path}:{line}"
        length = whole_number(place, "length", value, WorkloadError, 1, LONGEST)
        times = whole_number(place, _COUNT, count, WorkloadError, 1, _MOST_ALIKE)
        if len(lengths) + times > _MOST:
            raise WorkloadError(f"{path}: more than {_MOST:,} lengths: take a sample of them")
        lengths += [length] * times
    if not lengths:
        raise WorkloadError(f"{path}: no lengths: expected a number per line")
    return ListedLengths(lengths=tuple(lengths))


def _content(path: Path) -> str:
    return read_text(path, WorkloadError, "lengths of documents", "a number per line")


def _of_lines(path: Path) -> Iterator[_Row]:
    for line, text in enumerate(_content(path).splitlines(), start=1):
        if word := text.partition("#")[0].strip():
            yield line, word, 1


def _of_rows(path: Path) -> Iterator[_Row]:
    names, rows = csv_rows(path, _content(path), WorkloadError)
    column = _column_of(path, names)
    for line, row in rows:
        yield line, row[column], row.get(_COUNT, 1)


def _of_json_lines(path: Path) -> Iterator[_Row]:
    for line, text in enumerate(_content(path).splitlines(), start=1):
        if not text.strip():
            continue
        try:
            value: Any = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as reason:
            raise WorkloadError(f"{path}:{line}: not valid JSON: {reason}") from None
        count: object = 1
        if isinstance(value, dict):
            column, count = _column_of(path, list(value), f":{line}"), value.get(_COUNT, 1)
            value = value[column]
        yield line, value, count


def _of_parquet(path: Path) -> Iterator[_Row]:
    arrow, parquet = parquet_library(path, WorkloadError)
    try:
        with open_file(path) as file:
            table = parquet.ParquetFile(file)
            names = table.schema_arrow.names
            column = _column_of(path, names)
            lengths = table.read(columns=[column])[column].to_pylist()
            counts: list[object] = [1] * len(lengths)
            if _COUNT in names:
                counts = table.read(columns=[_COUNT])[_COUNT].to_pylist()
            yield from zip(range(1, len(lengths) + 1), lengths, counts, strict=True)
    except (OSError, arrow.ArrowException) as reason:
        raise WorkloadError(f"{path}: cannot read the lengths of documents: {reason}") from None


# What reads files by their suffix; others have a number a line.
_READERS: Mapping[str, Callable[[Path], Iterator[_Row]]] = {
    ".parquet": _of_parquet,
    ".csv": _of_rows,
    ".tsv": _of_rows,
    ".jsonl": _of_json_lines,
    ".ndjson": _of_json_lines,
}


def _column_of(path: Path, names: Sequence[str], line: str = "") -> str:
    """The column that holds lengths: one of the known names, or the only one."""
    found = [name for name in names if name in _COLUMNS]
    if len(found) == 1:
        return found[0]
    others = [name for name in names if name != _COUNT]
    if len(others) == 1 and not number_of(others[0]) >= 1:  # else a length, of a file without names
        return others[0]
    shown = ", ".join(names) or "none"
    raise WorkloadError(f"{path}{line}: columns are {shown}: expected one of {', '.join(_COLUMNS)}")
