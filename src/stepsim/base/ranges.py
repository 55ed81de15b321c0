"""Ranges and lists of quantities as text: exact, and the same on every machine.

`100..800 Gbps:8` are 8 values from 100 to 800 Gbps, `1..1024 GB/s:11 log` 11 in equal ratios,
`0..9` every whole number, `300,450,900 GB/s` a list. Values between the ends that need more than
12 digits are rounded to 12, so that a value is what its text says.
"""

import math
import re
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from fractions import Fraction

from stepsim.base.errors import SweepError, UnitError

_MAX_VALUES = 100_000
"""Largest number of values of one axis."""

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
