"""No output replaces an input: for every option that reads a file and every one that writes one."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fuzz import seeds, surface
from helpers import Run

ALIKE: dict[str, Callable[[Path, Path], object]] = {
    "the same name": lambda *_: None,
    "a link": lambda path, other: other.symlink_to(path),
    "a hard link": os.link,
}
Case = tuple[surface.Words, Any, Any, Any]
"""A command by its words, and two parameters of it."""
NOT_WRITTEN = ("not for workloads", "schedule is '", "holds a sweep that has run", "do nothing")
"""What is said of outputs that are never written, and of inputs that no file can be."""


def pairs(*, every: bool) -> list[Any]:
    """(command, input, output): each input with each output of its command, or with one."""
    found = []
    for words, command in surface.commands():
        outputs = [each for each in command.params if surface.is_output(each)]
        inputs = [each for each in command.params if surface.is_input(each, every=every)]
        for i, given in enumerate(inputs):
            for output in outputs if every else outputs[i % len(outputs) :][:1] if outputs else ():
                label = f"{'-'.join(words)}-{given.name}-{output.name}"
                found.append(pytest.param(words, command, given, output, id=label))
    return found


def two_outputs(*, every: bool) -> list[Any]:
    """(command, output, output): every two of a command, or each with the next."""
    found = []
    for words, command in surface.commands():
        outputs = [each for each in command.params if surface.is_output(each)]
        for i, first in enumerate(outputs):
            for second in outputs[i + 1 :] if every else outputs[i + 1 : i + 2]:
                label = f"{'-'.join(words)}-{first.name}-{second.name}"
                found.append(pytest.param(words, command, first, second, id=label))
    return found


@pytest.mark.parametrize("cases", surface.of_one_command(pairs(every=False)))
def test_inputs_stay(cases: Sequence[Case], run: Run, tmp_path: Path) -> None:
    for case in cases:
        with surface.empty_folder(tmp_path) as folder:
            err = stays(*case, "the same name", run, folder)
        assert any(said in err for said in ("cannot write", *NOT_WRITTEN)), err


@pytest.mark.slow
@pytest.mark.parametrize("alike", ALIKE)
@pytest.mark.parametrize("cases", surface.of_one_command(pairs(every=True)))
def test_every_input_stays(cases: Sequence[Case], alike: str, run: Run, tmp_path: Path) -> None:
    for case in cases:
        with surface.empty_folder(tmp_path) as folder:
            stays(*case, alike, run, folder)


def stays(
    words: surface.Words,
    command: Any,
    given: Any,
    output: Any,
    alike: str,
    run: Run,
    folder: Path,
) -> str:
    """The error of a command that shall write what it reads; it writes nothing."""
    suffix = surface.suffix_of(output)
    path, other = folder / f"input{suffix}", folder / f"other{suffix}"
    path.write_text(seeds.SMALL_WORKLOAD)
    ALIKE[alike](path, other)
    workload = folder / "workload.txt"
    workload.write_text(seeds.SMALL_WORKLOAD)
    values: dict[str, object] = {
        each.name: workload for each in command.params if each.required and surface.is_input(each)
    }
    values |= {given.name: path, output.name: other if other.exists() else path}
    code, _, err = run(*surface.arguments(words, command, **values))
    assert code == 2
    assert err.count("\n") == 1, err
    assert path.read_text() == seeds.SMALL_WORKLOAD
    assert sorted({path, other, workload} & set(folder.iterdir())) == sorted(folder.iterdir())
    return err


@pytest.mark.parametrize("cases", surface.of_one_command(two_outputs(every=False)))
def test_two_outputs_are_two_files(cases: Sequence[Case], run: Run, tmp_path: Path) -> None:
    for case in cases:
        with surface.empty_folder(tmp_path) as folder:
            check_two_outputs(*case, run, folder)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "command", "first", "second"), two_outputs(every=True))
def test_every_two_outputs_are_two_files(
    words: surface.Words, command: Any, first: Any, second: Any, run: Run, tmp_path: Path
) -> None:
    check_two_outputs(words, command, first, second, run, tmp_path)


def check_two_outputs(
    words: surface.Words, command: Any, first: Any, second: Any, run: Run, folder: Path
) -> None:
    """A command whose two outputs are one file is refused, and writes nothing."""
    surface.prepare(folder)
    before = sorted(folder.iterdir())
    path = folder / f"out{surface.suffix_of(first)}"
    values = {each: folder / str(name) for each, name in surface.files_of(words, command)}
    values |= {first.name: path, second.name: path}
    code, _, err = run(*surface.arguments(words, command, **values))
    assert code == 2
    assert err.count("\n") == 1, err
    assert any(said in err for said in ("cannot write", *NOT_WRITTEN)), err
    assert sorted(folder.iterdir()) == before


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
    from stepsim.files.reading import topology_file

    path = topology_file("ring")
    before = path.read_bytes()
    code, _, err = run("inspect", "ring", "--json", path)
    assert code == 2
    assert "it is an input" in err
    assert path.read_bytes() == before
