"""Files that are none, or endless, in every place of the command line that takes a path."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from fuzz import surface
from helpers import Run

MEMORY_BYTES = 1 << 30

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes and devices")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 << 30)


INPUTS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "sparse": sparse,
}
OUTPUTS: dict[str, Callable[[Path], object]] = {
    "nowhere": lambda _: None,
    "circle": lambda path: path.symlink_to(path),
    "name": lambda _: None,
    "taken": lambda path: (path / "mine").mkdir(parents=True),
}
Case = tuple[surface.Words, Any, Any, str]
"""A command by its words, a parameter of it, and a kind of file."""
NAMES = {"nowhere": "no/folder/x/{}", "name": "x" * 300 + "{}"}
"""Names of outputs of some kinds."""


def places(chosen: Callable[[Any], bool], kinds: Iterable[str]) -> list[Any]:
    """(command, parameter, kind of file): kinds one after the other."""
    found = [
        (words, command, each)
        for words, command in surface.commands()
        for each in command.params
        if chosen(each)
    ]
    return [
        pytest.param(*place, kind, id=f"{'-'.join(place[0])}-{place[2].name}-{kind}")
        for place, kind in zip(found, cycle(kinds), strict=False)
    ]


@contextmanager
def little_memory() -> Iterator[None]:
    """Let this process take a gigabyte more and no more."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES, before[1])
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def ends_well(code: int, err: str) -> None:
    """A command gave its result or one error, and not because it took all memory."""
    assert code in (0, 1, 2)
    assert "Traceback" not in err
    assert "not enough memory" not in err
    lines = [line for line in err.splitlines() if not line.startswith(("warning: ", "note: "))]
    assert len(lines) == (code == 2), err


def check_input(words: surface.Words, command: Any, given: Any, kind: str, run: Run) -> None:
    """A command whose input is no plain file refuses it, or does not look at it."""
    name = str(surface.EXAMPLES[words].get(given.name, "x.toml"))
    path = Path(f"special{Path(name).suffix}")
    INPUTS[kind](path)
    before = sorted(os.listdir())
    with little_memory():
        code, _, err = run(*surface.arguments(words, command, **{given.name: path}))
    ends_well(code, err)
    if code == 2:
        assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    "cases",
    surface.of_one_command(places(surface.is_input, INPUTS)),
)
def test_inputs(cases: Sequence[Case], run: Run, tmp_path: Path) -> None:
    for case in cases:
        with surface.empty_folder(tmp_path) as folder:
            surface.prepare(folder)
            check_input(*case, run)


def check_output(words: surface.Words, command: Any, output: Any, kind: str, run: Run) -> None:
    """A command whose output cannot be written says so at once and writes nothing."""
    path = Path(NAMES.get(kind, "{}").format(f"output{surface.suffix_of(output)}"))
    OUTPUTS[kind](path)
    before = sorted(os.listdir())
    code, out, err = run(*surface.arguments(words, command, **{output.name: path}))
    if surface.is_folder(output) and kind == "nowhere":
        assert code == 0
        return
    assert code == 2, out
    assert out == ""
    assert [line.startswith("error: ") for line in err.splitlines()] == [True], err
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("cases", surface.of_one_command(places(surface.is_output, OUTPUTS)))
def test_outputs(cases: Sequence[Case], run: Run, tmp_path: Path) -> None:
    for case in cases:
        with surface.empty_folder(tmp_path) as folder:
            surface.prepare(folder)
            check_output(*case, run)
