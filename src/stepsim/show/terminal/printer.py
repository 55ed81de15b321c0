"""Prints what is shown of a result on a terminal."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from stepsim.base.errors import printable
from stepsim.show.tables.model import Pairs, Room, Shown, Table

_BETWEEN = "  "
_LEAST_FOLDED = 16
_LEFT_OUT = "..."


class PlainConsole(Console):
    """A console that prints text as it is: no markup, no emoji, no control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """A text to print, its lines cleaned of what a terminal would obey."""
        return super().render_str("\n".join(map(printable, text.split("\n"))), **options)


def print_shown(console: Console, shown: Iterable[Shown]) -> None:
    """Print one below the other, tables with an empty line before and after them.

    Nothing is cut: what is wider than the console is printed as it is. On a terminal texts are
    broken between words, in tables those of columns that fold; elsewhere a row is one line.
    """
    before: Shown | None = None
    for each in shown:
        if isinstance(each, Table) and not each.rows:
            continue
        if before is not None and (isinstance(each, Table) or isinstance(before, Table)):
            console.print()
        if isinstance(each, Table):
            _print_table(console, each)
        elif isinstance(each, str):
            console.print(each, soft_wrap=not console.is_terminal)
        else:
            _print_pairs(console, each)
        before = each


def _print_pairs(console: Console, pairs: Pairs) -> None:
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        console.print(f"{name:<{width}}  {value}", soft_wrap=True)


def _print_table(console: Console, table: Table) -> None:
    """Caption and names of the columns in bold, numbers right, texts left, no frame."""
    if table.caption:
        console.print(table.caption, style="bold", soft_wrap=True)
    columns = table.shown(Room.EVERYWHERE, Room.TERMINAL)
    names = [name for _, name, _ in columns]
    first, last = table.ends()
    rows = [[printable(c.text(row[i])) for i, _, c in columns] for row in (*first, *last)]
    widths = [max(map(cell_len, texts)) for texts in zip(names, *rows, strict=True)]
    room = console.width - sum(widths) - len(_BETWEEN) * (len(widths) - 1)
    for place, (_, _, column) in enumerate(columns):
        if column.folds and room < 0 and console.is_terminal:
            widths[place] = max(min(widths[place], _LEAST_FOLDED), widths[place] + room)
    right = [column.number for _, _, column in columns]
    console.print(_line(names, widths, right), style="bold", soft_wrap=True)
    for number, texts in enumerate(rows):
        if number == len(first):
            console.print(_LEFT_OUT)
        folded = map(_fold, texts, widths)
        for line in zip_longest(*folded, fillvalue=""):
            console.print(_line(line, widths, right), soft_wrap=True)
    if len(rows) == len(first) < len(table.rows):
        console.print(_LEFT_OUT)


def _fold(text: str, width: int) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = []
    for text, width, number in zip(texts, widths, right, strict=True):
        space = " " * (width - cell_len(text))
        cells.append(space + text if number else text + space)
    return _BETWEEN.join(cells).rstrip()
