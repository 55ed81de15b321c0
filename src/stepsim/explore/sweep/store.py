"""Results of a sweep in a SQLite file, written as they come.

Every chunk of scenarios is one transaction. What is missing is found by scenario number.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from math import prod
from pathlib import Path

import numpy as np

from stepsim.base.arrays import Bools, Floats, Ints
from stepsim.base.errors import SweepError
from stepsim.base.structs import Noun
from stepsim.base.units import Quantity
from stepsim.explore.store import IDENTITY, Store, StoreKind, read_store, write_store
from stepsim.explore.sweep.axes import Grid, ScenarioSpan
from stepsim.explore.sweep.evaluate import Outcomes
from stepsim.explore.sweep.study import Study, identity
from stepsim.workload.axes import Part

PART_COLUMNS = tuple(f"{part.key}_ps" for part in Part)
STEP_COLUMNS = (
    *("step_time_ps", "pipeline_time_ps", "bubble_fraction", "total_bandwidth"),
    *("tokens_per_s", "mfu", "memory_bytes", "fits"),
)
_REALS = ("bubble_fraction", "total_bandwidth", "tokens_per_s", "mfu")
_QUANTITIES = ", ".join(f"'{quantity}'" for quantity in Quantity)
NUMBER_TYPES = {
    name: "real" if name in _REALS else "integer" for name in (*STEP_COLUMNS, *PART_COLUMNS)
}
_NUMBERS = " AND ".join(
    f"typeof({name}) IN ('null', '{kind}') AND ({name} BETWEEN 0 AND 1e300) IS NOT 0"
    for name, kind in NUMBER_TYPES.items()
)
_SWEEP = StoreKind(
    name="sweep",
    number=0x57E9_51A,
    version=7,
    tables={
        **IDENTITY,
        "axis": "CREATE TABLE axis (axis INTEGER PRIMARY KEY, name TEXT NOT NULL, "
        "quantity TEXT NOT NULL, stride INTEGER NOT NULL, length INTEGER NOT NULL)",
        "axis_value": "CREATE TABLE axis_value (axis INTEGER, position INTEGER, "
        "text TEXT NOT NULL, value NOT NULL, PRIMARY KEY (axis, position)) WITHOUT ROWID",
        "result": "CREATE TABLE result (id INTEGER PRIMARY KEY, "
        f"{', '.join(f'{name} {kind}' for name, kind in NUMBER_TYPES.items())}, error TEXT)",
    },
    sound={
        "axis": f"quantity IN ({_QUANTITIES}) AND stride > 0 AND length > 0",
        "result": f"{_NUMBERS} AND id >= 0 AND (typeof(error) = 'text' OR error IS NULL AND "
        "step_time_ps + pipeline_time_ps + bubble_fraction IS NOT NULL)",
    },
    begun="--resume (resume=True) continues the same sweep, --force (force=True) starts it anew, "
    "stepsim sweep with it shows what it holds, --db names another file",
)
_ROWS = 20
_MISSING = """
    SELECT id + 1, following FROM (
        SELECT id, LEAD(id, 1, :size) OVER (ORDER BY id) AS following
        FROM (SELECT -1 AS id UNION ALL SELECT id FROM result)
    ) WHERE following > id + 1
