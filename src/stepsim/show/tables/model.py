"""What a table is: named columns of one kind of value each, rows of values, and values in words.

A printer turns it into text: `stepsim.show.terminal` for a terminal, `stepsim.show.page.facts`
for a page. Both write a value as its column says. Jobs, ranks, actions,
communications and axes are said alike wherever they are shown.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from stepsim.base.structs import Noun, replace
from stepsim.base.units import (
    PS_PER_S,
    format_bandwidth,
    format_size_bytes,
    format_time_ps,
    npu_word,
)
from stepsim.explain.report import CommUse, Report
from stepsim.workload.axes import EpLayout, RankOrder
from stepsim.workload.model.evidence import Throughput
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp


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


_NONE: Mapping[str, Column] = {}


def paths(text: str, others: Mapping[str, Column] = _NONE) -> dict[str, Column]:
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
    columns: Mapping[str, Column]
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
"""What is shown of a result, one below the other: tables, names with values, texts."""


def table_of(
    caption: str, items: Iterable[Any], columns: Mapping[str, Column], **more: Any
) -> Table:
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


_MOST_RUNS = 4
_EP_LAYOUTS: Mapping[str, str] = {
    EpLayout.DP: " inside dp",
    EpLayout.FOLDED: " folded over tp and dp",
}
_ALWAYS_SHOWN = ("tp", "dp", "pp", "ep")


def degree_words(degrees: Mapping[Any, int], ep_layout: str, between: str = ", ") -> str:
    """Degrees, and how expert groups lie: `tp 2, dp 4, pp 1, ep 4 inside dp`."""
    lies = {"ep": _EP_LAYOUTS.get(ep_layout, "") if degrees["ep"] > 1 else ""}
    return between.join(
        f"{name} {size}{lies.get(name, '')}"
        for name, size in degrees.items()
        if size > 1 or name in _ALWAYS_SHOWN
    )


def size_words(job: Plan | Report, degrees: Mapping[Any, int], device: str) -> str:
    """Size and degrees, how expert groups lie, and how ranks do where it is not the usual way."""
    shown = f"{degree_words(degrees, job.ep_layout)}; microbatches {job.microbatches}"
    order = "" if job.rank_order in ("", RankOrder.TP_DP_PP) else f"; {job.rank_order}"
    return f"{job.npus} {npu_word(device, job.npus)}: {shown}{order}"


def seconds_words(seconds: float) -> str:
    """A time in seconds, with its unit."""
    return format_time_ps(round(seconds * PS_PER_S))


def range_words(rates: Throughput) -> str:
    """Where 80 % of measured steps of such models lie, e.g. `5.36 s to 6.871 s`; '' if unknown."""
    if rates.low_s is None or rates.high_s is None:
        return ""
    return " to ".join(map(seconds_words, (rates.low_s, rates.high_s)))


def memory_words(held: int | None, capacity: int | None) -> str:
    """What is held of what there is, and plainly whether that fits, e.g. `44.25 of 80 GiB`.

    Empty where nobody knows.
    """
    if held is None or not capacity:
        return ""
    from stepsim.workload.model.memory import TIGHT_SHARE  # read for models alone

    size, whole = format_size_bytes(held), format_size_bytes(capacity)
    number, unit = size.split()
    tight = ": likely out of memory" if held >= TIGHT_SHARE * capacity else ""
    said = ": does not fit" if held > capacity else tight
    return f"{number if whole.endswith(f' {unit}') else size} of {whole}{said}"


def name_ranks(ranks: Sequence[int], digits: int = 1, most: int = _MOST_RUNS) -> str:
    """Ascending ranks in few words, e.g. `rank 3`, `ranks 0-7, 16-23`, `ranks 0-56 step 8`.

    Of more runs of consecutive ranks than `most` the first and the last are named.
    """
    first, last = f"{ranks[0]:0{digits}}", f"{ranks[-1]:0{digits}}"
    if len(ranks) == 1:
        return f"rank {first}"
    steps = {b - a for a, b in pairwise(ranks)}
    if len(steps) == 1 and (step := steps.pop()) > 1 and len(ranks) > 2:
        return f"ranks {first}-{last} step {step}"
    runs = list(runs_of(ranks))
    if len(runs) > most:
        return f"{len(ranks)} ranks from {first} to {last}"
    names = (f"{a:0{digits}}-{b:0{digits}}" if b > a else f"{a:0{digits}}" for a, b in runs)
    return f"ranks {', '.join(names)}"


def runs_of(ranks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of every run of consecutive numbers."""
    first = last = ranks[0]
    for rank in ranks[1:]:
        if rank > last + 1:
            yield first, last
            first = rank
        last = rank
    yield first, last


def comm_words(op: CommOp, use: CommUse | None) -> str:
    """A communication: what it is, its size, and as far as the report knows it how and how long."""
    what, size = f"{op.group} {op.kind}", format_size_bytes(op.size_bytes)
    if use is None:
        return f"{what}, {size}"
    alone = " or ".join(use.algorithms), format_time_ps(use.time_ps)
    return ", ".join(filter(None, (what, f"{use.ranks} ranks", size, *alone)))


def settings_words(values: Mapping[str, str]) -> str:
    """What a scenario has on every axis, e.g. `pp=4, schedule=1f1b`."""
    return ", ".join(f"{name}={text}" for name, text in values.items())


def axis_words(name: str) -> str:
    """An axis's name as a label says it."""
    return name.replace(".", " ").replace("_", " ")
