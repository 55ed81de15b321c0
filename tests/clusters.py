"""A real Dask cluster: a scheduler and two workers, separate processes on loopback."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PATIENCE_S = 60.0


@contextmanager
def started(*command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A module of Python in a process of its own, killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A scheduler and its workers; those that are started later end with it too."""

    address: str
    folder: Path
    scheduler: "subprocess.Popen[bytes]"
    workers: list["subprocess.Popen[bytes]"]
    opened: ExitStack

    def start_worker(self) -> None:
        """Add a worker of one thread."""
        place = ("--host", "127.0.0.1", "--no-dashboard", "--local-directory", str(self.folder))
        command = ("distributed.cli.dask_worker", self.address, "--nthreads", "1", "--no-nanny")
        self.workers.append(self.opened.enter_context(started(*command, *place)))

    def kill_worker(self, chance: random.Random) -> None:
        """Kill a worker, and start one in its place."""
        self.workers.pop(chance.randrange(len(self.workers))).kill()
        self.start_worker()


@contextmanager
def dask_cluster(folder: Path) -> Iterator[Cluster]:
    """A scheduler and two workers, which keep their files in a folder."""
    place = str(folder / "scheduler.json")
    local = ("--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", place)
    with ExitStack() as opened:
        command = ("distributed.cli.dask_scheduler", "--port", "0", *local)
        scheduler = opened.enter_context(started(*command))
        cluster = Cluster(
            address=_wait_for_address(Path(place)),
            folder=folder,
            scheduler=scheduler,
            workers=[],
            opened=opened,
        )
        for _ in range(2):
            cluster.start_worker()
        yield cluster


def _wait_for_address(place: Path) -> str:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if place.exists() and place.read_text():
            return str(json.loads(place.read_text())["address"])
        time.sleep(0.1)
    pytest.fail("the scheduler did not start")
