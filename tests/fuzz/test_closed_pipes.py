"""A reader that leaves ends a command in silence, as with `| head -1`; a full disk is one line.

Python's switches, such as the one that leaves docstrings out, change no result.
"""

import os
import subprocess
from pathlib import Path

import pytest
from fuzz import surface
from fuzz.surface import STEPSIM

SIMULATE = [*STEPSIM, "simulate", "w.txt", "-q"]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes that break")


@pytest.mark.parametrize("more", [[], ["--json", "-"]])
def test_a_reader_leaves(more: list[str], tmp_path: Path) -> None:
    surface.prepare(tmp_path)
    with subprocess.Popen(
        [*SIMULATE, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode in (0, 1, 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_stdout(tmp_path: Path) -> None:
    surface.prepare(tmp_path)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            SIMULATE, check=False, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
    assert done.stderr == "error: cannot write to stdout: No space left on device\n"
    assert done.returncode == 2


@pytest.mark.parametrize("words", ["schema result", "plan --help", "--help"])
def test_results_without_docstrings(words: str) -> None:
    bare = {**os.environ, "PYTHONOPTIMIZE": "2"}
    done = subprocess.run(
        [*STEPSIM, *words.split()], check=False, capture_output=True, text=True, env=bare
    )
    assert done.returncode == 0, done.stderr
    assert "{" in done.stdout or "Usage" in done.stdout
