"""Whether a database holds what a sweep has written, to the last byte, and nothing else.

SQLite takes any value, and disks lose bits. So the schema must be the one a sweep makes, without
trigger or table of somebody else, SQLite must find it whole, and values must be possible.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from stepsim.base.errors import SweepError
from stepsim.base.units import Quantity
from stepsim.explore.sweep.database import schema_of
from stepsim.workload.axes import Part

APPLICATION_ID = 0x57E9_51A  # names the file's kind in its header, see `man file`
VERSION = 6
PART_COLUMNS = tuple(f"{part.key}_ps" for part in Part)

TABLES = {
    "identity": "CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "sweep": "CREATE TABLE sweep (workload TEXT, topology TEXT, size INTEGER)",
    "axis": "CREATE TABLE axis (axis INTEGER PRIMARY KEY, name TEXT, quantity TEXT, "
    "stride INTEGER, length INTEGER)",
    "axis_value": "CREATE TABLE axis_value (axis INTEGER, position INTEGER, text TEXT, value, "
    "PRIMARY KEY (axis, position)) WITHOUT ROWID",
    "result": "CREATE TABLE result (id INTEGER PRIMARY KEY, step_time_ps INTEGER, "
    "pipeline_time_ps INTEGER, bubble_fraction REAL, total_bandwidth REAL, tokens_per_s REAL, "
    "mfu REAL, memory_bytes INTEGER, fits INTEGER, error TEXT, "
    f"{', '.join(f'{name} INTEGER' for name in PART_COLUMNS)})",
}
STEP_COLUMNS = (
    *("step_time_ps", "pipeline_time_ps", "bubble_fraction", "total_bandwidth"),
    *("tokens_per_s", "mfu", "memory_bytes", "fits"),
)
NUMBER_COLUMNS = (*STEP_COLUMNS, *PART_COLUMNS)
_LONGEST = 10_000
_REALS = ("bubble_fraction", "total_bandwidth", "tokens_per_s", "mfu")
_TYPED = " AND ".join(
    f"typeof({name}) IN ('null', 'integer', '{'real' if name in _REALS else 'integer'}')"
    for name in NUMBER_COLUMNS
)
_BELOW = " OR ".join(f"{name} < 0" for name in PART_COLUMNS)
_SOUND = {
    "sweep": "typeof(workload) = 'text' AND typeof(topology) = 'text' AND typeof(size) = 'integer' "
    f"AND size BETWEEN 1 AND 100000000 AND length(workload) + length(topology) < {_LONGEST}",
    "axis": "typeof(name) = 'text' AND quantity IN ({quantities}) AND typeof(stride) = 'integer' "
    "AND stride BETWEEN 1 AND 100000000 AND length > 0 AND length = (SELECT count(*) FROM "
    "axis_value WHERE axis_value.axis = axis.axis AND position BETWEEN 0 AND length - 1) "
    f"AND length(name) < {_LONGEST}",
    "axis_value": f"typeof(text) = 'text' AND length(text) < {_LONGEST} "
    "AND CASE (SELECT quantity FROM axis WHERE axis.axis = axis_value.axis) "
    "WHEN 'name' THEN typeof(value) = 'text' "
    "ELSE typeof(value) IN ('integer', 'real') AND value >= 0 END",
    "result": f"{_TYPED} AND typeof(error) IN ('text', 'null') "
    "AND id BETWEEN 0 AND (SELECT size FROM sweep) - 1 "
    f"AND (length(error) < {_LONGEST} OR error IS NULL AND step_time_ps >= 0 "
    "AND pipeline_time_ps >= 0 AND bubble_fraction BETWEEN 0 AND 1.000001) "
    "AND (total_bandwidth IS NULL OR total_bandwidth >= 0 AND total_bandwidth < 9e999) "
    "AND (tokens_per_s < 0 OR mfu < 0 OR memory_bytes < 0 OR fits NOT IN (0, 1) OR "
    f"{_BELOW}) IS NOT 1",
}
"""What every row of a table is like; 9e999 is infinite."""


def view(axes: Iterable[tuple[str, int, int]]) -> str:
    """A view with a column per axis (name, stride, length), for people who read it themselves."""
    columns, joins = [], []
    for i, (name, stride, length) in enumerate(axes):
        quoted = name.replace('"', '""')
        columns.append(f'v{i}.text AS "{quoted}"')
        position = f"result.id / {stride} % {length}"
        joins.append(f"JOIN axis_value v{i} ON v{i}.axis = {i} AND v{i}.position = {position}")
    return f"CREATE VIEW scenario AS SELECT {', '.join(columns)}, result.* FROM result " + " ".join(
        joins
    )


def check_kind(connection: sqlite3.Connection, path: Path) -> None:
    """Raise SweepError unless this is a sweep's database of this version, and no more."""
    (kind,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if kind != APPLICATION_ID:
        raise SweepError(f"{path}: a database, but not of a sweep")
    if version != VERSION:
        raise SweepError(f"{path}: written with schema version {version}: expected {VERSION}")
    found = schema_of(connection)
    for name, text in TABLES.items():
        if found.get(name) != text:
            raise _damaged(path, f"table {name}")
    axes = connection.execute("SELECT name, stride, length FROM axis ORDER BY axis").fetchall()
    expected = TABLES | {"scenario": view((str(name), *sizes) for name, *sizes in axes)}
    for name in found:
        if found[name] != expected.get(name):
            raise _damaged(path, f"{name} is not of a sweep")


def check_content(connection: sqlite3.Connection, path: Path) -> None:
    """Raise SweepError where a table holds what no sweep has written."""
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise _damaged(path, str(found))
    quantities = ", ".join(f"'{quantity}'" for quantity in Quantity)
    for table, sound in _SOUND.items():
        query = f"SELECT 1 FROM {table} WHERE ({sound.format(quantities=quantities)}) IS NOT 1"
        if connection.execute(f"{query} LIMIT 1").fetchone():
            raise _damaged(path, f"table {table}")
    (sweeps,) = connection.execute("SELECT count(*) FROM sweep").fetchone()
    if sweeps != 1:
        raise _damaged(path, "table sweep")


def _damaged(path: Path, what: str) -> SweepError:
    return SweepError(f"{path}: the database is damaged: {what}")
