"""How a command ends that the system stops: one line that says what failed, exit code 2."""

import errno
import os
import subprocess
import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any

import pytest
from helpers import Run

from stepsim.cli import make_app
from stepsim.cli.commands import COMMANDS

COMMAND = "from stepsim.cli import main; main()"


def in_process(*arguments: str | Path, setup: str = "", stdout: str | Path) -> tuple[int, str]:
    """Exit code and stderr of a command in a process of its own, after some preparation."""
    command = [sys.executable, "-c", f"{setup}\n{COMMAND}", *map(str, arguments)]
    with open(stdout, "wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (
            OSError(errno.EMFILE, "Too many open files", "some\nfile"),
            r"some\nfile: Too many open files",
        ),
        (ConnectionResetError("reset by peer"), "reset by peer"),
    ],
)
def test_an_error_of_the_system_is_called_what_it_is(
    run: Run, moe: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, message: str
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("stepsim.files.asked.load_work", fail)
    assert run("inspect", moe) == (2, "", f"error: {message}\n")


@pytest.mark.skipif(os.name != "posix", reason="limits the open files of a process")
def test_too_many_open_files_are_no_matter_of_stdout(moe: Path, tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))"
    arguments = ("sweep", moe, "--set", "microbatches=2,4", "--db", tmp_path / "a.sqlite")
    code, err = in_process(*arguments, "-q", "--jobs", "2", setup=limit, stdout=tmp_path / "out")
    assert code == 2
    assert err.splitlines()[-1].endswith("Too many open files")
    assert "stdout" not in err
    assert "Traceback" not in err


@pytest.mark.skipif(os.name != "posix", reason="closes stdout as shells do")
def test_a_closed_stdout_is_nowhere_to_print() -> None:
    command = [sys.executable, "-c", COMMAND, "list"]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, check=True)
    assert not done.stderr


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    app: Any = make_app()
    said = {name: str(app.get_command(None, name).help) for name in COMMANDS}
    first = {n: " ".join(cleandoc(t).partition("\n\n")[0].split()) for n, t in said.items()}
    assert {name: each.help for name, each in COMMANDS.items()} == first
