"""What a table is: named columns of one kind of value each, and rows of values.

A printer turns it into text: `stepsim.show.terminal` for a terminal, the template of
`stepsim.show.page.page` for a page. Both write a value as its column says.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec

from stepsim.base.structs import Bytes, BytesPerSecond, Count, Noun, Picoseconds, Share, replace
from stepsim.base.units import PS_PER_S, format_bandwidth, format_size_bytes, format_time_ps


class Room(Enum):
    """Where a column is shown: a page has room for more columns than a terminal has."""

    EVERYWHERE = "everywhere"
    PAGE = "page"
    TERMINAL = "terminal"


class Piece(NamedTuple):
    """A piece of a bar, in shares of its length from 0 to 1."""

    start: float
    share: float
    colour: str
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

    `folds` are texts that a terminal breaks into lines where they do not fit; a `bar` is drawn.
    """

    write: Callable[[Any], str]
    number: bool = True
    folds: bool = False
    bar: bool = False
    room: Room = Room.EVERYWHERE
    value: Callable[[Any], Cell] = lambda item: item

    def of(self, value: str | int | Callable[[Any], Cell]) -> "Column":
        """The same column for an attribute of its items, such as `link.name`, or a function.

        A number is a place in items that are rows themselves.
        """
        if isinstance(value, int):
            return replace(self, value=itemgetter(value))
        return replace(self, value=attrgetter(value) if isinstance(value, str) else value)

    @property
    def on_pages(self) -> "Column":
        """The same column where there is room for it."""
        return replace(self, room=Room.PAGE)

    @property
    def on_terminals(self) -> "Column":
        """The same column where others have no room."""
        return replace(self, room=Room.TERMINAL)

    def text(self, value: Cell) -> str:
        """A value as it is shown; `-` where there is none."""
        if value is None:
            return "-"
        if isinstance(value, tuple):
            return value.text if isinstance(value, Ordered) else "; ".join(p.text for p in value)
        return value if isinstance(value, str) else self.write(value)


TEXT = Column(write=str, number=False)
LONG = Column(write=str, number=False, folds=True)
COUNT = Column(write=str)
TIME = Column(write=format_time_ps)
SIZE = Column(write=format_size_bytes)
BANDWIDTH = Column(write=format_bandwidth)
BAR = Column(write=str, number=False, bar=True, room=Room.PAGE)


def as_number(form: str) -> Column:
    """A column of numbers written in Python's format, e.g. `.3f`, `.1%`, `+.2%`."""
    return Column(write=lambda value: format(value, form))


def _signed(time_ps: int) -> str:
    return f"{'+' * (time_ps > 0)}{format_time_ps(time_ps)}"


SIGNED = Column(write=_signed)
"""A time more or less than another one."""
SHARE = as_number(".1%")
ERROR = as_number("+.2%")


def seconds(name: str) -> Column:
    """A column of times for an attribute of its items that is in seconds."""
    value = attrgetter(name)
    return TIME.of(lambda item: round(value(item) * PS_PER_S))


class Table(Noun):
    """Rows of values under named columns.

    A terminal shows at most `most` rows, unless that is 0: the first, or where `both_ends` the
    first and the last. With `folds` it shows rows in a line that differ in their first column alone
    as one. `legend` names the colours of bars.
    """

    caption: str = ""
    columns: Mapping[str, Column]
    rows: tuple[tuple[Cell, ...], ...]
    most: int = 0
    both_ends: bool = False
    folds: bool = False
    legend: tuple[tuple[str, str], ...] = ()
    note: str = ""

    def ends(self, rows: Sequence[_Row]) -> tuple[Sequence[_Row], Sequence[_Row]]:
        """The first and the last of rows in any form that a terminal shows, without the others."""
        if not 0 < self.most < len(rows):
            return rows, ()
        half = self.most // 2 if self.both_ends else 0
        return rows[: self.most - half], rows[len(rows) - half :]

    def shown(self, *rooms: Room) -> list[tuple[int, str, Column]]:
        """Place, name and kind of the columns that are shown in one of some rooms."""
        every = enumerate(self.columns.items())
        return [(i, name, column) for i, (name, column) in every if column.room in rooms]


Pairs = tuple[tuple[str, str], ...]
"""Names and values that stand below each other."""

Shown = Table | Pairs | str
"""What is shown of a result, one below the other: tables, names with values, texts."""


def table_of(
    caption: str, items: Iterable[Any], columns: Mapping[str, Column], **more: Any
) -> Table:
    """A row per item, its cells as the columns say; `more` are other fields of the table."""
    cells = [column.value for column in columns.values()]
    rows = tuple(tuple(cell(item) for cell in cells) for item in items)
    return Table(caption=caption, columns=columns, rows=rows, **more)


_NUMBERS = {Picoseconds: TIME, Bytes: SIZE, BytesPerSecond: BANDWIDTH, Share: SHARE, Count: COUNT}
"""How the numbers of documents are written."""


def shown_pairs(document: msgspec.Struct) -> Pairs:
    """The numbers of a document that it marks with `base.documents.shown`, by their names."""
    pairs = []
    for field in msgspec.structs.fields(document):
        notes = _notes(field.type)
        names = [note.extra["shown"] for note in notes if note.extra]
        value = getattr(document, field.name)
        if names and value is not None:
            column = next(c for kind, c in _NUMBERS.items() if get_args(kind)[1] in notes)
            pairs.append((names[0], column.text(value)))
    return tuple(pairs)


def _notes(kind: Any) -> list[msgspec.Meta]:
    """What is noted of a type and of those it is made of."""
    each_of = [[arg] if isinstance(arg, msgspec.Meta) else _notes(arg) for arg in get_args(kind)]
    return [note for notes in each_of for note in notes]


def share_of(part: float, whole: float) -> float:
    """A part's share of the whole; 0 of nothing."""
    return part / whole if whole else 0.0
