"""Copies of nouns with some fields changed, and names that have fields."""

import dataclasses
from enum import StrEnum
from typing import Any, Self, TypeVar, cast

from msgspec import Struct
from msgspec.structs import asdict

_Noun = TypeVar("_Noun")


def replace(noun: _Noun, /, **changes: Any) -> _Noun:
    """A copy of a struct or a dataclass with some fields changed, checked as a new one is.

    Raises TypeError for a field that it does not have, and whatever its `__post_init__` raises.
    `msgspec.structs.replace` does not call that before msgspec 0.21, and browsers, where the
    explorer runs too, have 0.19.
    """
    if isinstance(noun, Struct):
        return cast(_Noun, type(noun)(**asdict(noun) | changes))
    return cast(_Noun, dataclasses.replace(cast(Any, noun), **changes))


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
