"""What a sweep varies: named axes, their values, and what kind of thing each one is.

Values are ranges and lists of quantities as text: exact, and the same on every machine.
`100..800 Gbps:8` are 8 values from 100 to 800 Gbps, `1..1024 GB/s:11 log` 11 in equal ratios,
`0..9` every whole number, `300,450,900 GB/s` a list. Values between the ends that need more than
12 digits are rounded to 12, so that a value is what its text says.

The scenarios of a sweep are every combination of its axes, numbered, never listed. A scenario's
number is a mixed-radix number whose digits are positions on the axes. Axes that change the task
graph come first, so the scenarios of one task graph (a group) have consecutive numbers.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from math import isinf, prod
from os.path import isfile
from typing import TypeVar

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import SweepError, UnitError, errors_at
from stepsim.base.option import Option
from stepsim.base.structs import File, Names, Noun, replace
from stepsim.base.units import Quantity, Value
from stepsim.network.topology.dimension import LAUNCH_LATENCY, LINK_FIELDS, OVERSUBSCRIPTION
from stepsim.options import OPTIONS

_Scenarios = TypeVar("_Scenarios", int, "Ints")


class Axis(Noun):
    """A name, and distinct values of a quantity with the canonical text of each.

    `durations_only`: they change how long tasks take and never which tasks there are, so scenarios
    along it share one task graph. Numbers of scenarios that are neighbours along it are a
    `stride` apart.
    """

    name: str
    quantity: Quantity
    texts: Names
    values: tuple[Value, ...]
    durations_only: bool = False
    stride: int = 1

    def __post_init__(self) -> None:
        if not self.values or len(self.texts) != len(self.values):
            raise SweepError(f"axis {self.name}: it has no values")
        first: dict[Value, str] = {}
        for text, value in zip(self.texts, self.values, strict=True):
            if value in first:
                raise SweepError(f"axis {self.name}: {first[value]} and {text} are the same value")
            first[value] = text

    def __len__(self) -> int:
        return len(self.values)

    @property
    def numeric(self) -> bool:
        """Whether its values can be places along an axis of a figure."""
        return self.quantity.numeric and not any(map(isinf, map(float, self.values)))

    @property
    def column(self) -> str:
        """Name of its column in exports, with the unit of its numbers."""
        return self.name + self.quantity.suffix

    @property
    def shown(self) -> tuple[Value, ...]:
        """Values as exports have them: numbers, or texts where they are none."""
        return self.values if self.quantity.numeric else self.texts

    def positions(self, scenarios: _Scenarios) -> _Scenarios:
        """Position on this axis of a scenario, or of each of many."""
        return scenarios // self.stride % len(self)

    def text(self, scenario: int) -> str:
        """Text of a scenario's value."""
        return self.texts[self.positions(scenario)]


OPTION_AXES: Mapping[str, Option] = {
    name: option for name, option in OPTIONS.items() if option.is_axis
}
"""Axes that are options of a step."""

# Options by their flags, e.g. `mbs`.
_OPTION_OF_FLAG: Mapping[str, str] = {
    flag.lstrip("-").replace("-", "_"): name
    for name, option in OPTIONS.items()
    for flag in option.flags
    if name in OPTION_AXES and "/" not in flag
}

# Axes of a class of links, written CLASS.bandwidth and so on.
_LINK_AXES = {option.name: option for option in (*LINK_FIELDS, OVERSUBSCRIPTION)}


def parse_axis(text: str) -> Axis:
    """The axis of a text such as `fabric.bandwidth=100..800 Gbps:8`.

    Raises SweepError naming the axis and what is allowed.
    """
    name, equals, values = text.partition("=")
    if not equals:
        raise SweepError(f"{text!r} is no axis: expected NAME=RANGE, e.g. microbatches=8,16,32")
    return make_axis(name.strip(), values)


def make_axis(name: str, values: str) -> Axis:
    """The axis of a name, or of an option's flag, and the text of its values; raises SweepError."""
    name = _option(name)
    return axis_of_option(name, _varied(name), values)


def axis_of_option(name: str, option: Option, values: str) -> Axis:
    """The axis of a name from the text of an option's values; raises SweepError."""
    with errors_at(f"axis {name}", SweepError):
        texts, parsed = _values(option, values)
    return Axis(
        name=name,
        quantity=option.quantity,
        texts=texts,
        values=parsed,
        durations_only=option.durations_only,
    )


def axis_of(name: str, values: object) -> Axis:
    """The axis of a name and values as Python has them: a text as above, or a list.

    Numbers are in the units of `Quantity.read`: times in seconds. Raises SweepError.
    """
    if isinstance(values, str):
        return make_axis(name, values)
    quantity = _varied(_option(name)).quantity
    if isinstance(values, bytes | Mapping) or not isinstance(values, Iterable):
        values = [values]
    with errors_at(f"axis {name}", SweepError):
        texts = [_typed(quantity, each) for each in values]
    return make_axis(name, "".join(f"{text};" for text in texts))


