"""A hostile file of simulated plans is refused."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from helpers import Run
from sweeps import Quick, grouped

from stepsim.base.errors import StepsimError
from stepsim.explore.plan.search import SEARCH
from stepsim.explore.sweep import run_sweep
from stepsim.files.store import write_store

JOB = {"model": "small 0123", "topology": "hgx-h100 4567"}
RUNS = {f"{i:08x}": b'{"step_time_ps": %d}' % (i * 1_000_003) for i in range(60)}
PLAN = ("plan", "gpt2", "--gpus", "2", "--global-batch", "2", "--sequence", "64", "--runs", "1")


def made(path: Path) -> Path:
    with write_store(path, SEARCH, JOB) as store, store.transaction() as connection:
        connection.executemany("INSERT INTO plan VALUES (?, ?)", RUNS.items())
    return path


def held(path: Path) -> dict[str, bytes]:
    with write_store(path, SEARCH, JOB, resume=True) as store:
        return dict(store.each("SELECT * FROM plan"))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE identity SET value = 'another'",
        "PRAGMA application_id = 0",
        "CREATE TABLE more (a)",
        "CREATE INDEX quick ON plan (run)",
        "CREATE TRIGGER slow AFTER INSERT ON plan BEGIN INSERT INTO plan SELECT * FROM ("
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n); END",
        "DROP TABLE plan",
    ],
)
def test_a_hostile_file_is_refused(statement: str, tmp_path: Path) -> None:
    path = made(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
    with pytest.raises(StepsimError, match=r"damaged|another search|not of a search"):
        held(path)


@pytest.mark.parametrize(
    "written",
    [
        '{"step_time_ps": -5}',
        '{"step_time_ps": 1e999}',
        '{"step_time_ps": 9223372036854775808}',
        '{"breakdown_ps": {}}',
        '{"breakdown_ps": {"compute": 1}}',
        "[1]",
        "null",
    ],
)
def test_a_result_that_no_search_writes_is_refused(written: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "a.sqlite"
    more = ("-q", "--store", path)
    assert run(*PLAN, *more)[0] == 0
    with closing(sqlite3.connect(path)) as connection, connection:
        for (plan,) in connection.execute("SELECT hash FROM plan").fetchall():
            connection.execute("UPDATE plan SET run = ? WHERE hash = ?", (written.encode(), plan))
    code, out, err = run(*PLAN, *more, "--resume")
    assert (code, out) == (2, "")
    assert "the database is damaged" in err
    assert err.count("\n") == 1


def test_the_database_of_a_sweep_stays_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "sweep.sqlite"
    run_sweep(grouped(Quick), path, jobs=1)
    before = path.read_bytes()
    with pytest.raises(StepsimError, match="a database, but not of a search of plans"):
        held(path)
    assert path.read_bytes() == before


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with (
        write_store(path, SEARCH, JOB),
        pytest.raises(StepsimError, match="another process is writing it"),
    ):
        held(path)
    assert held(path) == {}


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices")
def test_no_file_is_one_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(StepsimError, match="pipe or a device"):
            held(path)
