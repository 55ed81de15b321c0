"""Results of a sweep in a SQLite file, written as they come.

A file belongs to one study, told by the table `identity`. Every chunk of scenarios is one
transaction in write-ahead mode: a process killed at any moment leaves whole chunks behind, and
readers see whole chunks at any time. What is missing is found by scenario number.
"""

import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os.path import exists, isfile
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np

from stepsim.base.arrays import Bools, Floats, Ints
from stepsim.base.errors import SweepError
from stepsim.base.structs import Noun
from stepsim.explore.sweep.database import (
    connect,
    connect_alone,
    database_errors,
    disconnect,
    lock_file,
)
from stepsim.explore.sweep.evaluate import Worth
from stepsim.explore.sweep.grid import ScenarioSpan
from stepsim.explore.sweep.sound import (
    APPLICATION_ID,
    NUMBER_COLUMNS,
    PART_COLUMNS,
    TABLES,
    VERSION,
    check_content,
    check_kind,
    view,
)
from stepsim.explore.sweep.study import Study, identity
from stepsim.explore.sweep.work import SpanResult
from stepsim.files.writing import check_writable

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


class SweepStore(Noun):
    """An open database; use it as a context manager."""

    path: Path
    connection: sqlite3.Connection
    lock: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.lock:
            # back to one file, unless somebody reads it just now; the journal is as safe
            with suppress(sqlite3.Error, UnicodeDecodeError):
                self.connection.execute("PRAGMA busy_timeout = 0")
                self.connection.execute("PRAGMA journal_mode = DELETE")
        disconnect(self.connection, self.lock)

    def missing(self, size: int) -> list[ScenarioSpan]:
        """Spans of scenarios below `size` without a result, ascending."""
        with database_errors(self.path):
            if self.connection.execute("SELECT count(*) FROM result").fetchone() == (size,):
                return []
            found = self.connection.execute(_MISSING, {"size": size}).fetchall()
        return [ScenarioSpan(*each) for each in found]

    def write(self, result: SpanResult) -> None:
        """Store the results of a span, all or none of them; raises SweepError."""
        columns = _columns(result)
        with database_errors(self.path), self.connection:
            self.connection.execute("BEGIN IMMEDIATE")
            _insert(self.connection, columns)

    def progress(self) -> SweepProgress:
        """How far the sweep is."""
        with database_errors(self.path):
            (size,) = self.connection.execute("SELECT size FROM sweep").fetchone()
            done, failed = self.connection.execute(
                "SELECT count(*), count(error) FROM result"
            ).fetchone()
        return SweepProgress(size=size, done=done, failed=failed)


def open_for_writing(
    path: Path, study: Study, *, resume: bool = False, force: bool = False
) -> SweepStore:
    """The database of a study: a new one, with `resume` the one that is there.

    With `force` the sweep that is there is thrown away; a file of another kind never is.

    Raises SweepError when the file holds something else, results where none are expected, or is
    being written by another process; OutputError when it cannot be written.
    """
    if resume and force:
        raise SweepError("resume and force contradict each other: give one of them")
    check_writable(path)
    fresh = not exists(path) or path.stat().st_size == 0
    if not fresh and force:
        _clear(path)
    elif not fresh and not resume:
        raise SweepError(
            f"{path}: exists already: --resume (resume=True) continues the same sweep, --force "
            "(force=True) starts it anew, stepsim sweep with it shows what it holds, --db names "
            "another file"
        )
    with database_errors(path):
        connection, lock = connect_alone(path)
        store = SweepStore(path=path, connection=connection, lock=lock)
        try:
            _prepare(store, study)
        except BaseException:
            store.__exit__(None, None, None)
            raise
    return store