def _typed(quantity: Quantity, value: object) -> str:
    """A value of Python as people type it; raises UnitError."""
    if isinstance(value, File):
        return str(value)
    return quantity.text(quantity.read(value))


PACKER, LENGTHS = "packer", "lengths"


def is_drawn(name: str) -> bool:
    """Whether an axis is one of drawn steps alone: `packer`, `lengths`, `lengths.sigma`."""
    return name in (PACKER, LENGTHS) or name.startswith(f"{LENGTHS}.")


def _option(name: str) -> str:
    """The axis that a name such as `mbs` or `comm-sms` stands for; classes keep their hyphens."""
    option = name if "." in name else name.replace("-", "_")
    return _OPTION_OF_FLAG.get(option, option)


def _varied(name: str) -> Option:
    """The option of a step, or the number of a network, that has values along an axis."""
    link, dot, field = name.rpartition(".")
    known = _LINK_AXES if link else {**OPTION_AXES, LAUNCH_LATENCY.name: LAUNCH_LATENCY}
    if field not in known:
        expected = (
            f"CLASS.{' or CLASS.'.join(_LINK_AXES)}"
            if dot
            else f"{', '.join(known)}, or CLASS.FIELD"
        )
        raise SweepError(f"unknown axis {name!r}: expected {expected}")
    return known[field]


def _values(option: Option, text: str) -> tuple[Names, tuple[Value, ...]]:
    if not text.strip():
        raise SweepError("it has no values")
    parse = option.quantity.parse
    if option.quantity.numeric:
        whole = option.quantity is Quantity.COUNT
        texts = tuple(expand(text, parse, whole=whole))
    else:
        texts = tuple(split_list(text))
        for each in texts:
            _check(option, each)
    return texts, tuple(parse(each) for each in texts)


def _check(option: Option, text: str) -> None:
    """Refuse a name that an option cannot have, and a schedule's file that is not there."""
    if option.name != "schedule" or not text.endswith(".csv"):
        option.of(text)
    elif not isfile(text):
        raise SweepError(f"{text}: cannot read the schedule: no such file")


# Largest number of values of one axis.
_MAX_VALUES = 100_000

_DIGITS = Context(prec=12)
_WIDEST = 10**100
_NUMBER = r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?"
_RANGE = re.compile(
    rf"(?P<low>{_NUMBER})\s*(?P<low_unit>[A-Za-z/]*)\s*\.\.\s*"
    rf"(?P<high>{_NUMBER})\s*(?P<unit>[A-Za-z/]*)\s*"
    r"(?::\s*(?P<count>\d{1,18})(?P<log>\s+log)?)?"
)
_ITEM = re.compile(rf"(?P<number>{_NUMBER}|inf)\s*(?P<unit>[A-Za-z/]*)")


def split_list(text: str) -> list[str]:
    """Items between commas, or between semicolons where there is one (items may hold commas)."""
    mark = ";" if ";" in text else ","
    return [item.strip() for item in text.removesuffix(";").split(mark)]


def expand(text: str, check: Callable[[str], object], *, whole: bool) -> Iterator[str]:
    """Texts of the values of a range or list, each with its unit.

    `check` parses one value and raises UnitError; `whole` values are rounded to whole numbers, and
    a range of them needs no count. Raises SweepError or UnitError for what is no range.
    """
    if ".." in text:
        yield from _range(text.strip(), check, whole=whole)
        return
    unit = ""
    shown: list[str] = []
    for item in reversed(split_list(text)):
        match = _ITEM.fullmatch(item)
        if match is None:
            check(item)
            raise UnitError(f"{item!r} is not a number such as 100 or 0.5")
        unit = match["unit"] or unit
        shown.append(_normal(match["number"], unit, check))
    yield from reversed(shown)


def _normal(number: str, unit: str, check: Callable[[str], object]) -> str:
    """The canonical text of one value; checked before a huge exponent is written out."""
    if number == "inf":
        check(number)
        return number
    check(f"{number} {unit}".strip())
    return _written(Fraction(number), unit)


def _range(text: str, check: Callable[[str], object], *, whole: bool) -> Iterator[str]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise SweepError(
            f"{text!r} is not a range such as 100..800 Gbps:8 or 1..1024 GB/s:11 log, nor a list"
        )
    low_unit, unit = match["low_unit"] or match["unit"], match["unit"]
    for number, each in ((match["low"], low_unit), (match["high"], unit)):
        check(f"{number} {each}".strip())
    if low_unit != unit:
        raise SweepError(f"{text!r}: both ends of a range have the same unit")
    low, high = Fraction(match["low"]), Fraction(match["high"])
    count = _count(text, match["count"], low, high, whole=whole)
    if match["log"] and not (low > 0 and high / low <= _WIDEST):
        raise SweepError(f"{text!r}: a log range starts above 0 and ends below 1e100 times that")
    for i in range(count):
        value = _point(low, high, i, count - 1, log=bool(match["log"]))
        yield _written(Fraction(round(value)) if whole else value, unit)