"""


class SweepProgress(Noun):
    """Scenarios of a sweep: all, those with a result or an error, those with an error."""

    size: int
    done: int
    failed: int


def open_for_writing(
    path: Path, study: Study, *, resume: bool = False, force: bool = False
) -> AbstractContextManager[Store]:
    """The database of a study, as `stepsim.explore.store.write_store` opens it.

    Raises SweepError for options that contradict each other.
    """
    if resume and force:
        raise SweepError("resume and force contradict each other: give one of them")

    def fill(connection: sqlite3.Connection) -> None:
        _write_axes(connection, study.grid)

    return write_store(path, _SWEEP, identity(study), fill, resume=resume, force=force)


def open_for_reading(path: Path) -> AbstractContextManager[Store]:
    """The database of a sweep that is finished or running; raises SweepError if it is none."""
    return read_store(path, _SWEEP)


def missing_spans(store: Store, size: int) -> list[ScenarioSpan]:
    """Spans of scenarios below `size` without a result, ascending."""
    if next(store.each("SELECT count(*) FROM result")) == (size,):
        return []
    return [ScenarioSpan(*each) for each in store.each(_MISSING, size)]


def progress_of(store: Store) -> SweepProgress:
    """How far the sweep is."""
    size = prod(length for (length,) in store.each("SELECT length FROM axis"))
    done, failed = next(store.each("SELECT count(*), count(error) FROM result"))
    return SweepProgress(size=size, done=done, failed=failed)


def write_span(store: Store, span: ScenarioSpan, found: Outcomes) -> None:
    """Store the results of a span, all or none of them; raises SweepError."""
    columns = {"id": range(*span), **_columns(found)}
    with store.transaction() as connection:
        _insert(connection, columns)


def _insert(connection: sqlite3.Connection, columns: Mapping[str, Sequence[object]]) -> None:
    """Append rows, several with a statement: a third faster than one by one."""
    width = len(columns)
    values: list[object] = [None] * (width * len(columns["id"]))
    for place, column in enumerate(columns.values()):
        values[place::width] = column
    row, begin = f"({', '.join('?' * width)})", 0
    for rows in (_ROWS, 1):
        size = rows * width
        end = begin + (len(values) - begin) // size * size
        connection.executemany(
            f"INSERT INTO result ({', '.join(columns)}) VALUES {', '.join([row] * rows)}",
            (values[i : i + size] for i in range(begin, end, size)),
        )
        begin = end


def _write_axes(connection: sqlite3.Connection, grid: Grid) -> None:
    """The axes, and a view with a column for each, for people who read it themselves."""
    columns, joins = [], []
    for i, axis in enumerate(grid.placed):
        stride, length = axis.stride, len(axis)
        row = i, axis.name, axis.quantity.value, stride, length
        connection.execute("INSERT INTO axis VALUES (?, ?, ?, ?, ?)", row)
        values = enumerate(zip(axis.texts, axis.values, strict=True))
        rows = ((i, position, text, value) for position, (text, value) in values)
        connection.executemany("INSERT INTO axis_value VALUES (?, ?, ?, ?)", rows)
        quoted = axis.name.replace('"', '""')
        columns.append(f'v{i}.text AS "{quoted}"')
        position = f"result.id / {stride} % {length}"
        joins.append(f"JOIN axis_value v{i} ON v{i}.axis = {i} AND v{i}.position = {position}")
    connection.execute(
        f"CREATE VIEW scenario AS SELECT {', '.join(columns)}, result.* FROM result "
        + " ".join(joins)
    )


def _columns(found: Outcomes) -> dict[str, Sequence[object]]:
    """Columns of `result` by name, without those of which nobody knows a value.

    A failed scenario has an error and no numbers, a free link no bandwidth.
    """
    ran = np.ones(len(found.step_time_ps), bool)
    ran[list(found.errors)] = False
    columns: dict[str, tuple[Ints | Floats, Bools]] = {}
    for name in STEP_COLUMNS:
        numbers = getattr(found, name)
        if numbers is not None:
            columns[name] = numbers, np.isfinite(numbers) & (ran | (name == "total_bandwidth"))
    if found.parts_ps is not None:
        columns |= {
            name: (ps, ran) for name, ps in zip(PART_COLUMNS, found.parts_ps.T, strict=True)
        }
    shown: dict[str, Sequence[object]] = {
        name: _shown(*column) for name, column in columns.items() if column[1].any()
    }
    if found.errors:
        shown["error"] = list(map(found.errors.get, range(len(ran))))
    return shown


def _shown(column: Ints | Floats, known: Bools) -> list[int | float | None]:
    """Values of a column, None of those that nobody knows."""
    values: list[int | float | None] = column.tolist()
    if known.all():
        return values
    return [value if each else None for value, each in zip(values, known.tolist(), strict=True)]
