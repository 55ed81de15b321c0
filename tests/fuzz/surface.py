"""The command line as it is declared: what its options read, write and count.

A new option falls into these lists by its type and its help; a new command needs an example.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fuzz import seeds
from logs import megatron_log

from stepsim.cli.root import make_app

STEPSIM = [sys.executable, "-c", "from stepsim.cli import main; main()"]
"""The program in a process of its own."""

Words = tuple[str, ...]
"""The name of a command, e.g. `("calibrate", "nccl")`."""

EXAMPLES: Mapping[Words, Mapping[str, object]] = {
    ("simulate",): {"file": "w.txt"},
    ("compare",): {"file": "w.txt"},
    ("inspect",): {"file": "w.txt"},
    ("diff",): {"a": "r.json", "b": "other.json"},
    ("explain",): {"log": "train.log"},
    ("collective",): {"kind": "all_reduce", "size": "1MiB"},
    ("noise",): {"file": "w.txt", "samples": 20},
    ("validate",): {"runs": "trace.txt"},
    ("what-if",): {"run": "trace.txt"},
    ("improve",): {"run": "profile"},
    ("sweep",): {"file": "w.txt", "axes": "microbatches=1,2", "jobs": 1},
    ("plan",): {"model": "gpt2", "gpus": "2", "global_batch": 2, "sequence": 64, "runs": 1},
    ("serve",): {"files": "w.txt", "port": 0, "show": False},
    ("report",): {"file": "r.json", "output": "out.html"},
    ("list",): {"kind": "devices"},
    ("schema",): {},
    ("calibrate", "trace"): {"paths": "profile", "output": "out.toml"},
    ("calibrate", "runs"): {"paths": "trace.txt", "output": "out.toml"},
    ("calibrate", "model"): {"steps": "steps.csv"},
    ("calibrate", "nccl"): {"files": "nccl.csv"},
}
"""Of every command, values of parameters with which it does its work on the files of `prepare`."""

_CHECKED = {
    "model": "plan.toml",
    "check": True,
    "max_step": "1s",
    "gpus": None,
    "global_batch": None,
    "sequence": None,
    "runs": None,
}
"""What `plan` takes to hold a plan to a budget."""
TOGETHER: Mapping[tuple[str, str], Mapping[str, object]] = {
    **{("plan", name): _CHECKED for name in ("check", "max_step", "max_memory", "max_bubble")},
    ("improve", "output"): {"apply": "kernels"},
    ("inspect", "json"): {"file": "hgx-h100"},
    ("inspect", "plot"): {"file": "hgx-h100"},
    ("model", "gemm"): {"device": "h100"},
}
"""What an option needs beside it, by the last word of its command and its name."""

ENDLESS = {("serve",)}
"""Commands that end when they are told to."""


NAMES_OR_FILES = {"file", "topology", "schedule", "schedules", "device", "framework", "start"}
"""Parameters that are a name or a file."""

_WRITES = re.compile(r"\b(writes?|draw)\b|new folder|SQLite file", re.IGNORECASE)
_SUFFIXES = {"JSON": ".json", "CSV": ".csv", "TOML": ".toml", "HTML": ".html", "SQLite": ".sqlite"}


def commands(group: Any = None, name: Words = ()) -> Iterator[tuple[Words, Any]]:
    """Every command by its words."""
    group = group or make_app()
    for word in group.list_commands(None):
        command = group.get_command(None, word)
        if hasattr(command, "commands"):
            yield from commands(command, (*name, word))
        else:
            yield (*name, word), command


def _help_of(parameter: Any) -> str:
    return str(getattr(parameter, "help", None) or "")


def is_output(parameter: Any) -> bool:
    """Whether a parameter names a file or a folder to write."""
    if parameter.name == "json":
        return True
    return parameter.type.name == "path" and bool(_WRITES.search(_help_of(parameter)))


def is_folder(parameter: Any) -> bool:
    """Whether an output is always a folder."""
    return is_output(parameter) and _help_of(parameter).endswith(("a folder.", "new folder."))


def is_input(parameter: Any) -> bool:
    """Whether a parameter may name a file to read, by its type."""
    if is_output(parameter):
        return False
    kinds = ("path", "text") if parameter.name in NAMES_OR_FILES else ("path",)
    return parameter.type.name in kinds


def is_number(parameter: Any) -> bool:
    """Whether a parameter is a number."""
    return parameter.type.name in ("integer", "float")


def suffix_of(output: Any) -> str:
    """A suffix that an output takes, as its help says."""
    said = f"{output.metavar} {_help_of(output)}"
    if named := re.search(r"\.[a-z]+\b", said):
        return named[0]
    return next((each for word, each in _SUFFIXES.items() if word in said), ".svg")


def prepare(folder: Path) -> None:
    """Write what the examples read."""
    (folder / "w.txt").write_text(seeds.SMALL_WORKLOAD)
    (folder / "trace.txt").write_bytes(seeds.traces()[1])
    (folder / "train.log").write_text(megatron_log([1.0] * 8, world_size=8))
    (folder / "nccl.csv").write_text(seeds.COMM_TABLE)
    (folder / "steps.csv").write_text(seeds.PUBLISHED)
    (folder / "plan.toml").write_text(seeds.PLAN)
    (folder / "s.sqlite").write_bytes(seeds.sweeps()[0])
    for name, content in zip(("r.json", "other.json"), seeds.results(), strict=True):
        (folder / name).write_bytes(content)
    (folder / "profile").mkdir()
    for name, content in seeds.chakra_folder().items():
        (folder / "profile" / name).write_bytes(content)


def arguments(words: Words, command: Any, **given: object) -> list[str]:
    """The example of a command as it is typed, with other values of some of its parameters."""
    also = (TOGETHER.get((words[-1], name), {}) for name in given)
    values = dict(chain(EXAMPLES[words].items(), *(each.items() for each in also), given.items()))
    typed = list(words)
    for each in command.params:
        value = values.get(each.name)
        if value is None:
            continue
        if each.opts[0][0] != "-":
            typed.append(str(value))
        elif isinstance(value, bool):
            typed.append((each.opts if value else each.secondary_opts)[0])
        else:
            typed.append(f"{each.opts[0]}={value}")
    return typed


def of_one_command(cases: Iterable[Any]) -> list[Any]:
    """Cases (command's words, command, ...) of one command together, as one parameter each."""
    together: dict[Words, list[tuple[Any, ...]]] = {}
    for case in cases:
        together.setdefault(case.values[0], []).append(case.values)
    return [pytest.param(found, id="-".join(words)) for words, found in together.items()]


@contextmanager
def empty_folder(inside: Path) -> Iterator[Path]:
    """A new folder to work in, where a test goes on after it."""
    before = Path.cwd()
    with TemporaryDirectory(dir=inside) as folder:
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)
