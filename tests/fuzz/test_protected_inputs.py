"""No output replaces an input: for every option that reads a file and every one that writes one."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from fuzz import seeds
from helpers import Run

from stepsim.cli.root import make_app

OUTPUTS = {
    "json": ".json",
    "plot": ".png",
    "csv": ".csv",
    "trace": ".json",
    "report": ".html",
    "output": ".toml",
    "table": ".csv",
    "export": ".csv",
    "pareto": ".svg",
}
"""Parameters that name a file to write, and a suffix that they take."""
TEXTS = ("file", "topology", "schedule", "schedules", "axes")
"""Parameters that are a name or a file."""
OF_PAGES = {("report", "output"): ".html"}
REQUIRED = {"kind": "all_reduce", "size": "1MiB", "axes": "microbatches=1,2"}
ALIKE: dict[str, Callable[[Path, Path], object]] = {
    "the same name": lambda *_: None,
    "a link": lambda path, other: other.symlink_to(path),
    "a hard link": os.link,
}


def commands(
    group: Any = None, name: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command by its words."""
    group = group or typer.main.get_command(make_app())
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*name, word))
        else:
            yield (*name, word), command


def pairs(*, every: bool) -> list[Any]:
    """(command, input, output): each input with each output of its command, or with one."""
    found = []
    for words, command in commands():
        outputs = [each for each in command.params if each.name in OUTPUTS]
        inputs = [each for each in command.params if is_input(each, every=every)]
        for i, given in enumerate(inputs):
            for output in outputs if every else outputs[i % len(outputs) :][:1] if outputs else ():
                label = f"{'-'.join(words)}-{given.name}-{output.name}"
                found.append(pytest.param(words, command, given, output, id=label))
    return found


def is_input(parameter: Any, *, every: bool) -> bool:
    """Whether a file may be named: as a path, or with `every` by any text."""
    kind = str(parameter.type_descriptor.annotation)
    texts = r"\b(Path|str)\b" if every or parameter.name in TEXTS else r"\bPath\b"
    return parameter.name not in OUTPUTS and bool(re.search(texts, kind))


@pytest.mark.parametrize(("words", "command", "given", "output"), pairs(every=False))
def test_inputs_stay(
    words: tuple[str, ...], command: Any, given: Any, output: Any, run: Run, tmp_path: Path
) -> None:
    stays(words, command, given, output, "the same name", run, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("alike", ALIKE)
@pytest.mark.parametrize(("words", "command", "given", "output"), pairs(every=True))
def test_every_input_stays(
    words: tuple[str, ...],
    command: Any,
    given: Any,
    output: Any,
    alike: str,
    run: Run,
    tmp_path: Path,
) -> None:
    stays(words, command, given, output, alike, run, tmp_path)


def stays(
    words: tuple[str, ...],
    command: Any,
    given: Any,
    output: Any,
    alike: str,
    run: Run,
    folder: Path,
) -> None:
    """A command that shall write what it reads is refused, and writes nothing."""
    suffix = OF_PAGES.get((words[-1], output.name), OUTPUTS[output.name])
    path, other = folder / f"input{suffix}", folder / f"other{suffix}"
    path.write_text(seeds.SMALL_WORKLOAD)
    ALIKE[alike](path, other)
    workload = folder / "workload.txt"
    workload.write_text(seeds.SMALL_WORKLOAD)
    arguments: list[str] = []
    for each in command.params:
        value: object = None
        if each is given:
            value = path
        elif each is output:
            value = other if other.exists() else path
        elif each.opts[0][0] != "-" or each.required:
            value = REQUIRED.get(each.name, workload)
        if value is not None:
            flags = [] if each.opts[0][0] != "-" else [each.opts[0]]
            arguments += [*flags, str(value)]
    code, _, err = run(*words, *arguments)
    assert code == 2
    assert err.count("\n") == 1, err
    assert path.read_text() == seeds.SMALL_WORKLOAD
    assert sorted({path, other, workload} & set(folder.iterdir())) == sorted(folder.iterdir())


NAMES = {"w.txt": seeds.SMALL_WORKLOAD, "t.toml": seeds.EXPLICIT, "c.csv": seeds.COMM_TABLE}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("export", ["export = [{!r}]", "plot = {!r}", "report = {!r}"])
def test_files_that_a_sweep_file_names(name: str, export: str, run: Run, tmp_path: Path) -> None:
    suffix = {"e": ".csv", "p": ".png", "r": ".html"}[export[0]]
    made = {other: f"{other}{suffix}" for other in NAMES}
    for other, text in NAMES.items():
        (tmp_path / made[other]).write_text(text)
    path = tmp_path / "sweep.toml"
    path.write_text(
        f'workload = "{made["w.txt"]}"\n[axes]\nmicrobatches = [1, 2]\n'
        f'[options]\ntopology = "{made["t.toml"]}"\ncomm-table = "{made["c.csv"]}"\n'
        f'[output]\ndatabase = "new.sqlite"\n{export.format(made[name])}\n'
    )
    code, _, err = run("sweep", path)
    assert (code, err) == (
        2,
        f"error: {tmp_path / made[name]}: cannot write: it is an input, or "
        "two outputs go to the same file\n",
    )
    assert (tmp_path / made[name]).read_text() == NAMES[name]


@pytest.mark.parametrize("name", ["w.txt", "t.toml"])
def test_files_that_a_table_of_steps_names(name: str, run: Run, tmp_path: Path) -> None:
    for other in ("w.txt", "t.toml"):
        (tmp_path / other).write_text(NAMES[other])
    path = tmp_path / "table.csv"
    path.write_text("workload,topology,measured_s\nw.txt,t.toml,1.0\n")
    code, _, err = run("validate", path, "--json", tmp_path / name)
    assert code == 2
    assert "it is an input" in err
    assert (tmp_path / name).read_text() == NAMES[name]


def test_traces_of_a_run(run: Run, tmp_path: Path) -> None:
    trace = tmp_path / "rank0.txt"
    trace.write_text("a trace")
    code, _, err = run("calibrate", tmp_path, "-o", trace)
    assert code == 2
    assert "it is an input" in err
    assert trace.read_text() == "a trace"


def test_a_shipped_topology(run: Run, tmp_path: Path) -> None:
    from stepsim.files.shipped import topology_file

    path = topology_file("ring")
    before = path.read_bytes()
    code, _, err = run("inspect", "ring", "--json", path)
    assert code == 2
    assert "it is an input" in err
    assert path.read_bytes() == before
