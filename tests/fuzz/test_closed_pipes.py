"""A reader of a pipe that leaves ends a command in silence, as with `| head -1`: every command.

A full disk behind standard output is one line, and so is a standard output that the shell closed.
Python's switches, such as the one that leaves docstrings out, change no result.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
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


def ends_without(
    streams: str, words: surface.Words, command: Any, given: dict[str, object], folder: Path
) -> None:
    """Run a command whose standard streams the shell has closed."""
    surface.prepare(folder)
    typed = surface.arguments(words, command, **given)
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {streams}', "sh", *STEPSIM, *typed],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith(NOTED)]
    closed = ["error: cannot write to stdout: Bad file descriptor"]
    assert (done.returncode, said) in [(2, closed if "2>&-" not in streams else []), (0, [])]


CLOSED = (">&-", "<&- >&- 2>&-")


@pytest.mark.parametrize("streams", CLOSED)
@pytest.mark.parametrize(("words", "command", "given"), cases()[1:2])
def test_one_command_with_closed_streams(
    streams: str, words: surface.Words, command: Any, given: dict[str, object], tmp_path: Path
) -> None:
    ends_without(streams, words, command, given, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("streams", CLOSED)
@pytest.mark.parametrize(("words", "command", "given"), cases())
def test_every_command_with_closed_streams(
    streams: str, words: surface.Words, command: Any, given: dict[str, object], tmp_path: Path
) -> None:
    ends_without(streams, words, command, given, tmp_path)


@pytest.mark.parametrize("words", [("schema", "result"), ("plan", "--help"), ("--help",)])
def test_results_without_docstrings(words: tuple[str, ...]) -> None:
    code, out = result_of(words, Path())
    assert code == 0
    assert "{" in out or "Usage" in out


@pytest.mark.slow
@pytest.mark.parametrize(("words", "command", "given"), cases())
def test_every_command_without_docstrings(
    words: surface.Words, command: Any, given: dict[str, object], tmp_path: Path
) -> None:
    typed = surface.arguments(words, command, **given)
    with_all, without = tmp_path / "with", tmp_path / "without"
    for folder in (with_all, without):
        folder.mkdir()
        surface.prepare(folder)
    bare = result_of(typed, without)
    if words[-1] not in CHANGING:
        assert bare == result_of(typed, with_all, optimize="")
    assert bare[0] in (0, 1)


CHANGING = {"doctor", "sweep"}
"""Commands that print how fast they were, or on what they run."""


def result_of(typed: Sequence[str], folder: Path, optimize: str = "2") -> tuple[int, str]:
    """Exit code and output of a command under PYTHONOPTIMIZE."""
    done = subprocess.run(
        [*STEPSIM, *typed],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONOPTIMIZE": optimize},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout
