"""What a page may ask for: files given at the start, what is shipped, and uploads."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from msgspec import Struct, field

from stepsim.base.errors import PlanError, StepsimError
from stepsim.base.structs import Values, replace
from stepsim.explain.report import ResultDocument
from stepsim.files.load import (
    is_model,
    is_public,
    load_result,
    load_work,
    public_names,
    read_model,
    topology_of,
)
from stepsim.files.measured import load_profile, load_run
from stepsim.files.reading import topology_names
from stepsim.files.traces.forms import is_measured, is_profile
from stepsim.measured.profile.events import Profile
from stepsim.measured.step_log import LeafLog
from stepsim.measured.summary import RunSummary
from stepsim.network.topology import Topology
from stepsim.workload.model.model import Model
from stepsim.workload.rows import Workload

Ran = RunSummary | LeafLog | Profile | ResultDocument
"""What has run already: it is shown as it is."""

_MOST_UPLOADS = 32


# What a name of the page's first list stands for.
_KINDS: Mapping[type, str] = {
    Workload: "workload",
    Model: "model",
    RunSummary: "measured run",
    LeafLog: "measured run",
    Profile: "profile",
    ResultDocument: "result",
}


def _read_work(path: Path) -> Workload | Model | Ran:
    """What a file holds, as `stepsim simulate` takes it, or a result that it wrote.

    Raises the errors of the readers.
    """
    if not is_model(path):
        if is_profile(path):
            return load_profile(path)
        if is_measured(path):
            return load_run(path)
        if path.suffix == ".json":
            return load_result(path)
    return load_work(path)


# What reads an upload of a kind, and how its name may end.
_UPLOADS: Mapping[str, tuple[Callable[[Path], object], Sequence[str]]] = {
    "workload": (_read_work, (".txt", ".json", ".toml", ".log", ".gz", ".parquet", ".sqlite")),
    "topology": (topology_of, (".toml", ".yml", ".yaml", ".txt")),
}


class NamedNouns(Struct, kw_only=True):
    """Nouns by the name that a page calls them; a page never names a file.

    `files` says which file a name stands for, for commands that repeat an answer.
    """

    works: dict[str, Workload | Model | Ran] = {}
    topologies: dict[str, Topology] = {}
    files: dict[str, str] = {}
    _lock: Lock = field(default_factory=Lock)

    def work(self, name: str) -> Workload | Model | Ran:
        """What a name of the first list stands for, given or a public model; raises PlanError."""
        if name in self.works:
            return self.works[name]
        if not is_public(name):
            known = ", ".join([*self.works, *public_names()])
            raise PlanError(f"no workload named {name!r} is open here: expected {known}")
        return read_model(name)

    def workload(self, name: str) -> Workload | Model:
        """What can be simulated; raises PlanError for what has run already."""
        found = self.work(name)
        if isinstance(found, Workload | Model):
            return found
        raise PlanError(f"{name} is a {_KINDS[type(found)]}: it has run, and is shown as it is")

    def topology(self, name: str) -> Topology:
        """A network by name, given or shipped; raises PlanError for any other."""
        if name in self.topologies:
            return self.topologies[name]
        if name not in topology_names():
            known = ", ".join([*self.topologies, *topology_names()])
            raise PlanError(f"no topology named {name!r} is open here: expected {known}")
        return topology_of(name)

    def work_choices(self) -> list[tuple[str, str]]:
        """Names of all that the page can show, each with its kind: first what was given."""
        given = [(name, _KINDS[type(each)]) for name, each in self.works.items()]
        shipped = [name for name in public_names() if name not in self.works]
        return given + [(name, _KINDS[Model]) for name in shipped]

    def topology_choices(self) -> list[str]:
        """Names of all topologies that the page offers."""
        return [*self.topologies, *topology_names()]

    def file_of(self, name: str) -> str:
        """The file or shipped name behind a name."""
        return self.files.get(name, name)

    def upload(self, kind: str, name: str, content: bytes) -> str:
        """Read an uploaded `workload` (or model, run, result) or `topology`; returns its new name.

        The content is written into a folder of its own while it is read. Raises the readers'
        errors, which call the file by its uploaded name, and PlanError beyond 32 uploads.
        """
        if kind not in _UPLOADS:
            raise PlanError(f"kind is {kind!r}: expected {' or '.join(_UPLOADS)}")
        read, suffixes = _UPLOADS[kind]
        called = _plain_name(name, suffixes)
        if len(self.works) + len(self.topologies) - len(self.files) >= _MOST_UPLOADS:
            raise PlanError(f"{_MOST_UPLOADS} files were uploaded: start stepsim serve again")
        with TemporaryDirectory(prefix="stepsim-") as folder:
            path = Path(folder, called)
            path.write_bytes(content)
            try:
                noun = _without_folder(read(path), called)
            except StepsimError as error:
                raise type(error)(str(error).replace(f"{path}", called)) from None
        return self._add(self.works if kind == "workload" else self.topologies, noun, called)

    def open(self, path: Path) -> str:
        """Read what was named on the command line: a public model or a file; returns its name."""
        name = self._add(self.works, _read_work(path), path.name)
        self.files[name] = str(path)
        return name

    def open_topology(self, name_or_path: str) -> str:
        """Make a shipped topology or a topology file available; returns its name."""
        if name_or_path in topology_names():
            return name_or_path
        name = self._add(self.topologies, topology_of(name_or_path), Path(name_or_path).name)
        self.files[name] = name_or_path
        return name

    def _add(self, shelf: Values, noun: object, called: str) -> str:
        with self._lock:
            taken = [*self.works, *self.topologies, *topology_names()]
            stem, dot, suffix = called.rpartition(".")
            others = (f"{stem or suffix}-{i}{dot}{suffix if stem else ''}" for i in range(2, 99))
            name = next(name for name in (called, *others) if name not in taken)
            shelf[name] = noun
            return name


def _without_folder(noun: object, called: str) -> object:
    """What was read of an upload, as if its file lay here."""
    if isinstance(noun, RunSummary):
        return replace(noun, run=replace(noun.run, source=called))
    return replace(noun, source=called) if isinstance(noun, LeafLog | Profile) else noun


def _plain_name(name: str, suffixes: Sequence[str]) -> str:
    """A file name without folders or signs that mean something to a shell."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[-80:].lstrip("._-").rstrip("._")
    plain = plain or "upload"
    return plain if plain.endswith(tuple(suffixes)) else plain + suffixes[0]
