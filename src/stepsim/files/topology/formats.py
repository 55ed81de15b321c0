"""Topology files: the list of forms, and how each is told; what reads them comes later."""

import re
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from stepsim.files.reading import first_bytes, reader_of
from stepsim.files.shipped import shipped_once, topology_names
from stepsim.network.topology import Topology


class _Format(Struct, frozen=True, kw_only=True):
    """A form of topology files: told by `suffixes`, or by how a file with none of them `begins`."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Path], Topology]
    begins: Callable[[bytes], bool] = lambda start: False


def _is_simai_topology(start: bytes) -> bool:
    """Whether a file begins with SimAI's first line: five numbers and a word."""
    return re.match(rb"\s*(\d+\s+){5}\S+\s*(\n|$)", start) is not None


_BEGINNING = 200
_TOML = _Format(
    name="TOML", suffixes=(".toml",), read=reader_of("topology.toml", "read_topology_toml")
)
_FORMATS = (
    _TOML,
    _Format(
        name="ASTRA-sim's network YAML",
        suffixes=(".yml", ".yaml"),
        read=reader_of("topology.astra_network", "read_astra_network"),
    ),
    _Format(
        name="SimAI's topology text",
        suffixes=(),
        read=reader_of("topology.simai_topology", "read_simai_topology"),
        begins=_is_simai_topology,
    ),
)
"""What is none of the others is read as TOML."""


@shipped_once
def read_topology(path: Path) -> Topology:
    """Topology in a file of any of `_FORMATS`; raises TopologyError naming file and entry."""
    return (_format(path) or _TOML).read(path)


def is_topology(name_or_path: str) -> bool:
    """Whether this is a shipped topology's name, or a file of a topology's form."""
    return name_or_path in topology_names() or _format(Path(name_or_path)) is not None


def _format(path: Path) -> _Format | None:
    named = [each for each in _FORMATS if path.suffix in each.suffixes]
    start = b"" if named else first_bytes(path, _BEGINNING)
    return next(iter([*named, *(each for each in _FORMATS if each.begins(start))]), None)
