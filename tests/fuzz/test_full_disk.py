"""A full disk ends a sweep with one error; with space again it goes on."""

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeps import Quick, exported, grouped, study

from stepsim.base.errors import StepsimError
from stepsim.explore.sweep import run_sweep

AXES = ("fabric.bandwidth=100..800 Gbps:100", "microbatches=2,4,8", "compute_scale=0.5,1")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def swept(database: Path) -> None:
    """Go on with a sweep, or begin it."""
    run_sweep(grouped(Quick, study(*AXES)), database, resume=True, jobs=1)


@pytest.mark.parametrize("tries", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_a_sweep_goes_on_when_there_is_space_again(
    tries: int, small_disk: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole.sqlite"
    swept(whole)
    expected = exported(whole)
    chance = random.Random(tries)
    for _ in range(tries):
        database, filler = small_disk / "a.sqlite", small_disk / "filler"
        found = os.statvfs(small_disk)
        free = found.f_bavail * found.f_frsize - chance.randrange(200_000)
        filler.write_bytes(bytes(max(0, free)))
        with pytest.raises(StepsimError, match=r"full|I/O error"):
            swept(database)
        filler.unlink()
        swept(database)
        assert exported(database) == expected
        for each in small_disk.iterdir():
            each.unlink()
