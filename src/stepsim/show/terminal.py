"""The terminal: what is shown of a result, printed, and a progress bar for longer runs."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from itertools import zip_longest
from shutil import get_terminal_size
from textwrap import wrap
from typing import TextIO
from unicodedata import combining, east_asian_width

from stepsim.base.errors import printable
from stepsim.documents.table import Answer, Cell, Pairs, Sheet, Shown, Table

_BETWEEN = "  "
_LEAST_FOLDED = 16
_LEAST_FIRST = 8
_LEFT_OUT = "..."


class Paper:
    """Where lines are printed: standard output unless a stream is given.

    A terminal, which is so many characters wide, gets styles, and texts broken between words;
    other streams get lines as they are.
    """

    def __init__(self, stream: TextIO | None = None, width: int | None = None) -> None:
        self._stream = stream or sys.stdout
        if width is None and self._stream.isatty():
            width = get_terminal_size().columns
        self.is_terminal, self.width = width is not None, width or 0

    def print(self, text: str = "", *, style: str = "", breaks: bool = False) -> None:
        """Print a text, its lines cleaned of what a terminal would obey.

        A `style` is `bold`, or `red`, which is bold as well; with `breaks` long lines are broken.
        """
        lines = [printable(line) for line in text.split("\n")]
        if self.is_terminal and breaks:
            lines = [part for line in lines for part in _fold(line, self.width) or [""]]
        shown = "\n".join(lines)
        if self.is_terminal and style:
            red = style == "red" and not os.environ.get("NO_COLOR")
            shown = f"\x1b[{'1;31' if red else '1'}m{shown}\x1b[0m"
        self._stream.write(f"{shown}\n")


def print_shown(console: Paper, shown: Sheet, before: Shown | None = None) -> None:
    """Print one below the other, tables with an empty line before and after them.

    `before` is what was printed before.

    Nothing is cut. On a terminal texts are broken between words, and tables that are too wide
    stand in blocks of columns; elsewhere a row is one line, however wide.
    """
    for each in shown:
        if isinstance(each, Table) and not each.rows:
            continue
        if before is not None and (isinstance(each, Table) or isinstance(before, Table)):
            console.print()
        if isinstance(each, Table):
            _print_table(console, each)
        elif isinstance(each, str):
            console.print(each, breaks=True)
        else:
            _print_pairs(console, each)
        before = each


def print_answer(console: Paper, answer: Answer) -> None:
    """Print an answer in its three lines; the second stands out, in red where it does not fit."""
    for number, line in enumerate(answer.lines):
        style = ("bold" if answer.fits else "red") if number == 1 else ""
        console.print(line, style=style, breaks=True)


def _print_pairs(console: Paper, pairs: Pairs) -> None:
    width = max(len(name) for name, _ in pairs)
    room = console.width - width - len(_BETWEEN)
    for name, value in pairs:
        lines = _fold(value, room) if console.is_terminal and room >= _LEAST_FOLDED else [value]
        for i, line in enumerate(lines):
            console.print(f"{'' if i else name:<{width}}  {line}")


def _print_table(console: Paper, table: Table) -> None:
    """Caption and names of the columns in bold, numbers right, texts left, no frame.

    On a terminal that is too narrow the columns stand in blocks below each other, each with the
    first column.
    """
    if table.caption:
        console.print(table.caption, style="bold", breaks=True)
    columns = table.in_words
    names = [name for _, name, _ in columns]

    def texts_of(rows: Sequence[tuple[Cell, ...]]) -> list[list[str]]:
        return [[printable(c.text(row[i])) for i, _, c in columns] for row in rows]

    if table.folds:
        first, last = table.ends(_equal_folded(texts_of(table.rows)))
    else:
        first, last = map(texts_of, table.ends(table.rows))
    rows = [*first, *last]
    widths = [max(map(_cells, texts)) for texts in zip(names, *rows, strict=True)]
    blocks = [list(range(len(columns)))]
    right = [bool(column.number) for _, _, column in columns]
    if console.is_terminal:
        widths = _folded(widths, right, console.width)
        blocks = _blocks(widths, console.width)
    more = not last and len(first) == table.most < len(table.rows)
    for block in blocks:
        spans, sides = [widths[i] for i in block], [right[i] for i in block]
        shown = [[texts[i] for i in block] for texts in (names, *rows)]
        for number, texts in enumerate(shown):
            if number == len(first) + 1:
                console.print(_LEFT_OUT)
            for line in zip_longest(*map(_fold, texts, spans), fillvalue=""):
                style = "" if number else "bold"
                console.print(_line(line, spans, sides), style=style)
        if more:
            console.print(_LEFT_OUT)


def _equal_folded(rows: Sequence[list[str]]) -> list[list[str]]:
    """Rows in a line that differ in their first text alone as one, e.g. `1 to 14`."""
    shown: list[list[str]] = []
    last = ""
    for row in rows:
        if shown and row[1:] == shown[-1][1:]:
            first = shown[-1][0].removesuffix(f" to {last}")
            shown[-1][0] = f"{first} to {row[0]}"
        else:
            shown.append(list(row))
        last = row[0]
    return shown


def _folded(widths: Sequence[int], right: Sequence[bool], room: int) -> list[int]:
    """Widths of columns with that of the longest texts narrowed, as far as the room needs it."""
    found = list(widths)
    lacking = sum(widths) + len(_BETWEEN) * (len(widths) - 1) - room
    texts = [place for place in range(1, len(widths)) if not right[place]]
    if texts and lacking > 0:
        place = max(texts, key=widths.__getitem__)
        found[place] = max(min(found[place], _LEAST_FOLDED), found[place] - lacking)
    widest = max(found[1:], default=0) + len(_BETWEEN)
    if found[0] + widest > room:
        found[0] = min(found[0], max(_LEAST_FIRST, room - widest))
    return found


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Columns by number that stand side by side, the first one in every block."""
    blocks, used = [[0]], widths[0]
    for place, width in enumerate(widths[1:], start=1):
        if used + len(_BETWEEN) + width > room and len(blocks[-1]) > 1:
            blocks.append([0])
            used = widths[0]
        blocks[-1].append(place)
        used += len(_BETWEEN) + width
    return blocks


