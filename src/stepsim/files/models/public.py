"""Public models by name, in the words of their Hugging Face configurations."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from os.path import exists
from pathlib import Path
from typing import Any

from stepsim.base.errors import WorkloadError
from stepsim.files.reading import parse_toml, read_text
from stepsim.files.shipped import shipped_folder

EXAMPLE = "llama-3.1-8b"
"""A public model, where one has to be named."""


@cache
def _public() -> Mapping[str, Mapping[str, Any]]:
    path = shipped_folder("models") / "public.toml"
    return parse_toml(read_text(path, WorkloadError, "public models", "TOML"))


def public_names() -> list[str]:
    """Names of the public models."""
    return sorted(_public())


def is_public(name: str) -> bool:
    """Whether a public model has this name, in any case."""
    return name.lower() in _public()


def beside(path: Path, name: str) -> Path:
    """What a file calls a workload: a file beside it, unless that is a public model's name."""
    file = path.parent / name
    return Path(name) if is_public(name) and not exists(file) else file


def public_model(name: str) -> Mapping[str, Any]:
    """The configuration of a public model; raises WorkloadError for a name that none has."""
    found = _public().get(name.lower())
    if found is not None:
        return found
    close = get_close_matches(name.lower(), _public(), n=4)
    meant = f"did you mean {', '.join(close)}? " if close else ""
    raise WorkloadError(
        f"no model named {name!r}: {meant}expected a workload file, a model's config.json, or a "
        f"public model, e.g. {EXAMPLE}"
    )
