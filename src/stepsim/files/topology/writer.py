"""Topology files as text: one line per option, short lists and tables on it."""

from collections.abc import Iterator, Mapping
from json import dumps
from textwrap import fill
from typing import Any

import msgspec

from stepsim.files.topology.tables import TopologyFile

_WIDTH = 100


def topology_file_text(file: TopologyFile) -> str:
    """TOML of a topology file: what it says of itself, then its tables."""
    plain = msgspec.to_builtins(file)
    lines: list[str] = []
    for name, value in plain.items():
        if not isinstance(value, list | dict):
            lines += _lines(name, value)
    for name, value in sorted(plain.items(), key=lambda pair: isinstance(pair[1], list)):
        tables = value if isinstance(value, list) else [value] if isinstance(value, dict) else []
        head = f"[[{name}]]" if isinstance(value, list) else f"[{name}]"
        for table in tables:
            lines += ["", head, *(line for pair in table.items() for line in _lines(*pair))]
    return "\n".join(lines) + "\n"


def _lines(name: str, value: Any) -> Iterator[str]:
    text = f"{name} = {_text(value)}"
    if isinstance(value, str) and "\n" in value:
        yield from (f'{name} = """', *(_escaped(line) for line in value.strip().split("\n")), '"""')
    elif isinstance(value, list) and len(text) > _WIDTH:
        items = fill(
            ", ".join(map(_text, value)) + ",",
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield from (f"{name} = [", items, "]")
    else:
        yield text


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_text(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else dumps(name)
