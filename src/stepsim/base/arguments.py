"""Arguments of public functions, checked against the function's own type hints."""

import builtins
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, EnumType
from functools import wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec.structs import astuple, force_setattr

from stepsim.base.errors import PlanError, bad_value
from stepsim.base.memo import remembered

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
                taken = _argument(function.__name__, name, value, hints[name])
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
            force_setattr(record, name, _argument(kind.__name__, name, value, hint))


def _argument(place: str, name: str, value: object, hint: Any) -> Any:
    try:
        return _taken(value, hint)
    except TypeError:
        raise PlanError(bad_value(place, name, value, _described(hint))) from None


class _Names(dict[str, object]):
    """Names of a module; those that only a type checker imports stand for anything."""

    def __missing__(self, name: str) -> object:
        return getattr(builtins, name, object)


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
_NUMBERS: Mapping[type, type] = MappingProxyType({int: Integral, float: Real})
_WORDS: Mapping[Any, str] = MappingProxyType(
    {
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "True or False",
        Path: "a path",
        NoneType: "None",
        Callable: "a function",
    }
)


def _described(hint: Any) -> str:
    """A hint in words, e.g. `a list of a text or a path`."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        return " or ".join(dict.fromkeys(map(_described, inside)))
    if origin in (Iterable, Sequence):
        return f"a list of {_described(inside[0])}"
    if origin is Mapping:
        return f"a mapping of {_described(inside[0])} to {_described(inside[1])}"
    kind = origin or hint
    if isinstance(kind, EnumType):
        members: list[Enum] = list(kind)
        return ", ".join(str(each.value) for each in members)
    name = kind.__name__
    return _WORDS.get(kind) or f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
