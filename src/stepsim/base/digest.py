"""A hash of what documents hold: the same in every process and on every machine."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import NoneType
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

_DIGEST_BYTES = 8
_WRITTEN: tuple[tuple[str, type, Callable[[Any], str]], ...] = (
    ("bool", bool, str),
    ("int", int, hex),
    ("float", float, float.hex),
    ("fraction", Fraction, str),
    ("str", str, str),
    ("path", PurePath, str),
    ("None", NoneType, str),
)
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
        kind, content = _plain(value) or (_kind(value), _joined(value, known))
        data = b"%d %b %b" % (len(kind), kind.encode(), content)
        # the object is kept, so that no other gets its number
        known[id(value)] = value, hashlib.sha256(data).digest()
    return known[id(value)][1]


def _plain(value: object) -> tuple[str, bytes] | None:
    """What kind of thing a value without parts is, and its content; None for one with parts."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Enum):
        return _name(value), value.name.encode()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"array {value.dtype.str} {value.shape}", value.tobytes()
    if isinstance(value, bytes):
        return "bytes", value
    for kind, types, written in _WRITTEN:
        if isinstance(value, types):
            return kind, written(value).encode(errors="surrogatepass")
    return None


def _kind(value: object) -> str:
    """What kind of thing a value with parts is."""
    if isinstance(value, Struct) or (is_dataclass(value) and not isinstance(value, type)):
        return _name(value)
    for kind, types in (("mapping", Mapping), ("set", Set), ("sequence", list | tuple)):
        if isinstance(value, types):
            return kind
    raise TypeError(f"{_name(value)} has no content hash")


def _joined(value: object, known: _Known) -> bytes:
    """The hashes of a value's parts, in an order that follows from its content."""
    parts: Iterable[object] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, Set | list | tuple):
        parts = value
    elif isinstance(value, Struct):
        parts = asdict(value).items()
    elif is_dataclass(value):
        parts = [(each.name, getattr(value, each.name)) for each in fields(value) if each.compare]
    digests = [_digest(part, known) for part in parts]
    return b"".join(sorted(digests) if isinstance(value, Mapping | Set) else digests)


def _name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
