"""SQLite files that hold results: how they are opened, locked, and told apart from others.

A file belongs to one question, told by the table `identity`, and is written by one process at a
time. It is in write-ahead mode: a process killed at any moment leaves whole transactions behind,
and readers see whole ones at any time.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from os.path import exists, isfile
from pathlib import Path
from typing import Any, BinaryIO

from stepsim.base.errors import SweepError
from stepsim.base.structs import Noun
from stepsim.base.writing import check_writable
from stepsim.files.reading import open_file

_WAIT_S = 30.0
_SHOWN = 3
IDENTITY = {"identity": "CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL)"}
"""The table that every file has: what must be the same for results to belong together."""


class StoreKind(Noun):
    """A kind of files: what they hold, and the `tables` with the statements that make them.

    `number` stands in a file's header (see `man file`), and the `version` of the tables. `begun`
    says what to do with one that is there already. What is `sound` is true of every row of a table:
    SQLite takes any value.
    """

    name: str
    number: int
    version: int
    tables: Mapping[str, str]
    begun: str
    sound: Mapping[str, str] = {}


class Store(Noun):
    """An open file of results."""

    path: Path
    kind: StoreKind
    connection: sqlite3.Connection

    def each(self, query: str, *arguments: object) -> Iterator[Any]:
        """Rows that SQLite answers; raises SweepError."""
        with database_errors(self.path, self.kind.name):
            yield from self.connection.execute(query, arguments)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Statements of which all or none are kept; raises SweepError."""
        with database_errors(self.path, self.kind.name), self.connection:
            self.connection.execute("BEGIN IMMEDIATE")
            yield self.connection

    def damaged(self, what: object) -> SweepError:
        """The error of a file that holds what nobody has written."""
        return SweepError(f"{self.path}: the database is damaged: {what}")

    def check(self) -> None:
        """Raise SweepError unless the file is of this kind and version, and SQLite finds it whole.

        Nobody else's table, index or trigger may be there, and every row must be sound.
        """
        (number,), (version,) = self.each(
            "SELECT * FROM pragma_application_id UNION ALL SELECT * FROM pragma_user_version"
        )
        if number != self.kind.number:
            raise SweepError(f"{self.path}: a database, but not of a {self.kind.name}")
        if version != self.kind.version:
            raise SweepError(
                f"{self.path}: written with schema version {version}: expected {self.kind.version}"
            )
        (whole,) = next(self.each("PRAGMA integrity_check(1)"))
        if whole != "ok":
            raise self.damaged(whole)
        query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND type != 'view'"
        if dict(self.each(query)) != self.kind.tables:
            raise self.damaged(f"its tables are not of a {self.kind.name}")
        for table, sound in self.kind.sound.items():
            if any(self.each(f"SELECT 1 FROM {table} WHERE ({sound}) IS NOT 1 LIMIT 1")):
                raise self.damaged(f"table {table}")

    def check_identity(self, wanted: Mapping[str, str]) -> None:
        """Raise SweepError where the results are of another question; it says what differs."""
        held = dict(self.each("SELECT name, value FROM identity"))
        different = [name for name in {**held, **wanted} if held.get(name) != wanted.get(name)]
        if different:
            shown = "; ".join(
                f"{name} is {held.get(name, 'absent')} there, {wanted.get(name, 'absent')} here"
                for name in different[:_SHOWN]
            )
            more = f" (and {len(different) - _SHOWN} more)" if len(different) > _SHOWN else ""
            raise SweepError(f"{self.path}: holds another {self.kind.name}: {shown}{more}")


