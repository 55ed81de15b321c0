"""Quantities with units, at the edge of the program only: how each is read and written.

Inside, time is integer picoseconds, a size is integer bytes and a bandwidth is bytes per second
per direction. `GB` is 1e9 bytes, `GiB` is 2**30 bytes, `Gbps` is 1e9 bit/s. `Quantity` is the list
of what the numbers and names are that people type.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from fractions import Fraction
from typing import Self, SupportsFloat, cast

from stepsim.base.errors import PlanError, UnitError

PS_PER_NS = 1_000
PS_PER_S = 1_000_000_000_000
MAX_INT64 = 2**63 - 1
LARGEST_SUM = MAX_INT64 * 0.999
"""A sum of integers whose floats add up to this at most cannot wrap around."""
MOST_EXACT = 2.0**53
"""Integers above have gaps in float64, in which costs are computed."""

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z/]+)\s*", re.ASCII)
_LONGEST = 100

_TIME_PS = {
    "ps": 1,
    "ns": PS_PER_NS,
    "us": 1_000_000,
    "ms": 1_000_000_000,
    "s": PS_PER_S,
}
_DECIMAL = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZE_BYTES = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()}
_BANDWIDTH = {f"{unit}/s": Fraction(factor) for unit, factor in _SIZE_BYTES.items()} | {
    f"{prefix}bps": Fraction(factor, 8) for prefix, factor in (_DECIMAL | _BINARY).items()
}


def _pattern(units: Iterable[str]) -> str:
    return rf"^\s*{_NUMBER}\s*({'|'.join(units)})\s*$"


TIME_PATTERN = _pattern(_TIME_PS)
SIZE_PATTERN = _pattern(_SIZE_BYTES)
BANDWIDTH_PATTERN = rf"{_pattern(_BANDWIDTH)}|^\s*[Ii][Nn][Ff]\s*$"
"""What quantities look like, for JSON Schemas; the ranges are left to the parsers."""


def plain_number(text: str, expected: str = "a number") -> int | float:
    """A plain decimal number, exact where it is an integer; raises UnitError.

    It has at most 100 characters, so that any integer can become a float.
    """
    with suppress(ValueError):
        if "_" not in text and len(text) <= _LONGEST:
            return int(text) if text.lstrip("+-").isdecimal() else float(text)
    raise UnitError(f"{text!r} is not {expected}")


def parse_time_ps(text: str) -> int:
    """Picoseconds in a text such as `500ns` or `1.5 us`, rounded to the nearest.

    Raises UnitError when the unit is missing or unknown, or the value is negative or above
    2**63 - 1 ps (about 106 days).
    """
    return _parse_int(text, _TIME_PS, "a time such as '500 ns' or '1.5 us'")


def parse_size_bytes(text: str) -> int:
    """Bytes in a text such as `64 MiB` (2**20) or `64 MB` (10**6), rounded to the nearest.

    Raises UnitError when the unit is missing or unknown, or the value is negative or too large.
    """
    return _parse_int(text, _SIZE_BYTES, "a size such as '64 MiB' or '512 KB'")


def parse_bandwidth(text: str) -> float:
    """Bytes per second in a text such as `400Gbps`, `50 GB/s` or `inf`.

    Raises UnitError when the unit is missing or unknown, or the value is not positive.
    """
    expected = "a positive bandwidth such as '400 Gbps', '50 GB/s' or 'inf'"
    if text.strip().lower() == "inf":
        return math.inf
    value = _parse(text, _BANDWIDTH, expected)
    if not Fraction(1, 1000) <= value < Fraction(10) ** 30:
        raise UnitError(f"{text!r} is not {expected}")
    return float(value)


def parse_share(name: str, text: str, most: float = 1) -> float:
    """The share that is typed under a name, e.g. `2%` or `0.02`; raises PlanError.

    A number from 1 on could mean either.
    """
    percent = text.endswith("%")
    try:
        value = float(text.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if not (0 <= value <= most if percent else 0 <= value < 1):
        raise PlanError(f"{name} is {text!r}: expected a share such as 2% or 0.02")
    return value


def format_time_ps(time_ps: float) -> str:
    """Time with a unit that leaves one to three digits before the point, e.g. `71.89 ms`."""
    for unit in ("s", "ms", "us", "ns"):
        if abs(time_ps) >= 0.99995 * _TIME_PS[unit]:
            return f"{_four_digits(time_ps / _TIME_PS[unit])} {unit}"
    return f"{time_ps:.0f} ps" if time_ps else "0"


def format_size_bytes(size_bytes: float) -> str:
    """Size with a binary unit, e.g. `128 MiB`."""
    for prefix in ("Ti", "Gi", "Mi", "Ki"):
        if abs(size_bytes) >= 0.99995 * _BINARY[prefix]:
            return f"{_four_digits(size_bytes / _BINARY[prefix])} {prefix}B"
    return f"{size_bytes:.0f} B"


def _exact(value: int, units: Mapping[str, int], of_nothing: str) -> str:
    """The shortest of the texts that say a value exactly, in whole units or parts of one.

    A part is a decimal number with all its digits: units are powers of 2 and 10.
    """
    texts = []
    for unit, size in units.items():
        if size <= value:
            digits = size.bit_length()
            text = str(value * 10**digits // size).zfill(digits + 1)
            part = f"{text[:-digits]}.{text[-digits:]}".rstrip("0").rstrip(".")
            texts.append(f"{part} {unit}")
    return min(texts, key=len) if texts else f"0 {of_nothing}"


def format_bandwidth(bytes_per_s: float) -> str:
    """Bandwidth in GB/s (1e9) or TB/s, e.g. `50 GB/s`; `inf` for a free link."""
    if math.isinf(bytes_per_s):
        return "inf"
    unit, name = (1e12, "TB/s") if bytes_per_s >= 1e13 else (1e9, "GB/s")
    return f"{bytes_per_s / unit:.4g} {name}"


def _four_digits(value: float) -> str:
    digits = max(0, 3 - math.floor(math.log10(abs(value) * 1.00005)))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _parse(text: str, units: dict[str, int] | dict[str, Fraction], expected: str) -> Fraction:
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        problem = "has no unit" if re.fullmatch(r"[\s\d.eE+-]+", text) else "is not a quantity"
        raise UnitError(f"{text!r} {problem}: expected {expected}")
    number, unit = match.groups()
    if unit not in units:
        raise UnitError(f"{text!r} has the unknown unit {unit!r}: expected {expected}")
    return Fraction(number) * units[unit]


def _parse_int(text: str, units: dict[str, int], expected: str) -> int:
    value = round(_parse(text, units, expected))
    if not 0 <= value <= MAX_INT64:
        raise UnitError(f"{text!r} is out of range: expected {expected}, at most 2**63 - 1 units")
    return value


def time_unit(longest_ps: int) -> tuple[int, str]:
    """Picoseconds and name of the largest unit in which a time is at least one."""
    units = [(unit_ps, name) for name, unit_ps in _TIME_PS.items() if unit_ps <= longest_ps]
    return max(units, default=(1, "ps"))


Value = float | int | bool | str


class NameWithFields(StrEnum):
    """A list of names, each with values of the fields that its class annotates, in their order.

    `FP8 = "fp8", 1.0, True` is a member of a class that annotates `element_bytes: float` and
    `casts: bool`.
    """

    def __new__(cls, name: str, *values: object) -> Self:
        """A member with its name and its fields."""
        member = str.__new__(cls, name)
        member._value_ = name
        for field, value in zip(cls.__annotations__, values, strict=True):
            setattr(member, field, value)
        return member


def _count(text: str) -> int:
    thousands = re.fullmatch(r"([0-9]{1,9})[kK]", text)
    if thousands:
        return int(thousands[1]) << 10
    if re.fullmatch(r"[0-9.]+[MGB]", text):
        raise UnitError(f"{text!r} is not {Quantity.COUNT.expected}; samples, not tokens")
    return _whole(text, Quantity.COUNT.expected)


def _whole(text: str, expected: str) -> int:
    number = plain_number(text, expected)
    if not 0 <= number <= MAX_INT64 or number != int(number):
        raise UnitError(f"{text!r} is not {expected}")
    return int(number)


def _factor(text: str) -> float:
    expected = Quantity.FACTOR.expected
    number = float(plain_number(text, "a factor such as 0.5"))
    if not 0 < number < float("inf"):
        raise UnitError(f"{text!r} is not {expected}")
    return number


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise UnitError(f"{text!r} is not {Quantity.SWITCH.expected}")
    return text == "on"


def _name(text: str) -> str:
    if not text:
        raise UnitError("a value is empty")
    return text


class Quantity(NameWithFields):
    """What a value is, and its unit inside the program.

    `suffix` is the unit that a column of such numbers has at the end of its name, `unit` that of a
    plain number of Python. `kind` is what a file or a flag has where no unit is needed. `parse`
    makes a value of a text such as `400 Gbps`, `2 us`, `16`, `on`; it raises UnitError.
    """

    suffix: str
    unit: str
    kind: type
    parse: Callable[[str], Value]
    expected: str

    BANDWIDTH = (
        *("bandwidth", "_bytes_per_s", "B/s", str, parse_bandwidth),
        "a bandwidth such as '400 Gbps', or a number of bytes/s above 0",
    )
    TIME = (
        *("time", "_ps", "s", str, parse_time_ps),
        "a time such as '250 us', or a number of seconds from 0",
    )
    SIZE = (
        *("size", "_bytes", "B", str, parse_size_bytes),
        "a size such as '64 MiB', or a whole number of bytes",
    )
    FACTOR = "factor", "", "", float, _factor, "a factor above 0 such as 0.5"
    COUNT = "count", "", "", int, _count, "a whole number such as 16, or 8k for 8,192"
    SWITCH = "switch", "", "", bool, _switch, "on or off (in Python True or False)"
    NAME = "name", "", "", str, _name, "a name"

    @property
    def numeric(self) -> bool:
        """Whether values have an order and distances, as a figure's axis needs."""
        return self not in (Quantity.SWITCH, Quantity.NAME)

    def read(self, value: object) -> Value:
        """A value from Python: a text as above, or a plain number, of a time in seconds.

        Raises UnitError for what is neither.
        """
        if isinstance(value, str):
            return self.parse(value)
        if self is Quantity.SWITCH and isinstance(value, bool):
            return value
        if self.numeric and not isinstance(value, bool) and isinstance(value, SupportsFloat):
            with suppress(TypeError, ValueError, OverflowError, UnitError):
                number = float(value)
                text = repr(number) if math.isinf(number) else f"{number!r} {self.unit}"
                if self is not Quantity.SIZE or number.is_integer():
                    return self.parse(text.strip())
        raise UnitError(f"{value!r} is not {self.expected}")

    def text(self, value: Value) -> str:
        """The value as people type it, exactly: `250 us`, `160 MB`, `50 GB/s`, `on`."""
        match self:
            case Quantity.TIME:
                return _exact(round(cast(float, value)), _TIME_PS, "s")
            case Quantity.SIZE:
                return _exact(round(cast(float, value)), _SIZE_BYTES, "B")
            case Quantity.BANDWIDTH:
                bandwidth = cast(float, value)
                text = format_bandwidth(bandwidth)
                is_exact = text == "inf" or parse_bandwidth(text) == bandwidth
                return text if is_exact else f"{bandwidth!r} B/s"
            case Quantity.SWITCH:
                return "on" if value else "off"
            case _:
                return str(value)


def npu_word(device: str, count: int = 1) -> str:
    """What a rank's accelerator is called: `GPU` or `chip` by its device, `NPU` without one.

    TPUs and Trainium are chips; a topology without a device may be of anything.
    """
    known = "chip" if device.lower().startswith(_CHIPS) else "GPU"
    return f"{known if device else 'NPU'}{'s' * (count != 1)}"


_CHIPS = ("tpu", "trainium")
