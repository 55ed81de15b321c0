"""A table is data: the terminal and a page print the same of it, and nothing is cut."""

import io
import re
from pathlib import Path
from typing import Any

import pytest

from stepsim import simulate
from stepsim.base.axes import Part, PartKind
from stepsim.base.structs import replace
from stepsim.documents.table import BAR, COUNT, SHARE, TEXT, TIME, Ordered, Piece, Shown, Table
from stepsim.show.terminal import Paper, print_shown
from stepsim.views.facts import plain_table
from stepsim.views.step import stages_table

LINKS = Table(
    caption="links of a job",
    columns={
        "links": TEXT,
        "used": COUNT,
        "p2p time": TIME,
        "all of it": TIME,
        "in use": SHARE,
        "parts": BAR,
    },
    rows=(
        (
            "nvlink",
            Ordered("3/12", 3),
            1_500_000,
            3_000_000,
            0.25,
            (Piece(1, "compute", "x"),),
        ),
        ("fabric", 7, None, 0, "unknown", ()),
    ),
)


def printed(*shown: Shown, width: int = 80, terminal: bool = False) -> list[str]:
    out = io.StringIO()
    console = Paper(out, width if terminal else None)
    print_shown(console, shown)
    return re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()).splitlines()


def test_numbers_stand_right_and_texts_left_below_a_caption() -> None:
    assert printed(LINKS) == [
        "links of a job",
        "links   used  p2p time  all of it   in use",
        "nvlink  3/12    1.5 us       3 us    25.0%",
        "fabric     7         -          0  unknown",
    ]


def test_a_page_shows_the_same_texts_and_bars() -> None:
    """What a page sorts by is a number with its text."""
    table: Any = plain_table(LINKS)
    assert table["caption"] == "links of a job"
    names = [column["name"] for column in table["columns"]]
    assert names == ["links", "used", "p2p time", "all of it", "in use", "parts"]
    first, second = table["rows"]
    used, times = ("3/12", 3), [("1.5 us", 1_500_000), ("3 us", 3_000_000)]
    assert first == ["nvlink", used, *times, ("25.0%", 0.25), ((1, "compute", "x"),)]
    assert second == ["fabric", ("7", 7), "-", ("0", 0), "unknown", ""]


def test_nothing_is_cut_where_the_console_is_narrow() -> None:
    names = [f"column {i}" for i in range(40)]
    table = Table(columns=dict.fromkeys(names, COUNT), rows=(tuple(range(10**9, 10**9 + 40)),))
    values = [str(10**9 + i) for i in range(40)]
    head, row = printed(table, width=40)
    assert row.split() == values
    assert len(head) == len(row) == 40 * 10 + 39 * 2
    blocks = printed(table, width=40, terminal=True)
    assert max(map(len, blocks)) <= 40
    assert [text for line in blocks[1::2] for text in line.split()[1:]] == values[1:]


def test_long_texts_fold_on_a_terminal_alone() -> None:
    words = " ".join(f"word{i}" for i in range(20))
    table = Table(columns={"time": TIME, "said": TEXT}, rows=((1000, words), (2000, "short")))
    assert printed(table, width=50)[1] == f"1 ns  {words}"
    lines = printed(table, width=50, terminal=True)
    assert max(map(len, lines)) <= 50
    assert " ".join(" ".join(lines[1:-1]).split()) == f"1 ns {words}"
    assert all(line.startswith("      word") for line in lines[2:-1])


@pytest.mark.parametrize(
    ("most", "both_ends", "kept"),
    [
        (10, True, "0123456789"),
        (4, False, "0123."),
        (5, True, "012.89"),
    ],
)
def test_a_row_of_dots_stands_for_rows_left_out(most: int, both_ends: bool, kept: str) -> None:
    rows = tuple((i,) for i in range(10))
    table = Table(columns={"n": COUNT}, rows=rows, most=most, both_ends=both_ends)
    assert printed(table)[1:] == [each if each != "." else "..." for each in kept]
    assert plain_table(table)["rows"] == [[(str(i), i)] for i in range(10)]


def test_empty_tables_are_left_out_and_lines_stand_together() -> None:
    pairs = (("workload", "w.txt"), ("job", "8 NPUs"))
    shown = (pairs, replace(LINKS, rows=()), "one", "two", replace(LINKS, caption=""), "three")
    lines = printed(*shown)
    assert lines[:4] == ["workload  w.txt", "job       8 NPUs", "one", "two"]
    assert lines[4] == lines[-2] == ""
    assert lines[-1] == "three"


def test_what_a_terminal_would_obey_is_escaped_and_wide_characters_count_twice() -> None:
    table = Table(columns={"name": TEXT, "n": COUNT}, rows=(("\x1b[2J", 1), ("日本語", 2)))
    assert printed(table) == ["name     n", r"\x1b[2J  1", "日本語   2"]
    assert "\x1b" not in "".join(printed((("a", "b\x1b"),), "c\x1b"))


def test_bubble_and_idle_are_two_numbers_with_two_names(moe: Path) -> None:
    """On the line of the pipeline and in columns: no name stands for two of them."""
    step = simulate(moe, "hgx-h100", microbatches=8)
    report, ranks = step.report, step.ranks
    shares = [each.total / report.pipeline_time_ps for each in ranks.bubbles]
    mean = sum(share * n for share, n in zip(shares, ranks.actors.counts.tolist(), strict=True))
    assert report.bubble_fraction == pytest.approx(mean / report.npus)
    idle = {part.label for part in Part if part.kind is PartKind.IDLE}
    assert idle == {"idle, start-up", "idle, steady", "idle, drain"}
    columns = list(stages_table(report).columns)
    assert len(set(columns)) == len(columns)
    assert idle < set(columns)
    assert {"bubble, before", "bubble, between", "bubble, after"} < set(columns)
    assert not idle & {name for name in columns if name.startswith("bubble")}
    for rank in step.document().ranks:
        assert rank.bubble_ps is not None
        parts = rank.bubble_ps
        whole = parts.before + parts.between + parts.after + parts.busy
        assert whole == report.pipeline_time_ps
