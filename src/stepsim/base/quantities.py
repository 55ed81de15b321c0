"""What a value is and in which unit the program holds it: how its text is read."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType

from stepsim.base.errors import UnitError
from stepsim.base.units import (
    MAX_INT64,
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
        """The value of a text, e.g. 500000 of `500 ns`; raises UnitError."""
        return _PARSERS[self](text)


def _count(text: str) -> int:
    number = _number(text, "a whole number such as 16")
    if not 0 <= number <= MAX_INT64 or number != int(number):
        raise UnitError(f"{text!r} is not a whole number such as 16")
    return int(number)


def _factor(text: str) -> float:
    number = float(_number(text, "a factor such as 0.5"))
    if not 0 < number < float("inf"):
        raise UnitError(f"{text!r} is not a factor above 0 such as 0.5")
    return number


def _number(text: str, expected: str) -> int | float:
    try:
        return plain_number(text)
    except ValueError:
        raise UnitError(f"{text!r} is not {expected}") from None


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise UnitError(f"{text!r} is not on or off")
    return text == "on"


def _name(text: str) -> str:
    if not text:
        raise UnitError("a value is empty")
    return text


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
