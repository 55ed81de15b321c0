"""What readers of text files share: one clear error for what cannot be read at all."""

import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from stepsim.errors import StepsimError

Document = TypeVar("Document")


def read_text(
    path: Path, error: type[StepsimError], what: str, expected: str, *, encoding: str = "utf-8"
) -> str:
    """The text of a file; raises `error` saying that this is no `what`, and what was `expected`."""
    try:
        return path.read_bytes().decode(encoding)
    except OSError as reason:
        raise error(f"{path}: cannot read the {what}: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise error(f"{path}: not a text file: expected {expected}") from None
    except ValueError as reason:
        raise error(f"{path}: cannot read the {what}: {reason}") from None


def read_toml(path: Path, schema: type[Document], error: type[StepsimError], what: str) -> Document:
    """The `what` in a TOML file, as `schema` has it; raises `error` naming the entry at fault."""
    text = read_text(path, error, what, f"a {what} in TOML")
    try:
        return msgspec.convert(tomllib.loads(text), schema)
    except tomllib.TOMLDecodeError as reason:
        raise error(f"{path}: not valid TOML: {reason}") from None
    except msgspec.ValidationError as reason:
        raise error(f"{path}: {reason}") from None
    except (ValueError, RecursionError) as reason:
        raise error(f"{path}: not a {what}: {reason}") from None
