"""What the numbers and names are that people type, and how each is read and written."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import SupportsFloat, cast

from stepsim.base.errors import UnitError
from stepsim.base.units import (
    MAX_INT64,
    PS_PER_S,
    exact_size,
    exact_time,
    format_bandwidth,
    parse_bandwidth,
    parse_size_bytes,
    parse_time_ps,
    plain_number,
)

Value = float | int | bool | str


class Quantity(StrEnum):
    """What a value is, and its unit inside the program."""

    BANDWIDTH = "bandwidth"  # bytes/s, float
    TIME = "time"  # ps
    SIZE = "size"  # bytes
    FACTOR = "factor"
    COUNT = "count"
    SWITCH = "switch"
    NAME = "name"

    @property
    def numeric(self) -> bool:
        """Whether values have an order and distances, as a figure's axis needs."""
        return self not in (Quantity.SWITCH, Quantity.NAME)

    @property
    def suffix(self) -> str:
        """Unit that a column of such numbers has at the end of its name."""
        units = {"bandwidth": "_bytes_per_s", "time": "_ps", "size": "_bytes"}
        return units.get(self.value, "")

    def parse(self, text: str) -> Value:
        """The value of a text such as `400 Gbps`, `2 us`, `16`, `on`; raises UnitError."""
        return _PARSERS[self](text)

    def read(self, value: object) -> Value:
        """A value from Python: a text as above, or a plain number, of a time in seconds.

        Raises UnitError for what is neither.
        """
        if isinstance(value, str):
            return self.parse(value)
        if self is Quantity.SWITCH and isinstance(value, bool):
            return value
        if not self.numeric or isinstance(value, bool) or not isinstance(value, SupportsFloat):
            raise UnitError(f"{value!r} is not {_EXPECTED[self]}")
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise UnitError(f"{value!r} is not {_EXPECTED[self]}") from None
        if self is Quantity.BANDWIDTH:
            return _positive(number)
        if self is Quantity.FACTOR:
            return _factor(str(number))
        per_unit = PS_PER_S if self is Quantity.TIME else 1
        return _whole(str(number * per_unit), _EXPECTED[self], rounded=per_unit > 1)

    def text(self, value: Value) -> str:
        """The value as people type it, exactly: `250 us`, `160 MB`, `0.5`, `on`."""
        match self:
            case Quantity.TIME:
                return exact_time(cast(int, value))
            case Quantity.SIZE:
                return exact_size(cast(int, value))
            case Quantity.BANDWIDTH:
                return format_bandwidth(cast(float, value))
            case Quantity.SWITCH:
                return "on" if value else "off"
            case _:
                return str(value)


def _count(text: str) -> int:
    return _whole(text, _EXPECTED[Quantity.COUNT])


def _whole(text: str, expected: str, *, rounded: bool = False) -> int:
    number = _number(text, expected)
    if not 0 <= number <= MAX_INT64 or not (rounded or number == int(number)):
        raise UnitError(f"{text!r} is not {expected}")
    return round(number)


def _factor(text: str) -> float:
    expected = _EXPECTED[Quantity.FACTOR]
    number = float(_number(text, "a factor such as 0.5"))
    if not 0 < number < float("inf"):
        raise UnitError(f"{text!r} is not {expected}")
    return number


def _positive(number: float) -> float:
    if not number > 0:
        raise UnitError(f"{number!r} is not {_EXPECTED[Quantity.BANDWIDTH]}")
    return number


def _number(text: str, expected: str) -> int | float:
    try:
        return plain_number(text)
    except ValueError:
        raise UnitError(f"{text!r} is not {expected}") from None


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise UnitError(f"{text!r} is not {_EXPECTED[Quantity.SWITCH]}")
    return text == "on"


def _name(text: str) -> str:
    if not text:
        raise UnitError("a value is empty")
    return text


_EXPECTED: Mapping[Quantity, str] = MappingProxyType(
    {
        Quantity.BANDWIDTH: "a bandwidth such as '400 Gbps', or a number of bytes/s above 0",
        Quantity.TIME: "a time such as '250 us', or a number of seconds from 0",
        Quantity.SIZE: "a size such as '64 MiB', or a whole number of bytes",
        Quantity.FACTOR: "a factor above 0 such as 0.5",
        Quantity.COUNT: "a whole number such as 16",
        Quantity.SWITCH: "on or off",
        Quantity.NAME: "a name",
    }
)
_PARSERS: Mapping[Quantity, Callable[[str], Value]] = MappingProxyType(
    {
        Quantity.BANDWIDTH: parse_bandwidth,
        Quantity.TIME: parse_time_ps,
        Quantity.SIZE: parse_size_bytes,
        Quantity.FACTOR: _factor,
        Quantity.COUNT: _count,
        Quantity.SWITCH: _switch,
        Quantity.NAME: _name,
    }
)