def _clear(path: Path) -> None:
    """Empty the database of a sweep; raises SweepError for any other file."""
    with database_errors(path):
        connection = connect(path, read_only=True)
        try:
            (kind,) = connection.execute("PRAGMA application_id").fetchone()
        finally:
            connection.close()
        if kind != APPLICATION_ID:
            raise SweepError(f"{path}: a database, but not of a sweep: --force keeps it")
        lock = lock_file(path)
        try:
            os.truncate(path, 0)
            for suffix in ("-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
        finally:
            if lock:
                lock.close()


def open_for_reading(path: Path) -> SweepStore:
    """The database of a sweep that is finished or running; raises SweepError if it is none."""
    if not isfile(path):
        raise SweepError(f"{path}: cannot read the sweep: no such file")
    with database_errors(path):
        store = SweepStore(path=path, connection=connect(path, read_only=True))
        try:
            check_kind(store.connection, path)
            check_content(store.connection, path)
        except BaseException:
            store.__exit__(None, None, None)
            raise
    return store


def _prepare(store: SweepStore, study: Study) -> None:
    """Make the tables in an empty file, else check that they are this study's."""
    connection = store.connection
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
        with connection:
            connection.execute("BEGIN EXCLUSIVE")
            _create(connection, study)
    else:
        check_kind(connection, store.path)
        check_content(connection, store.path)
        _check_identity(store, identity(study))
    connection.execute("PRAGMA journal_mode = WAL")
    # a killed process loses nothing; a power cut at most the last chunks, never the file
    connection.execute("PRAGMA synchronous = NORMAL")


def _check_identity(store: SweepStore, wanted: Mapping[str, str]) -> None:
    held = dict(store.connection.execute("SELECT name, value FROM identity"))
    different = [name for name in {**held, **wanted} if held.get(name) != wanted.get(name)]
    if different:
        shown = "; ".join(
            f"{name} is {held.get(name, 'absent')} there, {wanted.get(name, 'absent')} here"
            for name in different[:3]
        )
        more = f" (and {len(different) - 3} more)" if len(different) > 3 else ""
        raise SweepError(f"{store.path}: holds another sweep: {shown}{more}")


def _create(connection: sqlite3.Connection, study: Study) -> None:
    grid = study.grid
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    for table in TABLES.values():
        connection.execute(table)
    connection.executemany("INSERT INTO identity VALUES (?, ?)", identity(study).items())
    names = study.workload.source, study.topology.name, grid.size
    connection.execute("INSERT INTO sweep VALUES (?, ?, ?)", names)
    axes = [(axis.name, grid.strides[axis.name], len(axis)) for axis in grid.axes]
    for i, (axis, (name, stride, length)) in enumerate(zip(grid.axes, axes, strict=True)):
        row = i, name, axis.kind.quantity.value, stride, length
        connection.execute("INSERT INTO axis VALUES (?, ?, ?, ?, ?)", row)
        values = enumerate(zip(axis.texts, axis.values, strict=True))
        rows = ((i, position, text, value) for position, (text, value) in values)
        connection.executemany("INSERT INTO axis_value VALUES (?, ?, ?, ?)", rows)
    connection.execute(view(axes))


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


def _columns(result: SpanResult) -> dict[str, Sequence[object]]:
    """Columns of `result` by name, without those of which nobody knows a value.

    A failed scenario has an error and no numbers, a free link no bandwidth.
    """
    found, errors = result.outcomes, result.outcomes.errors
    count, ran = len(found.step_time_ps), result.ran
    parts = found.parts_ps
    if parts is None:
        parts = np.zeros((count, len(PART_COLUMNS)), np.int64)
    worth = found.worth or Worth.of([None] * count)
    valued = ran & np.isfinite(worth.mfu)
    known = [ran] * 3 + [np.isfinite(result.total_bandwidth)]
    known += [valued, valued, valued & (worth.memory_bytes >= 0), valued & (worth.fits >= 0)]
    known += [ran & (found.parts_ps is not None)] * len(PART_COLUMNS)
    numbers: list[Ints | Floats] = [
        found.step_time_ps,
        found.pipeline_time_ps,
        found.bubble_fraction,
        result.total_bandwidth,
        worth.tokens_per_s,
        worth.mfu,
        worth.memory_bytes,
        worth.fits,
        *parts.T,
    ]
    scenario = result.scenarios
    shown = {
        name: _shown(column, each)
        for name, column, each in zip(NUMBER_COLUMNS, numbers, known, strict=True)
        if each.any()
    }
    failed = {"error": list(map(errors.get, range(count)))} if errors else {}
    return {
        "id": scenario.tolist(),
        **shown,
        **failed,
    }


def _shown(column: Ints | Floats, known: Bools) -> list[int | float | None]:
    """Values of a column, None of those that nobody knows."""
    values: list[int | float | None] = column.tolist()
    if known.all():
        return values
    return [value if each else None for value, each in zip(values, known.tolist(), strict=True)]
