"""Models by file or by name: what is one, and how it is read; readers wait until there is one."""

import re
from os.path import exists, isdir
from pathlib import Path
from typing import Any

from stepsim.base.errors import WorkloadError, bad_value, one_line
from stepsim.files.models.public import is_public, public_model
from stepsim.files.reading import first_bytes, parse_toml, read_text
from stepsim.workload.model.model import Model

_BEGINNING = 1 << 16
_CONFIG = "config.json"
_BASE = "based_on"


def is_model(path: str | Path) -> bool:
    """Whether this is a model: a public one's name, or a file or folder that describes one."""
    name, path = str(path), Path(path)
    if not exists(path):
        return is_public(name) or _is_bare(name)
    if isdir(path):
        return exists(path / _CONFIG)
    start = first_bytes(path, _BEGINNING)
    if path.suffix == ".json":
        return b'"architectures"' in start or path.name.endswith(_CONFIG)
    if path.suffix == ".toml":
        return b"architectures" in start or _BASE.encode() in start
    return _is_megatron(path, start)


def _is_megatron(path: Path, start: bytes) -> bool:
    """Whether a text holds Megatron-LM's arguments; `start` is its beginning."""
    found = rb"(--num[-_]layers|--hidden[-_]size)\b"
    if path.suffix in (".yaml", ".yml"):
        found = rb"(?m)^\s*(--)?(num[-_]layers|hidden[-_]size)[\"']?\s*:"
    return re.search(found, start) is not None


def _is_bare(name: str) -> bool:
    """Whether a text that is no file looks like a name, not like a file that is missing."""
    return Path(name).name == name and not Path(name).suffix[1:].isalpha()


def read_model(path: str | Path) -> Model:
    """A model by name or file: `config.json`, a TOML of the same keys, Megatron-LM's arguments.

    A TOML file may say `based_on` a public model and change some keys. Raises WorkloadError naming
    the file, the key and what is allowed.
    """
    name, path = str(path), Path(path)
    if not exists(path):
        return _described(public_model(name), name.lower(), name.lower())
    path = path / _CONFIG if isdir(path) else path
    text = read_text(path, WorkloadError, "model", "a model's configuration")
    if path.suffix == ".json":
        return _described(_json(path, text), str(path), _name_of(path))
    if path.suffix == ".toml":
        return _described(_toml(path, text), str(path), _name_of(path))
    from stepsim.files.models.megatron import read_megatron

    return read_megatron(path, text)


def _described(values: Any, place: str, name: str) -> Model:
    from stepsim.files.models.huggingface import architecture_of

    said = values.get("name", name)
    if not isinstance(said, str) or not said:
        raise WorkloadError(bad_value(place, "name", said, "a text"))
    architecture, notes = architecture_of(values, place=place, name=one_line(said))
    return Model(source=architecture.name, architecture=architecture, warnings=tuple(notes))


def _name_of(path: Path) -> str:
    """The model's name: of the file, or of its folder where the file is called config.json."""
    stem = path.name.removesuffix(path.suffix).removesuffix(".config")
    return path.absolute().parent.name if path.name == _CONFIG else stem


def _json(path: Path, text: str) -> dict[str, Any]:
    """Plain data; `Infinity` counts, which configurations have and JSON has not."""
    import json

    try:
        values = json.loads(text)
    except RecursionError:
        raise WorkloadError(f"{path}: its JSON is nested too deeply") from None
    except ValueError as reason:
        raise WorkloadError(f"{path}: not valid JSON: {reason}") from None
    if not isinstance(values, dict):
        raise WorkloadError(f"{path}: not a model's config.json: expected an object of keys")
    return values


def _toml(path: Path, text: str) -> dict[str, Any]:
    try:
        values = parse_toml(text)
    except ValueError as reason:
        raise WorkloadError(f"{path}: not valid TOML: {reason}") from None
    base = values.pop(_BASE, None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise WorkloadError(bad_value(str(path), _BASE, base, "the name of a public model"))
    return {"name": _name_of(path), **public_model(base), **values}
