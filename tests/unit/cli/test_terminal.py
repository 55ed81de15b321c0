"""What the command line is in a terminal: completion, colour, log, equal options everywhere."""

import os
import pty
import subprocess
import sys
import termios
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz.surface import commands
from helpers import Run

from stepsim import cli
from stepsim.cli.commands import COMMANDS

STEPSIM = Path(sys.executable).parent / "stepsim"


def completing(line: str) -> dict[str, str]:
    """What bash sets to ask what could stand at the end of a line."""
    cursor = str(line.count(" "))
    return {"_STEPSIM_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": cursor}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("stepsim simulate file --schedule zb", ["zb-h1", "zb-v"]),
        ("stepsim compare file --schedules 1f1b,gp", ["1f1b,gpipe"]),
        ("stepsim simulate file --p2p e", ["eager"]),
        ("stepsim simulate run --times mi", ["microbatch"]),
        ("stepsim collective --kind all_to", ["all_to_all"]),
    ],
)
def test_a_shell_completes_values(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    offered: list[str],
) -> None:
    for name, value in completing(line).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.make_app()(prog_name="stepsim")
    assert capsys.readouterr().out.split() == [f"plain,{name}" for name in offered]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("stepsim sim", ["simulate"]),
        ("stepsim sens", []),
        ("stepsim simulate file --sens", ["--sensitivity"]),
        ("stepsim list al", ["algorithms"]),
        ("stepsim calibrate ", ["runs", "trace", "model", "nccl"]),
        ("stepsim simulate da", "file,da"),
        ("stepsim simulate file --topology da", "file,da"),
    ],
)
def test_the_installed_command_completes(line: str, offered: list[str] | str) -> None:
    environment = os.environ | completing(line)
    found = subprocess.run([STEPSIM], env=environment, capture_output=True, text=True, check=True)
    names = [offered] if isinstance(offered, str) else [f"plain,{name}" for name in offered]
    assert found.stdout.split() == names


def in_terminal(*arguments: str, setup: str = "", **environment: str) -> str:
    """Output of a command whose stdout and stderr are a terminal, after some preparation."""
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 80))
    known = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "CI", "PY_COLORS")}
    process = subprocess.Popen(
        [sys.executable, "-c", f"{setup}\nfrom stepsim.cli import main; main()", *arguments],
        stdout=child,
        stderr=child,
        env=known | {"TERM": "xterm-256color"} | environment,
    )
    os.close(child)
    parts = []
    try:
        while part := os.read(parent, 1 << 16):
            parts.append(part)
    except OSError:  # Linux says so when the other end is closed
        pass
    os.close(parent)
    assert process.wait() == 0
    return b"".join(parts).decode()


def test_colour_is_for_terminals_that_want_it(moe: Path) -> None:
    command = ("simulate", str(moe), "-q")
    assert "\x1b[1m" in in_terminal(*command)
    assert "\x1b[3" not in in_terminal(*command, NO_COLOR="1"), "no colour"
    piped = subprocess.run([STEPSIM, *command], capture_output=True, text=True, check=True)
    assert "\x1b" not in piped.stdout + piped.stderr


def test_long_work_shows_that_it_goes_on(moe: Path) -> None:
    soon = "from stepsim.show import terminal; terminal._SHOWN_AFTER_S = 0.12"
    command = ("noise", str(moe), "--samples", "150")
    assert "drawing 150 steps" in in_terminal(*command, setup=soon)
    assert "drawing" not in in_terminal(*command, "-q", setup=soon)


def test_verbose_says_what_is_done_on_stderr(run: Run, moe: Path) -> None:
    code, out, err = run("simulate", moe, "--verbose", "-q")
    assert code == 0
    assert out == run("simulate", moe, "-q")[1]
    assert "ms  workload moe_128.txt" in err
    assert "4 of 128 ranks are simulated" in err
    assert err.index("task graph") < err.index("all tasks ended")


def declared() -> Iterator[tuple[str, str, Any]]:
    """Command, longest option name, and what the option takes, of every option."""
    for words, command in commands():
        for option in command.params:
            names = sorted([*option.opts, *option.secondary_opts], key=len)
            if names[-1].startswith("-"):
                yield " ".join(words), names[-1], (option.type.name, *names)


def test_options_of_one_name_are_alike() -> None:
    """What an option takes and its short form do not depend on the command."""
    found: dict[str, dict[Any, list[str]]] = defaultdict(lambda: defaultdict(list))
    for command, name, alike in declared():
        found[name][alike].append(command)
    assert len(found) > 60
    different = {name: dict(uses) for name, uses in found.items() if len(uses) > 1}
    assert not different


@pytest.mark.parametrize("command", ["", *COMMANDS, "calibrate runs"])
def test_help_has_a_short_flag(run: Run, command: str) -> None:
    short, long = (run(*command.split(), flag) for flag in ("-h", "--help"))
    assert short == long
    assert short[0] == 0
    assert "Usage:" in short[1]


def test_a_name_of_nothing_says_what_was_looked_for(run: Run) -> None:
    code, _, error = run("inspect", "hgx-h10")
    assert code == 2
    assert "no such file, and no topology or public model of this name; did you mean" in error
    assert "hgx-h100" in error


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("--seq", "8k"), "x 8,192 tokens"),
        (("--global-batch", "4M"), "samples, not tokens"),
        (("--fsdp",), "error: --fsdp: no such option: expected --zero 3\n"),
    ],
)
def test_numbers_and_options_as_people_write_them(
    run: Run, typed: tuple[str, ...], said: str
) -> None:
    """Thousands of tokens are 1,024 each; a batch in tokens is told from one in samples."""
    code, out, err = run("simulate", "llama-3.2-1b", "--gpus", "8", *typed)
    assert said in " ".join((out + err).replace("\u2502", "").split()) + "\n" * (
        typed[0] == "--fsdp"
    )
    assert code == (0 if "8k" in typed else 2)
