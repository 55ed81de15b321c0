"""A hostile database is refused."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sweeps import Quick, grouped

from stepsim.base.errors import SweepError
from stepsim.explore.sweep import open_for_reading, run_sweep
from stepsim.files.sweep_table import SweepProgress, progress_of


def half_done(path: Path) -> None:
    """The database of a sweep that was stopped after some of its scenarios."""

    def stop(progress: SweepProgress) -> None:
        if progress.done >= 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(grouped(Quick), path, jobs=1, progress=stop)


def swept(path: Path) -> SweepProgress:
    with open_for_reading(path) as store:
        return progress_of(store)


HOSTILE = [
    "UPDATE result SET step_time_ps = -5 WHERE id = 0",
    "UPDATE result SET step_time_ps = 'many' WHERE id = 0",
    "UPDATE result SET step_time_ps = 0.5 WHERE id = 0",
    "UPDATE result SET bubble_fraction = NULL WHERE id = 0",
    "UPDATE result SET compute_ps = 'many' WHERE id = 0",
    "UPDATE result SET error = x'00' WHERE id = 0",
    "UPDATE result SET pipeline_time_ps = -5 WHERE id = 0",
    "UPDATE result SET bubble_fraction = 9e999 WHERE id = 0",
    "UPDATE result SET bubble_fraction = -0.5 WHERE id = 0",
    "UPDATE result SET total_bandwidth = 9e999 WHERE id = 0",
    "UPDATE result SET compute_ps = -5 WHERE id = 0",
    "CREATE TABLE more (a)",
    "CREATE INDEX quick ON result (step_time_ps)",
    "CREATE TRIGGER slow AFTER INSERT ON result BEGIN INSERT INTO result SELECT * FROM ("
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n); END",
    "DROP VIEW scenario",
]


@pytest.mark.parametrize("statement", HOSTILE)
def test_a_hostile_database_is_refused(statement: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    half_done(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
    ways: tuple[Callable[[], object], ...] = (
        lambda: swept(path),
        lambda: run_sweep(grouped(Quick), path, resume=True, jobs=1),
    )
    for refused in ways:
        if statement.startswith("DROP VIEW"):
            refused()  # nobody but people reads it
            continue
        with pytest.raises(SweepError, match="damaged"):
            refused()