@contextmanager
def write_store(
    path: Path,
    kind: StoreKind,
    identity: Mapping[str, str],
    fill: Callable[[sqlite3.Connection], None] = lambda connection: None,
    *,
    resume: bool = False,
    force: bool = False,
) -> Iterator[Store]:
    """A file of results within the block: a new one, with `resume` the one that is there.

    With `force` the results that are there are thrown away; a file of another kind never is. `fill`
    writes what a new one holds beside its tables. Raises SweepError when the file holds something
    else, results where none are expected, or is being written by another process; OutputError when
    it cannot be written.
    """
    check_writable(path)
    fresh = not exists(path) or path.stat().st_size == 0
    if not fresh and not resume and not force:
        raise SweepError(f"{path}: exists already: {kind.begun}")
    with _locked(path, kind):
        if force and not fresh:
            _clear(path, kind)
        with _connected(path, kind, mode="rwc") as store:
            (things,) = next(store.each("SELECT count(*) FROM sqlite_master"))
            if things:
                store.check()
                store.check_identity(identity)
            else:
                _make(store, identity, fill)
            with database_errors(path, kind.name):
                store.connection.execute("PRAGMA journal_mode = WAL")
                # a killed process loses nothing; a power cut at most the last, never the file
                store.connection.execute("PRAGMA synchronous = NORMAL")
            try:
                yield store
            finally:
                # back to one file, unless somebody reads it just now; the journal is as safe
                with suppress(sqlite3.Error, UnicodeDecodeError):
                    store.connection.execute("PRAGMA busy_timeout = 0")
                    store.connection.execute("PRAGMA journal_mode = DELETE")


@contextmanager
def read_store(path: Path, kind: StoreKind) -> Iterator[Store]:
    """A file of results that is finished or written just now; raises SweepError if it is none."""
    if not isfile(path):
        raise SweepError(f"{path}: cannot read the {kind.name}: no such file")
    with _connected(path, kind, mode="ro") as store:
        store.check()
        yield store


def _make(
    store: Store, identity: Mapping[str, str], fill: Callable[[sqlite3.Connection], None]
) -> None:
    with store.transaction() as connection:
        connection.execute(f"PRAGMA application_id = {store.kind.number}")
        connection.execute(f"PRAGMA user_version = {store.kind.version}")
        for table in store.kind.tables.values():
            connection.execute(table)
        connection.executemany("INSERT INTO identity VALUES (?, ?)", identity.items())
        fill(connection)


def _clear(path: Path, kind: StoreKind) -> None:
    """Empty a file of results; raises SweepError for any other file."""
    with _connected(path, kind, mode="ro") as store:
        if next(store.each("PRAGMA application_id")) != (kind.number,):
            raise SweepError(f"{path}: a database, but not of a {kind.name}: --force keeps it")
    with database_errors(path, kind.name):
        os.truncate(path, 0)
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)


@contextmanager
def _connected(path: Path, kind: StoreKind, *, mode: str) -> Iterator[Store]:
    name = f"{path.absolute().as_uri()}?mode={mode}"
    with database_errors(path, kind.name):
        _check_plain(path)
        connection = sqlite3.connect(name, uri=True, timeout=_WAIT_S, isolation_level=None)
    with closing(connection):
        yield Store(path=path, kind=kind, connection=connection)


@contextmanager
def _locked(path: Path, kind: StoreKind) -> Iterator[None]:
    """Keep others from writing the same file; the system frees it when the process ends.

    It is the last that is closed: closing any handle of a file drops SQLite's own locks on it.
    Raises SweepError where another process has it; files have no locks on Windows.
    """
    lock: BinaryIO | None = None
    with database_errors(path, kind.name):
        _check_plain(path)
        with suppress(ImportError):
            import fcntl

            lock = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "rb")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                raise SweepError(f"{path}: another process is writing it") from None
    try:
        yield
    finally:
        if lock:
            lock.close()


@contextmanager
def database_errors(path: Path, name: str) -> Iterator[None]:
    """Turn SQLite's and the system's errors into a SweepError that names the file."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, sqlite3.DatabaseError | UnicodeDecodeError) and not isinstance(
            error, sqlite3.OperationalError
        ):
            why = f"not a database of a {name}, or damaged ({error})"
        raise SweepError(f"{path}: {why}") from None


def _check_plain(path: Path) -> None:
    """Raise OSError for a device or a pipe: SQLite would wait for what it never says."""
    if exists(path):
        open_file(path, most=None).close()
