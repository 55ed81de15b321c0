"""Fields and arguments by their types: how a number is written, and whether a value is right.

A field `latency_ps: Time` of a table stands in TOML as `latency = "500 ns"`, and the noun that was
read has 500,000 picoseconds. `step_ps: InSeconds` of a document is `step_s` in JSON, a number.
Nothing else converts: a noun is the table of its file. Arguments of public functions are checked
against the function's own type hints.
"""

import builtins
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, EnumType
from functools import wraps
from inspect import Parameter, formatannotation, signature
from math import isinf
from numbers import Integral, Real
from operator import attrgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Meta, Struct, inspect, to_builtins
from msgspec.structs import astuple, force_setattr

from stepsim.base.errors import PlanError, StepsimError, UnitError, bad_value
from stepsim.base.process import remembered
from stepsim.base.units import (
    BANDWIDTH_PATTERN,
    MAX_INT64,
    PS_PER_S,
    SIZE_PATTERN,
    TIME_PATTERN,
    Quantity,
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


def _signed_text(time_ps: float) -> str:
    return f"{'-' if time_ps < 0 else ''}{Quantity.TIME.text(abs(time_ps))}"


def _gigabytes(bytes_per_s: float) -> str:
    return "inf" if isinf(bytes_per_s) else f"{bytes_per_s / 1e9:.12g} GB/s"


Time = Annotated[
    int,
    _text(
        "a time with its unit",
        TIME_PATTERN,
        parse_time_ps,
        Quantity.TIME.text,
        *("500 ns", "1.5 us"),
    ),
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
        Quantity.SIZE.text,
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


_Inputs = ParamSpec("_Inputs")
_Output = TypeVar("_Output")


def checked(function: Callable[_Inputs, _Output]) -> Callable[_Inputs, _Output]:
    """Let a function refuse arguments of other types than its hints name.

    It then raises PlanError naming function, argument, value and what is allowed. Whole numbers
    of other libraries become int, numbers float where the hint says so. Names that only a type
    checker imports, and `**options`, are left to the function.
    """
    call = signature(function)
    named = {p.name for p in call.parameters.values() if p.kind is not Parameter.VAR_KEYWORD}

    @wraps(function)
    def run(*args: _Inputs.args, **kwargs: _Inputs.kwargs) -> _Output:
        given, hints = call.bind(*args, **kwargs), _hints(function)
        for name, value in given.arguments.items():
            if name in named and name in hints:
                taken = value_of_kind(function.__name__, name, value, hints[name])
                given.arguments[name] = taken
        return function(*given.args, **given.kwargs)

    return run


def check_fields(record: Any) -> None:
    """Raise PlanError naming the field of a struct whose value is not what its hint says.

    Names of enums become members.
    """
    kind: Any = type(record)
    for (name, hint, exact), value in zip(_fields(kind), astuple(record), strict=True):
        if type(value) not in exact:
            force_setattr(record, name, value_of_kind(kind.__name__, name, value, hint))


def value_of_kind(
    place: str, name: str, value: object, hint: Any, error: type[StepsimError] = PlanError
) -> Any:
    """A value as its hint says; raises `error` naming place, name, value and what is allowed."""
    try:
        return _taken(value, hint)
    except TypeError:
        raise error(bad_value(place, name, value, _described(hint))) from None


class _Names(dict[str, object]):
    """Names of a module; those that only a type checker imports stand for anything."""

    def __missing__(self, name: str) -> object:
        return getattr(builtins, name, object)


# kept with those of _fields: plan of llama-3.1-8b takes 0.6 s so, and 4.0 s without
@remembered
def _hints(owner: Any) -> dict[str, Any]:
    return get_type_hints(owner, localns=_Names(vars(sys.modules[owner.__module__])))


@remembered
def _fields(kind: Any) -> tuple[tuple[str, Any, frozenset[Any]], ...]:
    """Name and hint of each field, and the types whose values need no second look.

    Of a `tuple[str, ...]` no item is looked at, so that any tuple is taken.
    """
    hints = [(name, _hints(kind)[name]) for name in kind.__struct_fields__]
    return tuple(
        (name, hint, frozenset((hint, get_origin(hint), *get_args(hint)))) for name, hint in hints
    )


def _taken(value: Any, hint: Any) -> Any:
    """The value as its hint says; raises TypeError."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        return _one_of(value, inside)
    if origin in (Sequence, Iterable):
        return _several(value, inside[0])
    if origin is Mapping and isinstance(value, Mapping):
        return {_taken(k, inside[0]): _taken(v, inside[1]) for k, v in value.items()}
    if hint in _NUMBERS:
        return _number(value, hint)
    if isinstance(hint, EnumType) and isinstance(value, str):
        with suppress(ValueError):
            return hint(value)
    fits = callable(value) if origin is Callable else isinstance(value, _class_of(origin or hint))
    if not fits:
        raise TypeError
    return value


def _one_of(value: Any, hints: Sequence[Any]) -> Any:
    if Path in hints and isinstance(value, str) and not value:
        raise TypeError
    for hint in hints:
        with suppress(TypeError):
            return _taken(value, hint)
    raise TypeError


def _several(value: Any, hint: Any) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError
    return [_taken(each, hint) for each in value]


def _number(value: Any, kind: type) -> Any:
    known = isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
    if not known:
        raise TypeError
    return kind(value)


def _class_of(hint: Any) -> type:
    """What values are instances of; protocols that cannot tell take everything."""
    return object if hint is Any or getattr(hint, "_is_protocol", False) else hint


_UNIONS = (Union, UnionType)
_NUMBERS: Mapping[type, type] = {int: Integral, float: Real}


def _described(hint: Any) -> str:
    """A hint as a signature has it, e.g. `list[str | Path]`; of an enumeration its names."""
    if get_origin(hint) in _UNIONS:
        return " or ".join(dict.fromkeys(map(_described, get_args(hint))))
    if isinstance(hint, EnumType):
        members: list[Enum] = list(hint)
        return ", ".join(str(each.value) for each in members)
    shown = "None" if hint is NoneType else re.sub(r"\w+\.", "", formatannotation(hint))
    return shown.replace("Sequence", "list")
