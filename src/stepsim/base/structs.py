"""Copies of nouns with some fields changed."""

import dataclasses
from typing import Any, TypeVar, cast

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
