"""What a table is: named columns of one kind of value each, rows of values, and values in words.

A printer turns it into text: `stepsim.show.terminal` for a terminal, `stepsim.views.facts` for a
page. Both write a value as its column says.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeVar

from stepsim.base.structs import Names, Noun, replace
from stepsim.base.units import (
    PS_PER_S,
    format_bandwidth,
    format_size_bytes,
    format_time_ps,
)


class Piece(NamedTuple):
    """A piece of a bar, behind those before it: its share of the whole length."""

    share: float
    name: str
    text: str


class Ordered(NamedTuple):
    """A text, such as a value of an axis as the user wrote it, and the number that sorts it."""

    text: str
    order: float | None


_Row = TypeVar("_Row")

Cell = str | float | Ordered | tuple[Piece, ...] | None
"""A cell: a number in the unit of its column, a text that stands for itself, None for nothing."""


class Column(Noun):
    """What a column holds of an item, and how it is written. Numbers stand right, texts left.

    Where nobody says which of them a column holds, its cells do. A `bar` is drawn.
    """

    write: Callable[[Any], str]
    number: bool | None = None
    bar: bool = False
    value: Callable[[Any], Cell] = lambda item: item

    def of(self, value: str | Callable[[Any], Cell]) -> "Column":
        """The same column for a function of its items, or for where a path leads from them.

        A path is names of attributes such as `link.name`, of keys, and places in rows.
        """
        return replace(self, value=value if callable(value) else _at(value))

    def text(self, value: Cell) -> str:
        """A value as it is shown; `-` where there is none."""
        if value is None:
            return "-"
        if isinstance(value, tuple):
            return value.text if isinstance(value, Ordered) else "; ".join(p.text for p in value)
        return value if isinstance(value, str) else self.write(value)


Heads = dict[str, Column]
"""Columns by their heads."""


def _at(path: str) -> Callable[[Any], Any]:
    """What stands at a path, of any item."""
    steps = path.split(".")
    return lambda item: reduce(_step, steps, item)


def _step(item: Any, name: str) -> Any:
    """What an item has under a name; a row at a place, a mapping 0 where it lacks a key."""
    if isinstance(item, Mapping):
        return item.get(name, 0)
    if name.isdecimal():
        return item[int(name)]
    return None if item is None else getattr(item, name)


def as_number(form: str) -> Column:
    """A column of numbers written in Python's format, e.g. `.3f`, `.1%`, `+.2%`."""
    return Column(write=lambda value: format(value, form), number=True)


def _signed(time_ps: int) -> str:
    return f"{'+' * (time_ps > 0)}{format_time_ps(time_ps)}"


TEXT = Column(write=str, number=False)
COUNT = Column(write=str, number=True)
TIME = Column(write=format_time_ps, number=True)
SIZE = Column(write=format_size_bytes, number=True)
BANDWIDTH = Column(write=format_bandwidth, number=True)
BAR = Column(write=str, number=False, bar=True)
SIGNED = Column(write=_signed, number=True)
"""A time more or less than another one."""
SHARE = as_number(".1%")
ERROR = as_number("+.2%")
AS_IS = Column(write=lambda value: f"{value:.1%}" if isinstance(value, float) else str(value))
"""Texts and counts; numbers that are not whole are shares."""


def _in_seconds(path: str) -> Column:
    """A column of times for an attribute that is in seconds."""
    value = _at(path)
    return TIME.of(lambda item: round(value(item) * PS_PER_S))


def _ratio(part: str, whole: str) -> Column:
    """A column of shares: what is at a path, of what is at another one."""
    value, other = _at(part), _at(whole)
    return SHARE.of(lambda item: share_of(value(item), other(item)))


# What the numbers of an attribute are, by the end of its name.
_UNITS: Mapping[str, Callable[[str], Column]] = {
    "difference_ps": SIGNED.of, "_ps": TIME.of, "_bytes": SIZE.of, "bandwidth": BANDWIDTH.of,
    "_s": _in_seconds,
}  # fmt: skip


_NONE: Heads = {}


def paths(text: str, others: Heads = _NONE) -> Heads:
    """Columns by head, of the paths in a text, e.g. `rank, longest = busy.step_ps, gain:+.1%`.

    The end of an attribute's name says how its numbers are written, or a format of Python behind
    it. A head may be left out: it is the last name without its unit. `idle = idle_ps/step_ps` is a
    share. Columns that need more than a path stand in the text by the heads of `others`.
    """
    found = {}
    for each in text.split(", "):
        if each in others:
            found[each] = others[each]
            continue
        head, _, written = each.rpartition(" = ")
        path, _, form = written.partition(":")
        part, _, whole = path.partition("/")
        unit = next((unit for unit in _UNITS if f"{unit}." in f"{path}."), "")
        own = path.rpartition(".")[2].removesuffix(unit).replace("_", " ")
        column = as_number(form).of if form else _UNITS.get(unit, AS_IS.of)
        found[head or own] = _ratio(part, whole) if whole else column(path)
    return found


class Table(Noun):
    """Rows of values under named columns.

    A terminal shows at most `most` rows, unless that is 0: the first, or where `both_ends` the
    first and the last. With `folds` it shows rows in a line that differ in their first column alone
    as one.
    """

    caption: str = ""
    columns: Heads
    rows: tuple[tuple[Cell, ...], ...]
    most: int = 0
    both_ends: bool = False
    folds: bool = False

    def ends(self, rows: Sequence[_Row]) -> tuple[Sequence[_Row], Sequence[_Row]]:
        """The first and the last of rows in any form that a terminal shows, without the others."""
        if not 0 < self.most < len(rows):
            return rows, ()
        half = self.most // 2 if self.both_ends else 0
        return rows[: self.most - half], rows[len(rows) - half :]

    @property
    def in_words(self) -> list[tuple[int, str, Column]]:
        """Place, name and kind of all columns but bars, which are drawn."""
        every = enumerate(self.columns.items())
        return [(i, name, column) for i, (name, column) in every if not column.bar]


Pairs = tuple[tuple[str, str], ...]
"""Names and values that stand below each other."""

Shown = Table | Pairs | str
"""What is shown at once: a table, names with values, a text."""

Sheet = Iterable[Shown]
"""What is shown of a result, one below the other."""


def table_of(caption: str, items: Iterable[Any], columns: Heads, **more: Any) -> Table:
    """A row per item, its cells as the columns say; `more` are other fields of the table.

    Of a column that does not know whether it holds numbers, its cells tell.
    """
    cells = [column.value for column in columns.values()]
    rows = tuple(tuple(cell(item) for cell in cells) for item in items)
    known = dict(columns)
    for i, (head, column) in enumerate(columns.items()):
        if column.number is None:
            is_number = any(isinstance(row[i], int | float) for row in rows)
            known[head] = replace(column, number=is_number)
    return Table(caption=caption, columns=known, rows=rows, **more)


def share_of(part: float, whole: float) -> float:
    """A part's share of the whole; 0 of nothing."""
    return part / whole if whole else 0.0


class Answer(Noun):
    """What a reader wants to know first.

    `job` says what was simulated, `time` how long a step takes and what that is worth, `parts`
    where the step goes. `fits` is whether the device has the memory. `advice` names what to look
    at next.
    """

    job: str
    time: str
    parts: str
    fits: bool = True
    advice: str = ""

    @property
    def lines(self) -> Names:
        """The lines as they are printed."""
        return tuple(line for line in (self.job, self.time, self.parts) if line)
