"""Topology files of every form: told apart by suffix, then by their first line."""

import re
from pathlib import Path

from stepsim.files.reading import open_file
from stepsim.files.shipped import topology_names
from stepsim.files.topology.astra_network import read_astra_network
from stepsim.files.topology.simai_topology import read_simai_topology
from stepsim.files.topology.toml import read_topology as read_toml
from stepsim.network.topology import Topology

_SIMAI_HEADER = re.compile(rb"\s*(\d+\s+){5}\S+\s*(\n|$)")


def read_topology(path: Path) -> Topology:
    """Topology in a file: TOML, ASTRA-sim's network YAML, or SimAI's topology text.

    Raises TopologyError naming the file and the entry at fault.
    """
    if path.suffix in (".yml", ".yaml"):
        return read_astra_network(path)
    if path.suffix != ".toml" and _SIMAI_HEADER.match(_start(path)):
        return read_simai_topology(path)
    return read_toml(path)


def is_topology(name_or_path: str) -> bool:
    """Whether this is a shipped topology's name, or a file of a topology's form."""
    path = Path(name_or_path)
    if path.suffix in (".toml", ".yml", ".yaml"):
        return True
    return name_or_path in topology_names() or bool(_SIMAI_HEADER.match(_start(path)))


def _start(path: Path) -> bytes:
    """The first bytes of a file; nothing where it cannot be read, which its reader will say."""
    try:
        with open_file(path) as file:
            return file.read(200)
    except OSError:
        return b""
