"""The reference of the formats with a JSON Schema, made from the schemas."""

import re
from collections.abc import Iterator
from typing import Any

from markdown_text import table

from stepsim.views.schemas import FORMATS, json_schema


def schemas_page() -> str:
    """The reference of the formats that have a JSON Schema."""
    return "\n".join(_schema_lines()) + "\n"


def _schema_lines() -> Iterator[str]:
    yield "# Schemas"
    yield ""
    yield "*Made by `python tools/reference.py` from the types of the program.*"
    yield ""
    yield "`stepsim schema FORMAT` prints the JSON Schema (draft 2020-12) of a format. Formats"
    yield "that are text are described in [file formats](../formats.md)."
    yield ""
    yield from table(
        ("format", "of"),
        ((f"[`{name}`](#{name})", what) for name, (what, _) in FORMATS.items()),
    )
    for name, (what, _) in FORMATS.items():
        yield f"## {name}"
        yield ""
        yield f"{what[0].upper()}{what[1:]}."
        yield ""
        document = json_schema(name)
        for title, definition in _by_depth(document):
            yield from _definition(name, title, definition)


def _by_depth(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Definitions, the root first, then those it names, in the order they are named."""
    waiting = [document["$ref"].rpartition("/")[2]]
    for title in waiting:
        definition = document["$defs"][title]
        yield title, definition
        named = re.findall(r"#/\$defs/(\w+)", str(definition))
        waiting += [each for each in dict.fromkeys(named) if each not in waiting]


def _definition(name: str, title: str, definition: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}: {title}"
    yield ""
    yield definition["description"]
    yield ""
    if "enum" in definition:
        yield f"One of {', '.join(f'`{each}`' for each in definition['enum'])}."
        yield ""
        return
    required = set(definition.get("required", ()))
    yield from table(
        ("key", "value", "default", "what"),
        (
            (
                f"`{key}`",
                _shown(name, field),
                "required" if key in required else _shown_default(field),
                _described(field),
            )
            for key, field in definition["properties"].items()
        ),
    )


def _shown(name: str, field: dict[str, Any]) -> str:
    """What a value may be."""
    if "$ref" in field:
        title = field["$ref"].rpartition("/")[2]
        return f"[{title}](#{name}-{title.lower()})"
    if "enum" in field:
        return ", ".join(f"`{each}`" for each in field["enum"])
    if "const" in field:
        return f"`{str(field['const']).lower()}`"
    if "anyOf" in field:
        absent = {"type": "null"} if "default" in field else None
        shown = (_shown(name, each) for each in field["anyOf"] if each != absent)
        return " or ".join(dict.fromkeys(shown))
    return _shown_type(name, field)


def _shown_type(name: str, field: dict[str, Any]) -> str:
    kind = field["type"]
    if kind == "array":
        items = field.get("items") or {"anyOf": field["prefixItems"]}
        return f"list of {_shown(name, items)}"
    if kind == "object" and "additionalProperties" in field:
        return f"keys with {_shown(name, field['additionalProperties'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _shown_default(field: dict[str, Any]) -> str:
    default = field.get("default")
    if default is None or isinstance(default, dict | list):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _described(field: dict[str, Any]) -> str:
    """The description of a value, or of what it holds."""
    inner = [*field.get("anyOf", ()), field.get("items") or {}, field.get("additionalProperties")]
    found = [each.get("description", "") for each in (field, *inner) if isinstance(each, dict)]
    return next(filter(None, found), "")
