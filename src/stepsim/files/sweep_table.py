"""Results of a sweep: a table in the order of its scenarios, in a SQLite file.

It is written as results come: every chunk of scenarios is one transaction, and what is missing is
found by scenario number. It is read piece by piece.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepsim.base.arrays import Floats, ints
from stepsim.base.axes import Part
from stepsim.base.errors import SweepError
from stepsim.base.structs import Names, Noun
from stepsim.base.units import Quantity
from stepsim.files.axes import Axis, Grid
from stepsim.files.store import IDENTITY, Store, StoreKind, read_store, write_store

PART_COLUMNS = tuple(f"{part.key}_ps" for part in Part)
STEP_COLUMNS = (
    *("step_time_ps", "pipeline_time_ps", "bubble_fraction", "total_bandwidth"),
    *("tokens_per_s", "mfu", "memory_bytes", "fits"),
)
# What exports call them: with the unit.
_NAMES = tuple(name.replace("bandwidth", "bandwidth_bytes_per_s") for name in STEP_COLUMNS)
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


_PIECE = 65_536
# Whether a scenario is known not to fit; in an order such ones follow all others.
_LACKS = "fits IS 0"


class SweepProgress(Noun):
    """Scenarios of a sweep: all, those with a result or an error, those with an error."""

    size: int
    done: int
    failed: int


def open_for_writing(
    path: Path,
    grid: Grid,
    identity: Mapping[str, str],
    *,
    resume: bool = False,
    force: bool = False,
) -> AbstractContextManager[Store]:
    """The database of a grid's scenarios, as `stepsim.files.store.write_store` opens it.

    `identity` is what all scenarios have in common. Raises SweepError for options that contradict
    each other.
    """
    if resume and force:
        raise SweepError("resume and force contradict each other: give one of them")

    fill = partial(_write_axes, grid)
    return write_store(path, _SWEEP, identity, fill, resume=resume, force=force)


def open_for_reading(path: Path) -> AbstractContextManager[Store]:
    """The database of a sweep that is finished or running; raises SweepError if it is none."""
    return read_store(path, _SWEEP)


def missing_spans(store: Store, size: int) -> list[range]:
    """Spans of scenarios below `size` without a result, ascending."""
    if next(store.each("SELECT count(*) FROM result")) == (size,):
        return []
    return [range(*each) for each in store.each(_MISSING, size)]


def progress_of(store: Store) -> SweepProgress:
    """How far the sweep is."""
    size = prod(length for (length,) in store.each("SELECT length FROM axis"))
    done, failed = next(store.each("SELECT count(*), count(error) FROM result"))
    return SweepProgress(size=size, done=done, failed=failed)


def write_span(store: Store, span: range, results: Mapping[str, Sequence[object]]) -> None:
    """Store columns of the results of a span, all or none of them; raises SweepError.

    Rows are written several with a statement: a third faster than one by one.
    """
    columns = {"id": span, **results}
    width = len(columns)
    values: list[object] = [None] * (width * len(columns["id"]))
    for place, column in enumerate(columns.values()):
        values[place::width] = column
    row, begin = f"({', '.join('?' * width)})", 0
    with store.transaction() as connection:
        for rows in (_ROWS, 1):
            size = rows * width
            end = begin + (len(values) - begin) // size * size
            connection.executemany(
                f"INSERT INTO result ({', '.join(columns)}) VALUES {', '.join([row] * rows)}",
                (values[i : i + size] for i in range(begin, end, size)),
            )
            begin = end


def _write_axes(grid: Grid, connection: sqlite3.Connection) -> None:
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


class Extreme(NamedTuple):
    """A scenario, its step time in ps, and whether it fits: None where that is not known."""

    scenario: int
    step_time_ps: int
    fits: int | None = None


class _ValueTotals(NamedTuple):
    """Scenarios with one value of an axis: least and mean step time in ps, None if all failed.

    The least is that of those that fit, None where none does.
    """

    position: int
    least_ps: int | None
    mean_ps: float | None
    scenarios: int
    failed: int


class SweepTable(Noun, dict=True):
    """What a database says of its sweep; every property and iterator reads from the file."""

    store: Store

    @cached_property
    def source(self) -> tuple[str, str]:
        """Names of the workload and the topology."""
        workload, topology = (self.identity[n].rpartition(" ")[0] for n in ("workload", "topology"))
        return workload, topology

    @cached_property
    def identity(self) -> dict[str, str]:
        """What all scenarios have in common, as a study says it."""
        return dict(self._all("SELECT name, value FROM identity"))

    @cached_property
    def progress(self) -> SweepProgress:
        """Scenarios: all, done, failed."""
        return progress_of(self.store)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Axes in the order in which the user named them."""
        rows = self._all("SELECT * FROM axis ORDER BY axis")
        return tuple(self._axis(*row) for row in rows)

    def axis(self, name: str) -> Axis:
        """The axis of a name; raises SweepError naming those there are."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        expected = ", ".join(axis.name for axis in self.axes)
        raise SweepError(f"{name!r} is no axis of this sweep: expected {expected}")

    def _axis(self, number: int, name: str, quantity: str, stride: int, length: int) -> Axis:
        query = "SELECT text, value FROM axis_value WHERE axis = ? ORDER BY position"
        values = self._all(query, number)
        if len(values) != length:
            raise self.store.damaged(f"{len(values)} values of {name}")
        texts, parsed = zip(*values, strict=True)
        return Axis(
            name=name, quantity=Quantity(quantity), texts=texts, values=parsed, stride=stride
        )

    @cached_property
    def part_columns(self) -> Names:
        """Parts of the step time, empty where the sweep kept none."""
        return PART_COLUMNS if self.identity.get("breakdown") == "on" else ()

    @property
    def header(self) -> Names:
        """Columns of `pieces`: axes, numbers, parts, the reason of a failure."""
        axes = (axis.column for axis in self.axes)
        return (*axes, *_NAMES, *self.part_columns, "error")

    def pieces(self, *, texts: bool = False) -> Iterator[list[list[object]]]:
        """Columns of up to 65,536 scenarios at a time, ascending.

        Numbers of axes are in their unit, with `texts` as the user wrote them.
        """
        columns = ", ".join(("id", *STEP_COLUMNS, *self.part_columns, "error"))
        query = f"SELECT {columns} FROM result WHERE id >= ? ORDER BY id LIMIT {_PIECE}"
        start = 0
        while rows := self._all(query, start):
            scenarios, *found = map(list, zip(*rows, strict=True))
            ids = ints(scenarios)
            columns_of_axes = []
            for axis in self.axes:
                values = axis.texts if texts else axis.shown
                columns_of_axes.append([values[i] for i in axis.positions(ids).tolist()])
            yield columns_of_axes + found
            start = rows[-1][0] + 1

    def extremes(self, count: int, *, slowest: bool = False) -> list[Extreme]:
        """The fastest or slowest scenarios, the first first; ties in the order of scenarios.

        Those that do not fit their devices follow all others.
        """
        order = "DESC" if slowest else "ASC"
        query = (
            "SELECT id, step_time_ps, fits FROM result WHERE error IS NULL "
            f"ORDER BY {_LACKS}, step_time_ps {order}, id LIMIT ?"
        )
        return [Extreme(*row) for row in self._all(query, count)]

    def first_error(self) -> tuple[int, str] | None:
        """The first failed scenario and its reason."""
        if not self.progress.failed:
            return None
        found = self._all(
            "SELECT id, error FROM result WHERE error IS NOT NULL ORDER BY id LIMIT 1"
        )
        return found[0] if found else None

    def refuse_if_all_failed(self) -> None:
        """Raise SweepError with the first reason when no scenario could run."""
        progress, failure = self.progress, self.first_error()
        if failure and progress.failed == progress.done:
            raise SweepError(f"none of {progress.done} scenarios can run; the first: {failure[1]}")

    def by_value(self, axis: Axis) -> list[_ValueTotals]:
        """Summary of the scenarios of each value of an axis, in the order of the values."""
        query = (
            f"SELECT id / {axis.stride} % {len(axis)} AS value, "
            f"min(CASE WHEN {_LACKS} THEN NULL ELSE step_time_ps END), avg(step_time_ps), "
            "count(*), count(error) FROM result GROUP BY value ORDER BY value"
        )
        return [_ValueTotals(*row) for row in self._all(query)]

    def fastest(self, axes: Sequence[Axis], columns: Sequence[str]) -> Floats:
        """Numbers of the fastest scenario for every combination of these axes over all others.

        An array whose first dimension is that of the columns, the others those of the axes; NaN
        where no scenario has a result. Of equally fast scenarios the first counts, and one that
        does not fit only where none does.
        """
        shape = tuple(len(axis) for axis in axes)
        keys = [f"id / {axis.stride} % {len(axis)} AS key{i}" for i, axis in enumerate(axes)]
        source = f"SELECT *, {', '.join(keys)} FROM result WHERE error IS NULL"
        names = ", ".join(f"key{i}" for i in range(len(axes)))
        if prod(shape) < prod(len(axis) for axis in self.axes):
            order = f"{_LACKS}, step_time_ps, id"
            place = f"row_number() OVER (PARTITION BY {names} ORDER BY {order})"
            source = f"SELECT * FROM (SELECT *, {place} AS place FROM ({source})) WHERE place = 1"
        found = np.full((len(columns), *shape), np.nan)
        for row in self.store.each(f"SELECT {names}, {', '.join(columns)} FROM ({source})"):
            found[:, *row[: len(axes)]] = row[len(axes) :]
        return found

    def settings(self, scenario: int) -> dict[str, str]:
        """Texts of a scenario's values by the names of the axes."""
        return {axis.name: axis.text(scenario) for axis in self.axes}

    def _all(self, query: str, *arguments: object) -> list[Any]:
        return list(self.store.each(query, *arguments))
