"""Whatever dies of a sweep, all of it ends: no process is left, no traceback, no result lost."""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from clusters import Cluster, dask_cluster
from fuzz.surface import STEPSIM
from helpers import Run
from sweeps import SMALL

AXES = ("schedule=1f1b,gpipe,zb-h1", "microbatches=2,4", "compute_scale=0.5,1")
MARK = "STEPSIM_TEST_SWEEP"
PATIENCE_S = 5.0
KINDS = ("main", "terminate", "interrupt", "worker")

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def command(database: Path, *more: str) -> list[str]:
    sets = [word for axis in AXES for word in ("--set", axis)]
    job = ["--npus", "16", "--pp", "2"]
    export = ["--export", str(database.with_suffix(".csv"))]
    return ["sweep", str(SMALL), "-q", *sets, *job, "--db", str(database), *export, *more]


def marked(mark: str) -> Iterator[int]:
    """Processes that a sweep has started, itself among them, by what their environment says."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (place / "environ").read_bytes():
                yield int(place.name)
        except OSError:
            continue


def has_begun(process: "subprocess.Popen[str]") -> bool:
    """Whether Python is past its own start, which prints a traceback of its own."""
    tick = os.sysconf("SC_CLK_TCK")
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / tick > 0.1


def kill(
    process: "subprocess.Popen[str]",
    kind: str,
    mark: str,
    chance: random.Random,
    cluster: Cluster | None,
) -> None:
    if kind == "worker" and cluster:
        cluster.kill_worker(chance)
        return
    if kind == "worker":
        workers = [each for each in marked(mark) if each != process.pid]
        if workers:
            os.kill(chance.choice(workers), signal.SIGKILL)
        return
    signals = {"main": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}
    process.send_signal(signals[kind])


def killed_once(
    database: Path,
    more: tuple[str, ...],
    kind: str,
    chance: random.Random,
    longest_s: float,
    cluster: Cluster | None = None,
) -> bool:
    """Go on with a sweep, kill a part of it at a random moment, and look at what is left.

    Returns whether it was running then.
    """
    mark = uuid4().hex
    process = subprocess.Popen(
        [*STEPSIM, *command(database, *more, "--resume")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {MARK: mark},
    )
    while process.poll() is None and not has_begun(process):
        time.sleep(0.01)
    time.sleep(chance.uniform(0, longest_s))
    running = process.poll() is None
    if running:
        kill(process, kind, mark, chance, cluster)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err, (kind, err)
    assert err.count("\n") <= 1, (kind, err)
    # a signal that comes before the command has begun ends it as it ends any process
    expected = {"main": (-9,), "terminate": (143, -15), "interrupt": (130, -2)}.get(kind, ())
    assert process.returncode in (0, *expected), (kind, process.returncode, err)
    end = time.monotonic() + PATIENCE_S
    while left := list(marked(mark)):
        assert time.monotonic() < end, (kind, left)
        time.sleep(0.05)
    return running


def check_kills(
    run: Run,
    folder: Path,
    kills: int,
    more: tuple[str, ...],
    kinds: tuple[str, ...],
    cluster: Cluster | None = None,
) -> None:
    """So many kills of sweeps, each resumed until it is done; says how many of each kind."""
    whole = folder / "whole.sqlite"
    began = time.monotonic()
    subprocess.run([*STEPSIM, *command(whole, *more)], check=True, capture_output=True)
    longest_s = 0.9 * (time.monotonic() - began)
    chance = random.Random(kills)
    done, counts = 0, Counter[tuple[str, bool]]()
    for number in range(kills):
        database = folder / f"killed{done}.sqlite"
        kind = kinds[number % len(kinds)]
        counts[kind, killed_once(database, more, kind, chance, longest_s, cluster)] += 1
        table = database.with_suffix(".csv")
        if table.exists():
            assert table.read_bytes() == whole.with_suffix(".csv").read_bytes()
            done += 1
    database = folder / f"killed{done}.sqlite"
    code, _, err = run(*command(database, "--jobs", "1", "--resume"))
    assert code == 0, err
    assert database.with_suffix(".csv").read_bytes() == whole.with_suffix(".csv").read_bytes()
    for (kind, running), count in sorted(counts.items()):
        print(f"{count} of {kind}, {'in' if running else 'after'} the run; {done} sweeps done")


def test_kills_at_random_moments(run: Run, tmp_path: Path) -> None:
    check_kills(run, tmp_path, 2, ("--jobs", "2"), ("main", "worker"))


@pytest.mark.slow
@pytest.mark.parametrize("kills", [60])
def test_many_kills_with_workers_of_dask(run: Run, tmp_path: Path, kills: int) -> None:
    pytest.importorskip("distributed", reason="Dask is an optional extra")
    with dask_cluster(tmp_path) as cluster:
        more = ("--executor", "dask", "--scheduler", cluster.address)
        check_kills(run, tmp_path, kills, more, KINDS, cluster)
