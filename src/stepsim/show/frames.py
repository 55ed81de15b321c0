"""The tables of a result as columns: for a DataFrame, for CSV.

Every list of entries in a document is a table under the name of its key. A row's mappings become
columns of their own, `breakdown_ps.compute`. A list in a row stays one value: of a DataFrame a
tuple, of CSV its JSON text.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, get_args

import msgspec
import numpy as np

from stepsim.base.structs import Entry
from stepsim.base.writing import csv_lines
from stepsim.documents.table import Ordered, Sheet, Table

Columns = Mapping[str, list[Any]]
"""Values of a table by the names of its columns, one per row each; None where there is none."""

_NAMES: Mapping[str, str] = {"comms": "communications"}


Tables = dict[str, Callable[[], Columns]]
"""Tables by their names, made when somebody asks."""


def tables_of(document: msgspec.Struct) -> Tables:
    """The tables of a document."""
    found: Tables = {}
    for field in msgspec.structs.fields(document):
        entries = getattr(document, field.name)
        if not isinstance(entries, tuple):
            continue
        declared = [each for each in get_args(field.type) if isinstance(each, type)]
        kinds = [each for each in declared if issubclass(each, msgspec.Struct)]
        if kinds or (entries and all(isinstance(each, msgspec.Struct) for each in entries)):
            empty = kinds[0].__struct_encode_fields__ if kinds else ()
            found[_NAMES.get(field.name, field.name)] = partial(_columns_of, entries, empty)
    return found


def _columns_of(entries: Iterable[msgspec.Struct], names: Iterable[str]) -> Columns:
    """The columns of some entries; `names` are those of a table without rows."""
    plain = (entry.plain if isinstance(entry, Entry) else entry for entry in entries)
    rows = [dict(_flat(msgspec.to_builtins(each))) for each in plain]
    known = dict.fromkeys(name for row in rows for name in row) if rows else names
    return {name: [row.get(name) for row in rows] for name in known}


def columns_of_rows(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> Columns:
    """The columns of some rows, each with a value per name."""
    names, every = tuple(names), list(rows)
    turned = zip(*every, strict=True) if every else ((),) * len(names)
    return {name: list(values) for name, values in zip(names, turned, strict=True)}


def frame_of(columns: Columns) -> Any:
    """A pandas DataFrame of columns; without pandas their numpy arrays by name."""
    try:
        import pandas
    except ImportError:
        return {name: np.array(values) for name, values in columns.items()}
    return pandas.DataFrame(dict(columns))


def first_table(shown: Sheet) -> Columns:
    """The first of some tables, all its rows, as numbers in ps and bytes; else the first pairs."""
    several = list(shown)
    for each in several:
        if isinstance(each, Table):
            return {
                name: [
                    cell.text if isinstance(cell := row[i], Ordered) else cell for row in each.rows
                ]
                for i, name, _ in each.in_words
            }
    pairs = next((each for each in several if isinstance(each, tuple)), ())
    return columns_of_rows(("name", "value"), pairs)


def csv_text(columns: Columns) -> str:
    """Columns as CSV with a line of names; nothing stands for None, JSON for a list."""
    rows = zip(*columns.values(), strict=True)
    cells = (
        [msgspec.json.encode(v).decode() if isinstance(v, tuple | list) else v for v in row]
        for row in rows
    )
    return csv_lines(chain([columns], cells))


def _flat(plain: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in plain.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value
