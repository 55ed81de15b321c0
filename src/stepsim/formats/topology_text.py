"""What the readers of topology files share."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stepsim.errors import StepsimError, TopologyError

MAX_NPUS = 1 << 24

T = TypeVar("T")


def read_text(path: Path, form: str) -> str:
    """The text of a file that should hold a topology as `form`; raises TopologyError."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise TopologyError(f"{path}: cannot read the topology: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TopologyError(f"{path}: not a text file: expected a topology {form}") from None
    except ValueError as error:
        raise TopologyError(f"{path}: cannot read the topology: {error}") from None


def quantity(parse: Callable[[str], T], place: str, text: str) -> T:
    """A parsed quantity; raises TopologyError naming its place."""
    try:
        return parse(text)
    except StepsimError as error:
        raise TopologyError(f"{place}: {error}") from None
