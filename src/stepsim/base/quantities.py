"""Numbers that files have otherwise: the type of a number knows how it is written.

A field `latency_ps: Time` of a table stands in TOML as `latency = "500 ns"`, and the noun that was
read has 500,000 picoseconds. `step_ps: InSeconds` of a document is `step_s` in JSON, a number.
Nothing else converts: a noun is the table of its file.
"""

from collections.abc import Callable
from math import isinf
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct, inspect, to_builtins

from stepsim.base.errors import UnitError
from stepsim.base.units import (
    BANDWIDTH_PATTERN,
    MAX_INT64,
    PS_PER_S,
    SIZE_PATTERN,
    TIME_PATTERN,
    exact_size,
    exact_time,
    parse_bandwidth,
    parse_size_bytes,
    parse_time_ps,
)

TERA = 1e12
_LEAST, _MOST = 1e-6, 1e9


class Written(NamedTuple):
    """How a number is read from plain data, which raises UnitError, and written as such."""

    read: Callable[[Any], float]
    write: Callable[[float], object]


_Way = Callable[[Written], Callable[[Any], Any]]


def _text(
    what: str,
    pattern: str,
    parse: Callable[[str], float],
    write: Callable[[float], object],
    *examples: str,
) -> Meta:
    """Says of a number that files have it as a text with its unit."""

    def read(value: Any) -> float:
        if not isinstance(value, str):
            raise UnitError(f"{value!r} has no unit: expected a text in quotes")
        return parse(value)

    return Meta(
        description=what,
        examples=[*examples],
        extra_json_schema={"pattern": pattern},
        extra={"written": Written(read, write)},
    )


def _tera(value: Any) -> float:
    if type(value) not in (int, float) or not _LEAST <= value <= _MOST:
        raise UnitError(f"{value!r} is no rate: expected TFLOP/s from {_LEAST:g} to {_MOST:g}")
    return float(value * TERA)


def _signed(text: str) -> int:
    bare = text.strip()
    return -parse_time_ps(bare[1:]) if bare.startswith("-") else parse_time_ps(bare)


def _from_seconds(value: Any) -> int:
    if type(value) not in (int, float) or not abs(value) * PS_PER_S < MAX_INT64:
        raise UnitError(f"{value!r} is no time: expected seconds")
    return round(float(value) * PS_PER_S)


def _time_text(time_ps: float) -> str:
    return exact_time(round(time_ps))


def _signed_text(time_ps: float) -> str:
    return f"{'-' if time_ps < 0 else ''}{_time_text(abs(time_ps))}"


def _gigabytes(bytes_per_s: float) -> str:
    return "inf" if isinf(bytes_per_s) else f"{bytes_per_s / 1e9:.12g} GB/s"


Time = Annotated[
    int,
    _text("a time with its unit", TIME_PATTERN, parse_time_ps, _time_text, "500 ns", "1.5 us"),
]
Difference = Annotated[
    int, _text("a time with its unit, below 0 too", TIME_PATTERN, _signed, _signed_text, "-1.5 us")
]
Size = Annotated[
    int,
    _text(
        "a size with its unit: MB is 1e6 bytes, MiB is 2**20",
        SIZE_PATTERN,
        parse_size_bytes,
        lambda size: exact_size(round(size)),
        *("160 MB", "64 MiB"),
    ),
]
Bandwidth = Annotated[
    float,
    _text(
        "a bandwidth with its unit, one way: GB/s is 1e9 bytes/s, Gbps 1e9 bit/s",
        BANDWIDTH_PATTERN,
        parse_bandwidth,
        _gigabytes,
        *("400 Gbps", "50 GB/s", "inf"),
    ),
]
Flops = Annotated[
    float,
    Meta(
        description="TFLOP/s",
        extra_json_schema={"minimum": _LEAST, "maximum": _MOST, "unit": TERA},
        extra={"written": Written(_tera, lambda rate: float(f"{rate / TERA:.6g}"))},
    ),
]
"""Operations per second, a number of 1e12 in files."""

InSeconds = Annotated[
    int,
    Meta(
        description="seconds",
        extra={"written": Written(_from_seconds, lambda ps: ps / PS_PER_S)},
    ),
]
"""Picoseconds, a number of seconds in documents."""


def numbers(raw: Any, kind: type) -> Any:
    """Plain data of a file of a kind, with numbers for texts; UnitError names the key at fault."""
    return _each(raw, inspect.type_info(kind), attrgetter("read"), "")


def texts(noun: Struct) -> Any:
    """A noun as plain data of its file, with texts for numbers."""
    return _each(to_builtins(noun), inspect.type_info(type(noun)), attrgetter("write"), "")


def _each(value: Any, kind: inspect.Type, way: _Way, at: str) -> Any:
    """Plain data in which every number stands as it does on the other side."""
    match kind:
        case inspect.Metadata(extra={"written": Written() as written}):
            try:
                return way(written)(value)
            except UnitError as error:
                raise UnitError(f"{at.lstrip('.')}: {error}") from None
        case inspect.Metadata(type=inside):
            return _each(value, inside, way, at)
        case inspect.UnionType(types=kinds) if value is not None:
            for inside in kinds:
                value = _each(value, inside, way, at)
        case inspect.StructType(fields=fields) if isinstance(value, dict):
            known = {each.encode_name: each.type for each in fields if each.encode_name in value}
            found = {key: _each(value[key], known[key], way, f"{at}.{key}") for key in known}
            return value | found
        case inspect.DictType(value_type=inside) if isinstance(value, dict):
            return {key: _each(each, inside, way, f"{at}.{key}") for key, each in value.items()}
        case inspect.VarTupleType(item_type=inside) | inspect.ListType(item_type=inside) if (
            isinstance(value, list | tuple)
        ):
            return [_each(each, inside, way, f"{at}[{i}]") for i, each in enumerate(value)]
    return value
