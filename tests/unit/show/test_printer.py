"""What a pipe gets: a row is one line, as a console would write it."""

from io import StringIO
from typing import Any

import pytest
from helpers import uniform_workload

import stepsim
from stepsim.documents.table import Shown, Table
from stepsim.files.load import topology_of
from stepsim.network.topology.inspection import inspect_topology
from stepsim.show.terminal import Paper, _cells, print_shown
from stepsim.views.inspection import topology_shown

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


def printed(shown: list[Shown], width: int | None = None) -> list[str]:
    """The lines of what is shown in a pipe, or on a terminal so wide."""
    out = StringIO()
    print_shown(Paper(out, width), shown)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("command", ["simulate", "compare", "inspect"])
def test_a_row_is_one_line_in_a_pipe(shown: dict[str, list[Shown]], command: str) -> None:
    lines = printed(shown[command])
    for table in (each for each in shown[command] if isinstance(each, Table)):
        columns = table.in_words
        for row in table.ends(table.rows)[0]:
            assert any(all(c.text(row[i]) in line for i, _, c in columns) for line in lines)


def test_a_text_is_printed_as_it_is() -> None:
    """What a terminal would obey is escaped; a line is broken on a terminal alone."""
    text = "[bold]text[/bold] :smile: \x1b[1m\tand\nlines"
    plain = ["[bold]text[/bold] :smile: \\x1b[1m\\tand", "lines"]
    assert printed([text]) == plain
    assert printed([text], 80) == plain
    assert " ".join(printed([text], 20)) == " ".join(plain)
    assert max(map(len, printed([text], 20))) <= 20
    assert printed([(("名", "wide 字"),)]) == ["名  wide 字"]


def test_an_accent_takes_no_place() -> None:
    assert _cells("e\u0301 字") == 4


def test_a_terminal_gets_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    Paper(out, 80).print("text", style="red")
    monkeypatch.setenv("NO_COLOR", "1")
    Paper(out, 80).print("text", style="red")
    Paper(out).print("text", style="red")
    assert out.getvalue().splitlines() == [
        "\x1b[1;31mtext\x1b[0m",
        "\x1b[1mtext\x1b[0m",
        "text",
    ]
