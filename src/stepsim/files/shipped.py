"""Topology files that come with stepsim, found by name."""

from difflib import get_close_matches
from os.path import isfile
from pathlib import Path

from stepsim.base.errors import TopologyError

DEFAULT_TOPOLOGY = "hgx-h100"
DEFAULT_FRAMEWORK = "megatron-core"
SHIPPED = ("topologies", "devices", "frameworks", "models")
"""Kinds of files that come with stepsim, each a folder."""


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