def _fold(text: str, width: int) -> list[str]:
    if _cells(text) <= width:
        return [text]
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    cells = []
    for text, width, number in zip(texts, widths, right, strict=True):
        space = " " * (width - _cells(text))
        cells.append(space + text if number else text + space)
    return _BETWEEN.join(cells).rstrip()


def _cells(text: str) -> int:
    """Places that a text takes on a terminal: wide characters two, accents of a letter none."""
    if text.isascii():
        return len(text)
    return sum(1 + (east_asian_width(c) in "WF") for c in text if not combining(c))


_SHOWN_AFTER_S = 1.0


def shown_text(shown: Sheet) -> str:
    """What `print_shown` prints where nobody looks, as a text."""
    text = StringIO()
    print_shown(Paper(text), shown)
    return text.getvalue().rstrip()


@contextmanager
def progress_bar(text: str, *, enabled: bool) -> Iterator[Callable[..., None] | None]:
    """A bar on stderr, shown once something has taken a second; None where nobody watches.

    Yields a function to call with how much is done, how much there is, and words on how it goes.
    What never calls it shows that it goes on.
    """
    if not (enabled and sys.stderr.isatty()):
        yield None
        return
    from threading import Timer

    from tqdm import tqdm

    bar = tqdm(desc=text, delay=_SHOWN_AFTER_S, leave=False, bar_format="{desc} ...")

    def update(done: int, total: int, words: str = "") -> None:
        bar.total, bar.bar_format = total, None
        bar.set_postfix_str(words, refresh=False)
        bar.update(done - bar.n)

    timer = Timer(_SHOWN_AFTER_S, bar.update, (0,))
    timer.daemon = True
    timer.start()
    with bar:
        try:
            yield update
        finally:
            timer.cancel()
