"""A hash of what documents hold: the same in every process and on every machine."""

from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from hashlib import sha256
from pathlib import PurePath

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

_DIGEST_BYTES = 8
_Known = dict[int, tuple[object, bytes]]


def content_hash(document: object) -> str:
    """16 hexadecimal digits that are equal for equal content, and practically never otherwise.

    A document is a number, text, bytes, None, path, enum, numpy array, or a struct, dataclass,
    sequence, set or mapping of documents; the order of sets and mappings does not count, and
    neither does a field that comparisons leave out. 1, 1.0 and True differ, and so do classes with
    the same fields. Raises TypeError for anything else, whose content cannot be told.
    """
    return _digest(document, {})[:_DIGEST_BYTES].hex()


def _digest(value: object, known: _Known) -> bytes:
    """The hash of a value; of an object that occurs often it is made once."""
    if id(value) not in known:
        told = repr(_told(value, known)).encode()
        # the object is kept, so that no other gets its number
        known[id(value)] = value, sha256(told).digest()
    return known[id(value)][1]


def _told(value: object, known: _Known) -> object:
    """What tells a value from others: itself, or what kind of thing it is, and its parts."""
    name, parts = f"{type(value).__module__}.{type(value).__qualname__}", []
    match value:
        case np.generic():
            return _told(value.item(), known)
        case Enum():
            return name, value.name
        case None | int() | float() | str() | bytes() | Fraction() | PurePath():
            return value
        case np.ndarray() if not value.dtype.hasobject:
            return name, value.dtype.str, value.shape, sha256(value.tobytes()).digest()
        case Mapping() | Set():
            kind = "mapping" if isinstance(value, Mapping) else "set"
            every = value.items() if isinstance(value, Mapping) else value
            return kind, sorted(_digest(each, known) for each in every)
        case list() | tuple():
            name, parts = "sequence", [*value]
        case Struct():
            parts = [*astuple(value)]
        case _ if is_dataclass(value) and not isinstance(value, type):
            parts = [getattr(value, each.name) for each in fields(value) if each.compare]
        case _:
            raise TypeError(f"{name} has no content hash")
    return name, [_digest(each, known) for each in parts]
