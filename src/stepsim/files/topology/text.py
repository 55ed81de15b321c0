"""What the readers of topology files share."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stepsim.base.errors import StepsimError, TopologyError
from stepsim.files import reading

MOST_NPUS_IN_A_FILE = 1 << 24

T = TypeVar("T")


def read_text(path: Path, form: str) -> str:
    """The text of a file that should hold a topology as `form`; raises TopologyError."""
    return reading.read_text(path, TopologyError, "topology", f"a topology {form}")


def quantity(parse: Callable[[str], T], place: str, text: str) -> T:
    """A parsed quantity; raises TopologyError naming its place."""
    try:
        return parse(text)
    except StepsimError as error:
        raise TopologyError(f"{place}: {error}") from None
