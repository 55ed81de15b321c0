"""What a pipe gets: a row is one line, as a console would write it."""

from io import StringIO
from typing import Any

import pytest
from helpers import uniform_workload

import stepsim
from stepsim.files.load import topology_of
from stepsim.network.topology.inspection import inspect_topology
from stepsim.show.console import PlainConsole
from stepsim.show.tables.inspection import topology_shown
from stepsim.show.tables.model import Shown, Table
from stepsim.show.terminal import PlainPaper, paper, print_shown

WORK = uniform_workload(forward=10**9, backward=2 * 10**9, pp=4, microbatches=8)


@pytest.fixture(scope="module")
def shown() -> dict[str, list[Shown]]:
    """What commands print."""
    results: dict[str, Any] = {
        "simulate": stepsim.simulate(WORK, "hgx-h100"),
        "compare": stepsim.compare(WORK, "1f1b,gpipe,zb-h1,zb-v", "hgx-h100"),
    }
    topology = topology_of("hgx-h100")
    inspected = list(topology_shown(inspect_topology(topology), topology.library))
    return {**{name: list(each._shown()) for name, each in results.items()}, "inspect": inspected}


def printed(shown: list[Shown], width: int) -> list[str]:
    """The lines of what is shown in a pipe, of a console of any width."""
    out = StringIO()
    print_shown(PlainConsole(file=out, width=width, force_terminal=False), shown)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("command", ["simulate", "compare", "inspect"])
def test_a_row_is_one_line_in_a_pipe(shown: dict[str, list[Shown]], command: str) -> None:
    lines = printed(shown[command], 80)
    assert lines == printed(shown[command], 20)
    for table in (each for each in shown[command] if isinstance(each, Table)):
        columns = table.in_words
        for row in table.ends(table.rows)[0]:
            assert any(all(c.text(row[i]) in line for i, _, c in columns) for line in lines)


@pytest.mark.parametrize("command", ["simulate", "compare", "inspect"])
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
