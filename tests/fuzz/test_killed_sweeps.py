"""Whatever dies of a sweep, all of it ends: no process is left, no traceback, no result lost."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from helpers import Run
from sweeps import SMALL

STEPSIM = [sys.executable, "-c", "from stepsim.cli import main; main()"]
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


def kill(process: "subprocess.Popen[str]", kind: str, mark: str, chance: random.Random) -> None:
    if kind == "worker":
        workers = [each for each in marked(mark) if each != process.pid]
        if workers:
            os.kill(chance.choice(workers), signal.SIGKILL)
        return
    signals = {"main": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}
    process.send_signal(signals[kind])


def killed_once(
    database: Path, more: tuple[str, ...], kind: str, chance: random.Random, longest_s: float
) -> None:
    """Go on with a sweep, kill a part of it at a random moment, and look at what is left."""
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
    if process.poll() is None:
        kill(process, kind, mark, chance)
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


def check_kills(
    run: Run, folder: Path, kills: int, more: tuple[str, ...], kinds: tuple[str, ...]
) -> int:
    """So many kills of sweeps, each resumed until it is done; how many got done."""
    whole = folder / "whole.sqlite"
    began = time.monotonic()
    assert run(*command(whole, "--jobs", "1"))[0] == 0
    longest_s = 1.2 * (time.monotonic() - began)
    chance = random.Random(kills)
    done = 0
    for number in range(kills):
        database = folder / f"killed{done}.sqlite"
        killed_once(database, more, kinds[number % len(kinds)], chance, longest_s)
        table = database.with_suffix(".csv")
        if table.exists():
            assert table.read_bytes() == whole.with_suffix(".csv").read_bytes()
            done += 1
    database = folder / f"killed{done}.sqlite"
    code, _, err = run(*command(database, "--jobs", "1", "--resume"))
    assert code == 0, err
    assert database.with_suffix(".csv").read_bytes() == whole.with_suffix(".csv").read_bytes()
    return done


def test_kills_at_random_moments(run: Run, tmp_path: Path) -> None:
    check_kills(run, tmp_path, 4, ("--jobs", "2"), KINDS)


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "kinds"), [("1", KINDS[:3]), ("2", KINDS)])
@pytest.mark.parametrize("kills", [40])
def test_many_kills_at_random_moments(
    run: Run, tmp_path: Path, kills: int, jobs: str, kinds: tuple[str, ...]
) -> None:
    check_kills(run, tmp_path, kills, ("--jobs", jobs), kinds)
