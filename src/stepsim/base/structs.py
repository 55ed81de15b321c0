"""Copies of nouns with some fields changed, and documents.

Documents are types that are written as JSON, read again, and described by a JSON Schema. A
document's type stands beside what produces it. Everything it names is written. When it is read,
keys that a later stepsim adds are ignored, and those with a default may be missing.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from math import inf, isfinite
from operator import methodcaller
from pathlib import Path
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Self,
    TypeVar,
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
from stepsim.base.units import MAX_INT64, PS_PER_S

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
Names = tuple[str, ...]
"""Texts: names, warnings, notes."""

_MESSAGE = re.compile(r"Expected (?P<allowed>.+?)(?:, got .+?)?(?: - at `\$(?P<at>.*)`)?")
_MISSING = re.compile(r"Object missing required field `(?P<key>[^`]*)`(?: - at `\$(?P<at>.*)`)?")
_INVALID = re.compile(r"Invalid enum value '(?P<value>.*)' - at `(?:key` in `)?\$(?P<at>[^`]*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>[^`]*)`(?: - at `\$(?P<at>.*)`)?")


class _NounMaker(StructMeta):
    """Makes classes whose objects never change and get their fields by name."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        inside: dict[str, Any],
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
        """An entry of the attributes that bear its keys' names; `others` are not taken.

        Seconds are those of an attribute in picoseconds: `step_s` of `step_ps`.
        """
        taken: dict[str, object] = {}
        for name in cls.__struct_fields__:
            if name in others or name == "schema_version":
                continue
            time_ps = getattr(source, f"{name[:-2]}_ps", None) if name.endswith("_s") else None
            if isinstance(time_ps, tuple):
                taken[name] = tuple(each / PS_PER_S for each in time_ps)
            else:
                taken[name] = getattr(source, name) if time_ps is None else time_ps / PS_PER_S
        return msgspec.convert(taken | others, cls, from_attributes=True)

    @classmethod
    def from_plain(cls, raw: dict[str, Any], place: str) -> Self:
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


def plain_document(text: str, place: str, what: str) -> dict[str, Any]:
    """Plain data of JSON that should be `what`; raises StepsimError, naming `place`, if not."""
    try:
        raw = msgspec.json.decode(text)
    except RecursionError:
        raise StepsimError(f"{place}: not a result: its JSON is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise StepsimError(f"{place}: not valid JSON: {error}") from None
    if not isinstance(raw, dict) or "schema_version" not in raw:
        raise StepsimError(f"{place}: not {what}: no schema_version")
    version = raw["schema_version"]
    if type(version) is not int or version != SCHEMA_VERSION:
        allowed = f"{SCHEMA_VERSION}, the only one this stepsim reads"
        raise StepsimError(bad_value(place, "schema_version", version, allowed))
    return raw


def noun_of(place: str, raw: Any, kind: type[_Data], error: type[StepsimError]) -> _Data:
    """The noun that plain data of a file say; raises `error` naming place, value and allowed."""
    try:
        return msgspec.convert(numbers(raw, kind), kind)
    except msgspec.ValidationError as reason:
        raise error(explain_wrong(place, raw, kind, str(reason))) from None
    except StepsimError as reason:
        raise error(f"{place}: {reason}") from None


_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "str": "a text in quotes",
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "array": "a list",
        "object": "a table",
    }
)


def explain_wrong(place: str, raw: Any, schema: type[Any], message: str) -> str:
    """What msgspec says of a file of a schema: the place, the key, its value, what is allowed."""
    if invalid := _INVALID.fullmatch(message):
        inside, _, key = invalid["at"].rpartition(".")
        hint = _types_at(schema, inside)[key.partition("[")[0]]
        allowed = f"one of {', '.join(_texts_of(hint))}"
        return bad_value(place, invalid["at"].lstrip("."), invalid["value"], allowed)
    if wrong := _MESSAGE.fullmatch(message.replace(" | null", "")):
        field, value = _look_up(raw, wrong["at"] or "")
        allowed = wrong["allowed"].replace("`", "")
        words = re.sub(r"\w+", lambda word: _KINDS.get(word[0], word[0]), allowed)
        return bad_value(place, field, value, words)
    found = _MISSING.fullmatch(message) or _UNKNOWN.fullmatch(message)
    if found is None:
        return f"{place}: {message}"
    at, key = found["at"] or "", found["key"]
    keys = _types_at(schema, at)
    inside = f"{place}: {at.lstrip('.')}" if at else place
    if key not in keys:
        return f"{inside}: unknown key {key!r}: expected one of {', '.join(keys)}"
    said = (meta.description for meta in get_args(keys[key]) if isinstance(meta, Meta))
    meant = next(filter(None, said), "")
    return f"{inside}: {key} is missing{f' ({meant})' if meant else ''}"


def _types(schema: type[Any]) -> dict[str, Any]:
    """The keys of a table and their types."""
    return {f.encode_name: f.type for f in msgspec.structs.fields(schema)}


def _types_at(schema: type[Any], at: str) -> dict[str, Any]:
    """Those of the table that a path such as `.dimension[0]` leads to."""
    types = _types(schema)
    for key in re.findall(r"\.(\w+)", at):
        types = _types(next(_structs_in(types[key])))
    return types


def _structs_in(hint: Any) -> Iterator[type[Any]]:
    """Structs that a type names."""
    named = get_origin(hint) or hint
    if isinstance(named, type) and issubclass(named, Struct):
        yield hint
    for part in get_args(hint):
        yield from _structs_in(part)


def _texts_of(hint: Any) -> Iterator[str]:
    """Texts that a type allows."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        yield from hint
    for part in get_args(hint):
        yield from (part,) if isinstance(part, str) else _texts_of(part)


def _look_up(raw: Any, at: str) -> tuple[str, Any]:
    """Place and value of a path such as `.stages[0].breakdown_ps[...]`.

    The dots stand for some key: the first that has what follows, counts last.
    """
    place, value = next(_found(raw, re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", at)))
    return place.lstrip("."), value


def _found(
    value: Any, path: Sequence[tuple[str, str]], place: str = ""
) -> Iterator[tuple[str, Any]]:
    if not path:
        yield place, value
        return
    (key, index), *rest = path
    if index.isdecimal():
        yield from _found(value[int(index)], rest, f"{place}[{index}]")
    elif isinstance(value, dict):
        for name in [key] if key else sorted(value, key=lambda each: _is_count(value[each])):
            if name in value:
                yield from _found(value[name], rest, f"{place}.{name}")


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_INT64


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
