"""Sweeps on a real Dask cluster: a scheduler and two workers, separate processes on loopback."""

import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from clusters import PATIENCE_S, Cluster, dask_cluster
from sweeps import SMALL

pytest.importorskip("distributed", reason="Dask is an optional extra: pip install 'stepsim[dask]'")

STEPSIM = [sys.executable, "-c", "from stepsim.cli import main; main()"]
AXES = ("--set", "fabric.bandwidth=100..800 Gbps:30", "--set", "schedule=1f1b,gpipe,zb-h1")
JOB = ("--npus", "32", "--pp", "4", "--microbatches", "4", "--contention", "fair", "-q")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with dask_cluster(tmp_path) as made:
        yield made


def done(database: Path) -> int:
    if not database.exists():
        return 0
    try:
        with closing(sqlite3.connect(database, timeout=5)) as connection:
            return int(connection.execute("SELECT count(*) FROM result").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def sweep(database: Path, *more: str) -> list[str]:
    export = ("--export", str(database.with_suffix(".csv")))
    return [*STEPSIM, "sweep", str(SMALL), *AXES, *JOB, "--db", str(database), *export, *more]


def started(database: Path, cluster: Cluster, most: int) -> subprocess.Popen[bytes]:
    """A sweep on the cluster that has stored so many scenarios, or has ended."""
    command = sweep(database, "--executor", "dask", "--scheduler", cluster.address)
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while run.poll() is None and done(database) < most:
        time.sleep(0.05)
    return run


def test_two_workers_one_killed_in_the_middle(tmp_path: Path, cluster: Cluster) -> None:
    database = tmp_path / "dask.sqlite"
    run = started(database, cluster, 20)
    killed_at = done(database)
    cluster.workers[0].kill()
    _, err = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, err.decode()
    assert 20 <= killed_at < 90
    alone = tmp_path / "alone.sqlite"
    subprocess.run(sweep(alone, "--jobs", "1"), check=True, stdout=subprocess.DEVNULL)
    assert database.with_suffix(".csv").read_bytes() == alone.with_suffix(".csv").read_bytes()


@pytest.mark.slow
def test_a_lost_scheduler_ends_the_sweep_and_keeps_what_is_stored(
    tmp_path: Path, cluster: Cluster
) -> None:
    database = tmp_path / "dask.sqlite"
    run = started(database, cluster, 10)
    cluster.scheduler.kill()
    _, err = run.communicate(timeout=2 * PATIENCE_S)
    assert run.returncode == 2
    assert "error: " in err.decode()
    kept = done(database)
    assert 10 <= kept < 90
    subprocess.run(sweep(database, "--resume"), check=True, stdout=subprocess.DEVNULL)
    assert done(database) == 90


def test_a_scheduler_that_cannot_be_reached_is_one_error_before_any_work(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        run = subprocess.run(
            sweep(tmp_path / "a.sqlite", "--executor", "dask", "--scheduler", address),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    assert run.returncode == 2
    assert run.stderr.startswith(f"error: cannot reach a Dask scheduler at {address}: ")
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "a.sqlite").exists()