def _count(text: str, count: str | None, low: Fraction, high: Fraction, *, whole: bool) -> int:
    """How many values a range has; refuses ranges that are reversed, empty or endless."""
    if low > high:
        raise SweepError(f"{text!r} is reversed: the lower end comes first")
    if count is None and not whole:
        raise SweepError(f"{text!r} does not say how many values: expected e.g. {text}:8")
    if low == high:
        raise SweepError(f"{text!r} has equal ends: write the one value")
    asked = int(high - low) + 1 if count is None else int(count)
    if not 2 <= asked <= _MAX_VALUES:
        raise SweepError(f"{text!r} has {asked} values: expected 2 to {_MAX_VALUES}")
    return asked


def _point(low: Fraction, high: Fraction, i: int, last: int, *, log: bool) -> Fraction:
    """The i-th of `last + 1` values, the ends exact."""
    if i in (0, last):
        return high if i else low
    if not log:
        return low + (high - low) * i / last
    return Fraction(float(low) * math.exp(math.log(high / low) * i / last))


def _written(value: Fraction, unit: str) -> str:
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    if Fraction(exact) != value or len(exact.as_tuple().digits) > 15:
        exact = _DIGITS.create_decimal(exact)
    text = f"{exact:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text} {unit}".strip()


_MAX_SCENARIOS = 100_000_000
_MAX_AXES = 32
AxisColumn = Ints | Floats


class Grid(Noun, dict=True):
    """All combinations of `axes`, which have the order in which the user named them."""

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        if not self.axes:
            raise SweepError("a sweep needs at least one axis, e.g. --set microbatches=8,16,32")
        if len(self.axes) > _MAX_AXES:
            raise SweepError(f"a sweep has at most {_MAX_AXES} axes: these are {len(self.axes)}")
        names = [axis.name for axis in self.axes]
        for name in names:
            if names.count(name) > 1:
                raise SweepError(f"axis {name} is given twice")
        if self.size > _MAX_SCENARIOS:
            sizes = " x ".join(str(len(axis)) for axis in self.axes)
            raise SweepError(
                f"the axes give {sizes} = {self.size} scenarios: expected at most {_MAX_SCENARIOS}"
            )

    @cached_property
    def size(self) -> int:
        """Number of scenarios."""
        return prod(len(axis) for axis in self.axes)

    @cached_property
    def placed(self) -> tuple[Axis, ...]:
        """The axes with their strides: those that change the task graph have the longest."""
        slowest_first = sorted(self.axes, key=lambda axis: axis.durations_only)
        strides, stride = {}, 1
        for axis in slowest_first[::-1]:
            strides[axis.name] = stride
            stride *= len(axis)
        return tuple(replace(axis, stride=strides[axis.name]) for axis in self.axes)

    @cached_property
    def group_size(self) -> int:
        """Scenarios that share a task graph."""
        return prod(len(axis) for axis in self.axes if axis.durations_only)

    def values(self, scenario: int) -> dict[str, str]:
        """Texts of a scenario's values by the names of the axes."""
        return {axis.name: axis.text(scenario) for axis in self.placed}

    def parsed(self, scenario: int) -> dict[str, Value]:
        """A scenario's values by the names of the axes."""
        return {axis.name: axis.values[axis.positions(scenario)] for axis in self.placed}

    def settings(self, group: int) -> dict[str, Value]:
        """Values that the scenarios of a group share, by the names of the axes."""
        first = self.parsed(group * self.group_size)
        return {a.name: first[a.name] for a in self.axes if not a.durations_only}

    def columns(self, span: range) -> dict[str, AxisColumn]:
        """Values of the other axes for the scenarios of a span, in bytes/s, ps or plain."""
        numbers = np.arange(span.start, span.stop, dtype=np.int64)
        return {
            axis.name: np.array(axis.values)[axis.positions(numbers)]
            for axis in self.placed
            if axis.durations_only
        }

    def cut(self, spans: Iterable[range], most: Callable[[int], int]) -> Iterator[range]:
        """Spans of scenarios cut where groups meet, and into pieces of at most `most(group)`."""
        for span in spans:
            here = span.start
            while here < span.stop:
                group = here // self.group_size
                end = min(span.stop, (group + 1) * self.group_size, here + most(group))
                yield range(here, end)
                here = end
