"""Whether a database holds what a sweep has written, to the last byte, and nothing else.

SQLite takes any value, and disks lose bits. So the schema must be the one a sweep makes, without
trigger or table of somebody else, values must be possible, and digests must be those of what is
read: one is written with every row, one for the tables that describe the sweep.
"""

import sqlite3
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import SweepError
from stepsim.base.units import Quantity
from stepsim.explore.sweep.database import schema_of
from stepsim.workload.rows import Part

APPLICATION_ID = 0x57E9_51A  # names the file's kind in its header, see `man file`
VERSION = 5
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
    f"{', '.join(f'{name} INTEGER' for name in PART_COLUMNS)}, digest INTEGER)",
    "seal": "CREATE TABLE seal (digest INTEGER)",
}
STEP_COLUMNS = (
    *("step_time_ps", "pipeline_time_ps", "bubble_fraction", "total_bandwidth"),
    *("tokens_per_s", "mfu", "memory_bytes", "fits"),
)
NUMBER_COLUMNS = (*STEP_COLUMNS, *PART_COLUMNS)
_OR_NONE = ", ".join(f"ifnull({name}, -1)" for name in NUMBER_COLUMNS)
ROW_DIGEST = f"row_digest(error, id, {_OR_NONE})"
"""The checksum of a row in SQL."""
_SEALED = {"identity": "name", "sweep": "rowid", "axis": "axis", "axis_value": "axis, position"}
_NUMBERS = struct.Struct(f"<3q4d{2 + len(Part)}q")
_LONGEST = 10_000
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
    # numbers are integers or reals, and errors texts, where there is a digest of them
    "result": "digest IS NOT NULL AND id BETWEEN 0 AND (SELECT size FROM sweep) - 1 "
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


def row_digests(numbers: Sequence[Ints | Floats], errors: Mapping[int, str]) -> list[int]:
    """A checksum of every row: of its numbers, columns of which -1 is none, then of its error.

    CRC-32 is linear: each byte of a row adds, by exclusive or, what it adds to a row of zeros.
    """
    found = np.full(len(numbers[0]), crc32(bytes(8 * len(numbers))), dtype=np.uint32)
    for column, tables in zip(numbers, _added_by_bytes(len(numbers)), strict=True):
        some = column[:1] if (column == column[0]).all() else column
        data = some.astype("<f8" if column.dtype == float else "<i8").view(np.uint8)
        for place, table in enumerate(tables):
            found ^= table.take(data[place::8])
    digests: list[int] = found.tolist()
    for row, error in errors.items():
        digests[row] = crc32(error.encode("utf-8", "surrogatepass"), digests[row])
    return digests


def _added_by_bytes(numbers: int) -> NDArray[np.uint32]:
    """What each byte adds to the CRC-32 of so many numbers: (numbers, 8, 256).

    A byte further from the end adds what a zero behind it makes of that: Sarwate, "Computation of
    cyclic redundancy checks via table look-up", Communications of the ACM 31, 1988.
    """
    last = np.array([crc32(bytes([byte])) for byte in range(256)], dtype=np.uint32)
    last ^= last[0]
    found = [last]
    for _ in range(8 * numbers - 1):
        found.append((found[-1] >> 8) ^ last[found[-1] & 255])
    return np.stack(found[::-1]).reshape(numbers, 8, 256)


def row_digest(error: object, *numbers: object) -> int | None:
    """The checksum of a row, of whose numbers -1 is none; None of what no sweep writes."""
    try:
        digest = crc32(_NUMBERS.pack(*numbers))
    except struct.error:
        return None
    if error is None:
        return digest
    return crc32(error.encode("utf-8", "surrogatepass"), digest) if isinstance(error, str) else None


def seal(connection: sqlite3.Connection) -> int:
    """A checksum of the tables that describe the sweep."""
    total = 0
    for table, order in _SEALED.items():
        for row in connection.execute(f"SELECT * FROM {table} ORDER BY {order}"):
            total = crc32(repr(row).encode("utf-8", "surrogatepass"), total)
    return total


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
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
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
    if connection.execute("SELECT digest FROM seal").fetchall() != [(seal(connection),)]:
        raise _damaged(path, "what it says of the sweep is not what was written")
    connection.create_function("row_digest", -1, row_digest, deterministic=True)
    query = f"SELECT id FROM result WHERE digest IS NOT {ROW_DIGEST} LIMIT 1"
    if row := connection.execute(query).fetchone():
        raise _damaged(path, f"scenario {row[0]} is not what was written")


def _damaged(path: Path, what: str) -> SweepError:
    return SweepError(f"{path}: the database is damaged: {what}")
