"""Workloads and networks that a page may ask for: those given at the start, and uploads."""

import re
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from stepsim.base.errors import PlanError, StepsimError
from stepsim.base.records import dataclass
from stepsim.files.load import load_topology, load_workload
from stepsim.files.shipped import topology_names
from stepsim.network.topology import Topology
from stepsim.workload.rows import Workload

_MOST_UPLOADS = 32
_SUFFIXES = {"workload": (".txt",), "topology": (".toml", ".yml", ".yaml", ".txt")}


@dataclass(slots=True, kw_only=True)
class Library:
    """Nouns by the name that a page calls them; a page never names a file.

    `files` says which file a name stands for, for commands that repeat an answer.
    """

    workloads: dict[str, Workload] = field(default_factory=dict)
    topologies: dict[str, Topology] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _uploads: int = 0

    def workload(self, name: str) -> Workload:
        """A workload by name; raises PlanError for one that was not given."""
        if name not in self.workloads:
            known = ", ".join(self.workloads) or "none: upload one"
            raise PlanError(f"no workload named {name!r} is open here: expected {known}")
        return self.workloads[name]

    def topology(self, name: str) -> Topology:
        """A network by name, given or shipped; raises PlanError for any other."""
        if name in self.topologies:
            return self.topologies[name]
        if name not in topology_names():
            known = ", ".join([*self.topologies, *topology_names()])
            raise PlanError(f"no topology named {name!r} is open here: expected {known}")
        return load_topology(name)

    def topology_choices(self) -> list[str]:
        """Names of all topologies that the page offers."""
        return [*self.topologies, *topology_names()]

    def file_of(self, name: str) -> str:
        """The file or shipped name behind a name."""
        return self.files.get(name, name)

    def upload(self, kind: str, name: str, content: bytes) -> str:
        """Read an uploaded `workload` or `topology`; returns the name it has from now on.

        The content is written into a folder of its own while it is read. Raises the readers'
        errors, which call the file by its uploaded name, and PlanError beyond 32 uploads.
        """
        if kind not in _SUFFIXES:
            raise PlanError(f"kind is {kind!r}: expected {' or '.join(_SUFFIXES)}")
        called = _plain_name(name, _SUFFIXES[kind])
        with self._lock:
            if self._uploads >= _MOST_UPLOADS:
                raise PlanError(f"{_MOST_UPLOADS} files were uploaded: start stepsim serve again")
            self._uploads += 1
        with TemporaryDirectory(prefix="stepsim-") as folder:
            path = Path(folder, called)
            path.write_bytes(content)
            try:
                noun = load_workload(path) if kind == "workload" else load_topology(path)
            except StepsimError as error:
                raise type(error)(str(error).replace(f"{path}", called)) from None
        return self._add(noun, called)

    def open(self, path: Path) -> str:
        """Read a workload file that was named on the command line; returns its name."""
        name = self._add(load_workload(path), path.name)
        self.files[name] = str(path)
        return name

    def open_topology(self, name_or_path: str) -> str:
        """Make a shipped topology or a topology file available; returns its name."""
        if name_or_path in topology_names():
            return name_or_path
        name = self._add(load_topology(name_or_path), Path(name_or_path).name)
        self.files[name] = name_or_path
        return name

    def _add(self, noun: Workload | Topology, called: str) -> str:
        with self._lock:
            name = _free_name(called, [*self.workloads, *self.topologies, *topology_names()])
            if isinstance(noun, Workload):
                self.workloads[name] = noun
            else:
                self.topologies[name] = noun
            return name


def _plain_name(name: str, suffixes: Sequence[str]) -> str:
    """A file name without folders or signs that mean something to a shell."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[-80:] or "upload"
    return plain if plain.endswith(tuple(suffixes)) else plain + suffixes[0]


def _free_name(called: str, taken: Sequence[str]) -> str:
    stem, dot, suffix = called.rpartition(".")
    names = (called, *(f"{stem or suffix}-{i}{dot}{suffix if stem else ''}" for i in range(2, 99)))
    return next(name for name in names if name not in taken)
