"""Copies of nouns with some fields changed, and documents.

Documents are types that are written as JSON, read again, and described by a JSON Schema. A
document's type stands beside what produces it. Everything it names is written. When it is read,
keys that a later stepsim adds are ignored, and those with a default may be missing.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from enum import EnumType
from itertools import chain
from math import inf, isfinite
from operator import methodcaller
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Self,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

import msgspec
from msgspec import Meta, Struct, StructMeta

from stepsim.base.errors import StepsimError, bad_value
from stepsim.base.fields import numbers, texts
from stepsim.base.process import remembered
from stepsim.base.units import MAX_INT64

_Noun = TypeVar("_Noun")
_Data = TypeVar("_Data")
_Object = TypeVar("_Object")


def replace(noun: _Noun, /, **changes: Any) -> _Noun:
    """A copy of a struct or a dataclass with some fields changed, checked as a new one is.

    Raises TypeError for a field that it does not have, and whatever its `__post_init__` raises.
    """
    if isinstance(noun, Struct):
        return msgspec.structs.replace(noun, **changes)
    return cast(_Noun, dataclasses.replace(cast(Any, noun), **changes))


SCHEMA_VERSION = 1
"""The form of all documents; one of another version is refused."""

Version = Annotated[int, Meta(description="of the form of this document", ge=1, le=1)]
File = str | Path
"""A file by its path, or what is shipped by its name."""
Names = tuple[str, ...]
"""Texts: names, warnings, notes."""
Numbers = tuple[int, ...]
"""Whole numbers: of ranks, stages, levels."""
Values = dict[str, Any]
"""Values by their names: of a noun's fields, a document's keys, a call's options."""

_MESSAGE = re.compile(r"Expected (.+?)(?:, got .+?)?(?: - at .*)?$")
_KEY = re.compile(r"Object (?:(missing required)|contains unknown) field `([^`]*)`")


class _NounMaker(StructMeta):
    """Makes classes whose objects never change and get their fields by name."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        inside: Values,
        *,
        frozen: bool = True,
        kw_only: bool = True,
        **options: Any,
    ) -> StructMeta:
        """The class, as msgspec makes it with these options."""
        return super().__new__(cls, name, bases, inside, frozen=frozen, kw_only=kw_only, **options)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Noun(Struct, frozen=True, kw_only=True, cache_hash=True, metaclass=_NounMaker):
    """A thing with fields: frozen, made by the names of its fields, equal if they are.

    Options of `msgspec.Struct` stand behind the name of a class that differs: `eq=False` where
    fields hold arrays, `dict=True` where something is worked out once. Hashes are kept: nouns are
    keys of rows, operations and prices (a search of GPT-3's plans takes 0.97 of the time so).
    """


class Same(Noun, Generic[_Object], kw_only=False, eq=False):
    """An object as a key: equal to itself alone, whatever it holds."""

    it: _Object

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.it is self.it


class Entry(Noun):
    """A part of a document."""

    @property
    def plain(self) -> object:
        """What is written of it: itself, as msgspec writes it, where no number is another then."""
        return self

    @classmethod
    def taken_from(cls, source: object, /, **others: object) -> Self:
        """An entry of the attributes that bear its fields' names; `others` are not taken."""
        keys = zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)
        taken = {
            key: getattr(source, name)
            for name, key in keys
            if name not in others and name != "schema_version"
        }
        return msgspec.convert(taken | others, cls, from_attributes=True)

    @classmethod
    def from_plain(cls, raw: Values, place: str) -> Self:
        """What plain data of a file say; raises StepsimError naming place, value and allowed."""
        return noun_of(place, raw, cls, StepsimError)


def _as_seconds(name: str) -> str:
    return f"{name.removesuffix('_ps')}_s" if name.endswith("_ps") else name


class Timed(Entry, rename=_as_seconds):
    """A part of a document whose times are `InSeconds`: `step_ps` is written as `step_s`.

    A document with such a part is one itself.
    """

    @property
    def plain(self) -> object:
        """What is written of it."""
        return texts(self)


class Document(Entry):
    """A whole document; `named` are types that its schema names where no field has them."""

    named: ClassVar[tuple[type, ...]] = ()

    schema_version: Version = SCHEMA_VERSION

    def to_json(self) -> bytes:
        """The document as UTF-8 JSON, ending with a newline."""
        return json_text(self.plain)


_WITHOUT_UNIT = methodcaller("removesuffix", "_ps")


class TomlTable(Noun, forbid_unknown_fields=True, omit_defaults=True, rename=_WITHOUT_UNIT):
    """A table of a TOML file: keys that it does not name are refused, defaults are not written.

    The unit of a field `latency_ps` stands in the text of its key `latency`.
    """


