"""No number is cut, whatever the width: tables stand in blocks where they do not fit."""

import re
from io import StringIO
from typing import Any

import pytest
from helpers import uniform_workload

import stepsim
from stepsim.files.load import topology_of
from stepsim.network.topology.inspection import inspect_topology
from stepsim.show.console import PlainConsole
from stepsim.show.tables.inspection import topology_shown
from stepsim.show.tables.model import Room, Shown, Table
from stepsim.show.terminal import PlainPaper, paper, print_shown

WORK = uniform_workload(forward=10**9, backward=2 * 10**9, pp=4, microbatches=8)
AXES = {"schedule": ["1f1b", "gpipe", "zb-h1"], "host_overhead": ["1 ms", "2 ms"]}
WIDTHS = (40, 60, 80, 200)


@pytest.fixture(scope="module")
def shown() -> dict[str, list[Shown]]:
    """What commands print."""
    results: dict[str, Any] = {
        "simulate": stepsim.simulate(WORK, "hgx-h100"),
        "compare": stepsim.compare(WORK, "1f1b,gpipe,zb-h1,zb-v", "hgx-h100"),
        "sensitivity": stepsim.sensitivity(WORK, "hgx-h100"),
        "noise": stepsim.noise(WORK, "hgx-h100", samples=20),
        "sweep": stepsim.sweep(WORK, "hgx-h100", axes=AXES),
        "plan": stepsim.plan(
            "llama-3.1-8b", "hgx-h100", gpus=8, global_batch=8, sequence=1024, runs=2, fix={"tp": 8}
        ),
    }
    topology = topology_of("hgx-h100")
    inspected = list(topology_shown(inspect_topology(topology), topology.library))
    return {**{name: list(each._shown()) for name, each in results.items()}, "inspect": inspected}


COMMANDS = ("simulate", "compare", "sensitivity", "noise", "sweep", "plan", "inspect")


def printed(shown: list[Shown], width: int, *, terminal: bool) -> list[str]:
    """The lines of what is shown on a terminal of a width, or in a pipe."""
    out = StringIO()
    print_shown(
        PlainConsole(file=out, width=width, force_terminal=terminal, color_system=None), shown
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()


def numbers(table: Table) -> set[str]:
    """The texts of the numbers that a table shows."""
    columns = table.shown(Room.EVERYWHERE, Room.TERMINAL)
    first, last = table.ends()
    rows = (*first, *last)
    return {column.text(row[i]) for i, _, column in columns if column.number for row in rows}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_numbers_are_whole_on_terminals(
    shown: dict[str, list[Shown]], command: str, width: int
) -> None:
    lines = printed(shown[command], width, terminal=True)
    tables = [each for each in shown[command] if isinstance(each, Table)]
    assert tables
    for table in tables:
        for text in numbers(table):
            assert any(text in line for line in lines), text
    assert "…" not in "".join(lines)
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("command", COMMANDS)
def test_a_row_is_one_line_in_a_pipe(shown: dict[str, list[Shown]], command: str) -> None:
    lines = printed(shown[command], 80, terminal=False)
    assert lines == printed(shown[command], 20, terminal=False)
    for table in (each for each in shown[command] if isinstance(each, Table)):
        columns = table.shown(Room.EVERYWHERE, Room.TERMINAL)
        for row in table.ends()[0]:
            texts = [column.text(row[i]) for i, _, column in columns]
            assert any(all(text in line for text in texts) for line in lines)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_gets_what_a_console_writes_to_one(
    shown: dict[str, list[Shown]], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without `rich`, which takes long to import."""
    text = "[bold]text[/bold] :smile: \x1b[1m\tand\nlines"
    every: list[Shown] = [*shown[command], text, (("名", "wide 字"),)]
    out = StringIO()
    print_shown(PlainConsole(file=out, force_terminal=False), every)
    print_shown(PlainPaper(), every)
    assert capsys.readouterr().out == out.getvalue()


def test_rich_prints_where_users_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("TTY_COMPATIBLE", raising=False)
    monkeypatch.setattr("sys.stdout", StringIO())
    assert isinstance(paper(), PlainPaper)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert isinstance(paper(), PlainConsole)
