"""What is shown of a result as a piece of HTML, for notebooks."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from stepsim.show.tables.model import Pairs, Room, Shown, Table

_LEFT = "text-align: left"
_RIGHT = "text-align: right"


def html_of(shown: Iterable[Shown]) -> str:
    """Tables, names with values and texts below each other, as a terminal prints them."""
    return "\n".join(line for each in shown for line in _lines(each))


def _lines(shown: Shown) -> Iterator[str]:
    if isinstance(shown, str):
        yield f"<p>{escape(shown)}</p>"
    elif isinstance(shown, Table):
        yield from _table(shown) if shown.rows else ()
    else:
        yield from _pairs(shown)


def _pairs(pairs: Pairs) -> Iterator[str]:
    yield "<table>"
    for name, value in pairs:
        yield _row("th", [name], [_LEFT])[:-5] + _row("td", [value], [_LEFT])[4:]
    yield "</table>"


def _table(table: Table) -> Iterator[str]:
    columns = table.shown(Room.EVERYWHERE, Room.TERMINAL)
    sides = [_RIGHT if column.number else _LEFT for _, _, column in columns]
    first, last = table.ends()
    yield f"<table><caption>{escape(table.caption)}</caption>"
    yield _row("th", [name for _, name, _ in columns], sides)
    for number, row in enumerate((*first, *last)):
        if number == len(first):
            yield _row("td", ["..."], [_LEFT])
        yield _row("td", [column.text(row[i]) for i, _, column in columns], sides)
    if len(first) < len(table.rows) and not last:
        yield _row("td", ["..."], [_LEFT])
    yield "</table>"


def _row(tag: str, texts: Sequence[str], sides: Sequence[str]) -> str:
    cells = zip(texts, sides, strict=True)
    inside = "".join(f'<{tag} style="{side}">{escape(text)}</{tag}>' for text, side in cells)
    return f"<tr>{inside}</tr>"