def json_text(document: object, indent: int = 1) -> bytes:
    """A document as UTF-8 JSON for people to read too, ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(document), indent=indent) + b"\n"


# plan of mixtral-8x7b with --overlap-cost on takes 1.5 s so, and 3.9 s without
@remembered
def shipped(module: str, name: str, kind: type[_Data]) -> _Data:
    """What a TOML file says that lies beside a `module`, given by its own file."""
    return msgspec.toml.decode(Path(module).with_name(name).read_bytes(), type=kind)


def toml_text(document: Struct) -> str:
    """A document as TOML, without what may be left out and is: None, and empty lists."""
    import tomli_w

    optional = {f.encode_name for f in msgspec.structs.fields(document) if not f.required}
    return tomli_w.dumps(
        {
            key: v
            for key, v in texts(document).items()
            if key not in optional or v not in (None, [], ())
        }
    )


def noun_of(place: str, raw: Any, kind: type[_Data], error: type[StepsimError]) -> _Data:
    """The noun that plain data of a file say; raises `error` naming place, value and allowed."""
    try:
        return msgspec.convert(numbers(raw, kind), kind)
    except msgspec.ValidationError as reason:
        raise error(explain_wrong(place, raw, kind, str(reason))) from None
    except StepsimError as reason:
        raise error(f"{place}: {reason}") from None


_KINDS: Mapping[str, str] = {
    "str": "a text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def explain_wrong(
    place: str, raw: Any, kind: Any, message: str, at: str = "", *, strict: bool = True
) -> str:
    """What msgspec says of plain data: the place, the innermost key, its value, what is allowed.

    Texts may say numbers where it is not `strict`.
    """
    for key, value, inside in _parts(raw, kind):
        try:
            msgspec.convert(numbers(value, inside), inside, strict=strict)
        except msgspec.ValidationError as reason:
            return explain_wrong(place, value, inside, str(reason), at + key, strict=strict)
    field = at.removeprefix(".")
    if message.startswith("Invalid enum value"):
        kinds = (e if isinstance(e, EnumType) else get_args(e) for e in _alternatives(kind))
        return bad_value(place, field, raw, f"one of {', '.join(chain.from_iterable(kinds))}")
    if wrong := _MESSAGE.match(message.replace(" | null", "")):
        words = re.sub(r"\w+", lambda word: _KINDS.get(word[0], word[0]), wrong[1].replace("`", ""))
        return bad_value(place, field, raw, words)
    found = _KEY.match(message)
    if found is None:
        return f"{place}: {message}"
    missing, key = found.groups()
    keys, inside = _keys(kind), f"{place}: {field}" if field else place
    if not missing:
        return f"{inside}: unknown key {key!r}: expected one of {', '.join(keys)}"
    said = (meta.description for meta in get_args(keys[key]) if isinstance(meta, Meta))
    meant = next(filter(None, said), "")
    return f"{inside}: {key} is missing{f' ({meant})' if meant else ''}"


def _parts(raw: Any, kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """What stands inside a table or a list: its key, its value and its type."""
    for key, inside in _keys(kind).items():
        if isinstance(raw, dict) and key in raw:
            yield f".{key}", raw[key], inside
    for each in _alternatives(kind):
        named, types = get_origin(each), get_args(each)
        if named in (dict, Mapping) and isinstance(raw, dict):
            for key, value in raw.items():
                yield f".{key}", key, types[0]
                yield f".{key}", value, types[1]
        elif named in (list, tuple) and isinstance(raw, list):
            several = types[1:] in ((), (Ellipsis,))
            for i, value in enumerate(raw if several else raw[: len(types)]):
                yield f"[{i}]", value, types[0 if several else i]


def _keys(kind: Any) -> Values:
    """The keys of a table and their types."""
    tables = (e for e in _alternatives(kind) if isinstance(e, type) and issubclass(e, Struct))
    return {f.encode_name: f.type for each in tables for f in msgspec.structs.fields(each)}


def _alternatives(kind: Any) -> Iterator[Any]:
    """What a type may be, without what is said of it."""
    if get_origin(kind) not in (Annotated, Union, UnionType):
        yield kind
        return
    for each in get_args(kind):
        yield from _alternatives(each)


AtLeastZero = Annotated[int, Meta(ge=0)]
AtLeastOne = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0, le=MAX_INT64)]
Picoseconds = Annotated[int, Meta(ge=0, le=MAX_INT64, description="picoseconds")]
Seconds = Annotated[float, Meta(description="seconds")]
Bytes = Annotated[int, Meta(ge=0, le=MAX_INT64, description="bytes")]
BytesPerSecond = Annotated[float, Meta(description="bytes/s, one way")]
Positive = Annotated[float, Meta(ge=1e-6, le=1e9)]
"""What multiplies or divides: so far from 0 and from infinite that results are neither."""

Share = Annotated[float, Meta(description="a share: 0.1 is 10 %")]
UnitShare = Annotated[Share, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0, le=1e9)]


def finite(value: float) -> float | None:
    """A number as documents hold it: None without bound, such as the bandwidth of a free link."""
    return value if isfinite(value) else None


def unbounded(value: float | None) -> float:
    """A number that a document holds, as one to count with: infinite where it is None."""
    return inf if value is None else value
