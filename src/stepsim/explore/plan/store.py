"""Results of plans in a SQLite file, each written when it is found.

A file belongs to one search, told by the table `identity`. Its schema must be its own.
"""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from stepsim.base.errors import SweepError
from stepsim.base.structs import Noun
from stepsim.explore.sweep.database import connect_alone, database_errors, disconnect, schema_of
from stepsim.files.writing import check_writable

_APPLICATION_ID = 0x57E9_51B  # names the file's kind in its header, see `man file`
_OF = "a search of plans"
_TABLES = {
    "identity": "CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "plan": "CREATE TABLE plan (hash TEXT PRIMARY KEY, run BLOB NOT NULL)",
}


class PlanStore(Noun):
    """An open file of results, which nobody else writes."""

    path: Path
    connection: sqlite3.Connection
    lock: BinaryIO | None

    def get(self, plan: str) -> bytes | None:
        """The result of the plan with this hash; raises SweepError where it is damaged."""
        with database_errors(self.path, _OF):
            query = "SELECT run FROM plan WHERE hash = ?"
            found = self.connection.execute(query, (plan,)).fetchone()
        return bytes(found[0]) if found else None

    def put(self, plan: str, run: bytes) -> None:
        """Keep the result of a plan; raises SweepError."""
        with database_errors(self.path, _OF):
            self.connection.execute("INSERT OR REPLACE INTO plan VALUES (?, ?)", (plan, run))

    def close(self) -> None:
        """Let others write the file."""
        disconnect(self.connection, self.lock)


def open_plans(path: Path, identity: Mapping[str, str], *, resume: bool) -> PlanStore:
    """The file of a search: a new one, with `resume` the one that is there.

    Raises SweepError when the file holds something else, results where none are expected, or is
    being written by another process; OutputError when it cannot be written.
    """
    check_writable(path)
    if path.exists() and path.stat().st_size and not resume:
        raise SweepError(f"{path}: exists already: --resume continues the same search")
    with database_errors(path, _OF):
        connection, lock = connect_alone(path)
        store = PlanStore(path=path, connection=connection, lock=lock)
        try:
            _prepare(store, identity)
        except BaseException:
            store.close()
            raise
    return store


def _prepare(store: PlanStore, identity: Mapping[str, str]) -> None:
    """Make the tables in an empty file, else check that they are this search's."""
    connection, path = store.connection, store.path
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
        with connection:
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            for table in _TABLES.values():
                connection.execute(table)
            connection.executemany("INSERT INTO identity VALUES (?, ?)", identity.items())
        return
    if connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION_ID,):
        raise SweepError(f"{path}: a database, but not of {_OF}")
    if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        raise SweepError(f"{path}: the database is damaged")
    if schema_of(connection) != _TABLES:
        raise SweepError(f"{path}: the database is damaged: its tables are not of {_OF}")
    held = dict(connection.execute("SELECT name, value FROM identity"))
    for name in {**held, **identity}:
        there, here = (each.get(name, "absent") for each in (held, identity))
        if there != here:
            raise SweepError(f"{path}: holds another search: {name} is {there} there, {here} here")
