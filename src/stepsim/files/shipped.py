"""Topology files that come with stepsim, found by name."""

from collections.abc import Callable
from difflib import get_close_matches
from functools import cache, wraps
from os.path import isfile
from pathlib import Path
from typing import TypeVar

from stepsim.base.errors import TopologyError

DEFAULT_TOPOLOGY = "hgx-h100"
DEFAULT_FRAMEWORK = "megatron-core"
SHIPPED = ("topologies", "devices", "frameworks", "models")
"""Kinds of files that come with stepsim, each a folder."""


_Noun = TypeVar("_Noun")


def shipped_once(read: Callable[[Path], _Noun]) -> Callable[[Path], _Noun]:
    """Read a file that comes with stepsim once; a file of the user's may change meanwhile."""
    once = cache(read)

    @wraps(read)
    def of_path(path: Path) -> _Noun:
        ours = path.parent in map(shipped_folder, SHIPPED)
        return once(path) if ours else read(path)

    return of_path


def topology_names() -> list[str]:
    """Names of the shipped topologies."""
    return sorted(path.stem for path in _folder().glob("*.toml"))


def topology_file(name_or_path: str | Path) -> Path:
    """File of a shipped topology's name, or the user's own path.

    A bare word is a name, anything with a suffix or a folder is a path. Raises TopologyError when
    there is no such name.
    """
    path = Path(name_or_path)
    if path.suffix or len(path.parts) > 1:
        return path
    shipped = _folder() / f"{name_or_path}.toml"
    if isfile(shipped):
        return shipped
    if isfile(path):
        return path
    names = topology_names()
    close = get_close_matches(str(name_or_path), names, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise TopologyError(
        f"no topology named {str(name_or_path)!r}{hint}: expected a file or one of "
        f"{', '.join(names)}"
    )


def shipped_folder(kind: str) -> Path:
    """Files of a kind that come with stepsim: in the installed package, or in the checkout."""
    package = Path(__file__).parents[1]
    installed = package / f"shipped_{kind}"
    return installed if installed.is_dir() else package.parents[1] / kind


def _folder() -> Path:
    return shipped_folder("topologies")
