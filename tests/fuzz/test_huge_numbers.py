"""Integers beyond 64 bits, infinities and what is no number: in every option and field."""

import re
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from fuzz import seeds, surface
from helpers import Run
from pairs import in_turn

HUGE = ("9223372036854775808", "9" * 300, "9" * 5000, "-9223372036854775809")
QUICK = ("9223372036854775808", "nan")
"""Options take them in turn."""
NO_NUMBERS = ("inf", "nan", "1e400", "-inf")
INSTEAD = {("inspect", "npus"): "hgx-h100", ("inspect", "node_size"): "trace.txt"}
"""Files that options of inspect are about, where the example's is not."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What commands read, in the folder where they run."""
    surface.prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def by_command() -> list[Any]:
    """Every command with its options that take a number."""
    found = {
        "-".join(words): (
            words,
            command,
            [each for each in command.params if surface.is_number(each)],
        )
        for words, command in surface.commands()
    }
    return [pytest.param(*own, id=name) for name, own in found.items() if own[2]]


@pytest.mark.parametrize(("words", "command", "numbers"), by_command())
def test_options(
    words: surface.Words, command: Any, numbers: list[Any], run: Run, folder: Path
) -> None:
    """A command with such a value of an option ends with a result or one error."""
    for option, value in zip(numbers, cycle(QUICK), strict=False):
        own = {"file": INSTEAD[words[0], option.name]} if (words[0], option.name) in INSTEAD else {}
        code, out, err = run(*surface.arguments(words, command, **own, **{option.name: value}))
        assert code in (0, 1, 2), (option.name, err)
        assert "Traceback" not in err
        assert not re.search(r"\b(inf|nan)\b", out), (option.name, out)
        errors = [line for line in err.splitlines() if line.startswith("error: ")]
        assert len(errors) <= 1, err


def fields(text: str) -> Iterator[str]:
    """The document with each of its integers in turn beyond 64 bits, and beyond all floats."""
    for place in re.finditer(r"(?<=: )\d+(?=[,\n])", text):
        for value in (HUGE[0], "9" * 400):
            yield f"{text[: place.start()]}{value}{text[place.end() :]}"


def test_fields_of_a_result(run: Run, folder: Path) -> None:
    """Commands that read results end with a result or one error, whatever a field holds."""
    for text in islice(fields(seeds.results()[0].decode()), 0, None, 40):
        (folder / "r.json").write_text(text)
        for words in (("diff", "r.json", "r.json"), ("report", "r.json", "-o", "page.html")):
            code, _, err = run(*words)
            assert code in (0, 2), err
            assert err.count("\n") == (code != 0), err


SWEEPS = (
    "[axes]\nmicrobatches = {}",
    "[axes]\nmicrobatches = [1, {}]",
    "[axes]\ncompute_scale = [{}]",
    "[axes]\nmicrobatches = [1]\n[run]\njobs = {}",
    "[axes]\nmicrobatches = [1]\n[options]\nnpus = {}",
    "[axes]\nmicrobatches = [1]\n[options]\nmemory-limit = {}",
    "[axes]\nmicrobatches = [1]\n[options]\ncompute-scale = {}",
)


@pytest.mark.parametrize(("entry", "value"), in_turn(SWEEPS, [*HUGE, *NO_NUMBERS]))
def test_fields_of_a_sweep(entry: str, value: str, run: Run, folder: Path) -> None:
    """A sweep file with such a number is refused in one line."""
    (folder / "s.toml").write_text(f'workload = "w.txt"\n{entry.format(value)}\n')
    code, out, err = run("sweep", "s.toml", "-q")
    assert code == 2, out
    assert err.count("\n") == 1, err
    assert err.startswith("error: ")


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("old", ["1201.0", "195.6"])
def test_fields_of_measured_times(old: str, value: str, run: Run, folder: Path) -> None:
    (folder / "c.csv").write_text(seeds.COMM_TABLE.replace(old, value))
    code, _, err = run("simulate", "w.txt", "-q", "--comm-table", "c.csv")
    assert code == 2
    assert err.startswith("error: c.csv:4: ")


def test_infinite_bandwidths_are_said(run: Run, folder: Path) -> None:
    for command, values in (("sweep", "inf,1 GB/s"), ("simulate", "inf")):
        _, _, err = run(command, "w.txt", "--set", f"fabric.bandwidth={values}")
        assert "warning: fabric.bandwidth is infinite" in err
