"""A reader of a pipe that leaves ends a command in silence, as with `| head -1`: every command.

A full disk behind standard output is one line.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fuzz import surface

STEPSIM = [sys.executable, "-c", "from stepsim.cli import main; main()"]
NOTED = ("warning: ", "note: ", "the page fetches ")
"""How lines begin that a command says beside its result."""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes that break")


def cases() -> list[Any]:
    """Every command that ends by itself, and what it writes as JSON."""
    found = []
    for words, command in surface.commands():
        names = {each.name for each in command.params}
        for json in [None, "-"] if "json" in names else [None]:
            if words not in surface.ENDLESS | surface.ELSEWHERE:
                given = {"json": json} if json else {}
                label = "-".join((*words, *given))
                found.append(pytest.param(words, command, given, id=label))
    return found


def ends_in_silence(
    words: surface.Words, command: Any, given: dict[str, object], folder: Path, lines: int
) -> None:
    """Run a command whose reader leaves after so many lines."""
    surface.prepare(folder)
    typed = surface.arguments(words, command, **given)
    with subprocess.Popen(
        [*STEPSIM, *typed], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        assert process.stdout
        assert process.stderr
        for _ in range(lines):
            process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert [line for line in err.splitlines() if not line.startswith(NOTED)] == []
    assert process.returncode in (0, 1, 141)


@pytest.mark.parametrize(("words", "command", "given"), cases()[1:2])
def test_one_command(
    words: surface.Words, command: Any, given: dict[str, object], tmp_path: Path
) -> None:
    ends_in_silence(words, command, given, tmp_path, 0)


@pytest.mark.slow
@pytest.mark.parametrize("lines", [0, 1])
@pytest.mark.parametrize(("words", "command", "given"), cases())
def test_every_command(
    words: surface.Words, command: Any, given: dict[str, object], lines: int, tmp_path: Path
) -> None:
    ends_in_silence(words, command, given, tmp_path, lines)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(("words", "command", "given"), cases())
def test_every_command_names_a_full_stdout(
    words: surface.Words, command: Any, given: dict[str, object], tmp_path: Path
) -> None:
    surface.prepare(tmp_path)
    typed = surface.arguments(words, command, **given)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*STEPSIM, *typed],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
    said = [line for line in done.stderr.splitlines() if not line.startswith(NOTED)]
    full_disk = ["error: cannot write to stdout: No space left on device"]
    assert (done.returncode, said) in [(2, full_disk), (0, [])]
