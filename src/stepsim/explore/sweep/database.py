"""SQLite files that hold results: how they are opened, locked, and told apart from others."""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os.path import exists
from pathlib import Path
from typing import BinaryIO

from stepsim.base.errors import SweepError
from stepsim.files.reading import open_file

_WAIT_S = 30.0


@contextmanager
def database_errors(path: Path, of: str = "a sweep") -> Iterator[None]:
    """Turn SQLite's and the system's errors into a SweepError that names the file, `of` what."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, sqlite3.DatabaseError | UnicodeDecodeError) and not isinstance(
            error, sqlite3.OperationalError
        ):
            why = f"not a database of {of}, or damaged ({error})"
        raise SweepError(f"{path}: {why}") from None


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """An open database, made where there is none; raises sqlite3.Error and OSError."""
    _check_plain(path)
    mode = "ro" if read_only else "rwc"
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_WAIT_S, isolation_level=None
    )


def lock_file(path: Path) -> BinaryIO | None:
    """Keep others from writing the same file; the system frees it when the process ends.

    None where files have no locks; raises SweepError where another process has it.
    """
    _check_plain(path)
    try:
        import fcntl
    except ImportError:
        return None
    lock = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "rb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise SweepError(f"{path}: another process is writing it") from None
    return lock


def connect_alone(path: Path) -> tuple[sqlite3.Connection, BinaryIO | None]:
    """An open database and its lock, as `connect` and `lock_file` give them."""
    lock = lock_file(path)
    try:
        return connect(path), lock
    except BaseException:
        if lock:
            lock.close()
        raise


def disconnect(connection: sqlite3.Connection, lock: BinaryIO | None) -> None:
    """Close a database and let others write it."""
    # the lock last: closing any handle of a file drops SQLite's own locks on it
    try:
        connection.close()
    finally:
        if lock:
            lock.close()


def _check_plain(path: Path) -> None:
    """Raise OSError for a device or a pipe: SQLite would wait for what it never says."""
    if exists(path):
        open_file(path, most=None).close()


def schema_of(connection: sqlite3.Connection) -> Mapping[str, str]:
    """What each thing in the database was made by."""
    query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    return dict(connection.execute(query).fetchall())
