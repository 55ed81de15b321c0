"""Workloads, topologies and measured collectives by file or by name."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from stepsim.base.arguments import checked
from stepsim.base.errors import PlanError, WorkloadError
from stepsim.files.models.load import is_model, read_model
from stepsim.files.reading import first_bytes, read_json
from stepsim.files.shipped import topology_file
from stepsim.files.simai.text import read_simai_text
from stepsim.files.topology.formats import read_topology
from stepsim.files.topology.typed import with_numbers
from stepsim.network.topology import NestedTopology, Topology
from stepsim.network.topology.network import MAX_TOPOLOGY_NPUS
from stepsim.workload.model.model import Model
from stepsim.workload.rows import Workload

if TYPE_CHECKING:
    from stepsim.network.measured_times import CommTable
    from stepsim.network.topology.network import TopologyLike
    from stepsim.results.report import ResultDocument


class WorkloadFormat(Struct, frozen=True, kw_only=True):
    """A form of workload files: how they begin; what reads one, given its path and `strict`."""

    begins: Callable[[bytes], bool]
    read: Callable[[Path, bool], Workload]


WORKLOAD_FORMATS = (
    WorkloadFormat(
        begins=lambda start: True, read=lambda path, strict: read_simai_text(path, strict=strict)
    ),
)
"""The first one that a file begins like reads it; SimAI's text has no mark and stands last."""

_BEGINNING = 1 << 10
"""Bytes that tell what a file is."""


@checked
def load_workload(path: str | Path, *, strict: bool = False) -> Workload:
    """Read a workload file: one of `WORKLOAD_FORMATS`, e.g. a SimAI / AICB / ASTRA-sim text.

    Raises WorkloadError naming file, line and field; with `strict` also for what is otherwise
    a warning about the file.
    """
    if Path(path).suffix == ".toml" and Path(path).exists():
        raise WorkloadError(f"{path}: TOML is no workload: a topology is given by --topology (-t)")
    start = first_bytes(Path(path), _BEGINNING)
    found = next(each for each in WORKLOAD_FORMATS if each.begins(start))
    return found.read(Path(path), strict)


def load_work(path: str | Path, *, strict: bool = False) -> Workload | Model:
    """A model by name or file, else a workload file; raises WorkloadError."""
    return read_model(path) if is_model(path) else load_workload(path, strict=strict)


@checked
def load_topology(
    topology: "TopologyLike",
    npus: int | None = None,
    *,
    numbers: Mapping[str, object] | None = None,
) -> Topology:
    """A shipped topology by name, a user's file, or a networkx graph, with room for `npus`.

    A file is TOML, ASTRA-sim's network YAML or SimAI's topology text; what a graph must have is in
    `stepsim.files.topology.graph`. A topology is taken as it is. `numbers` replace those of its
    links, e.g. `{"fabric.bandwidth": "400 Gbps"}`. Raises TopologyError naming the
    file and entry, or the node or edge, at fault, or when the topology is too small.
    """
    if npus is not None and not 1 <= npus <= MAX_TOPOLOGY_NPUS:
        raise PlanError(f"npus is {npus}: expected 1 to {MAX_TOPOLOGY_NPUS}")
    found = with_numbers(_topology(topology), numbers or {})
    return found if npus is None else found.fit(npus)


def _topology(topology: object) -> Topology:
    if isinstance(topology, str | Path):
        return read_topology(topology_file(topology))
    if isinstance(topology, NestedTopology):
        return topology
    from stepsim.files.topology.graph import topology_of_graph
    from stepsim.network.topology.listed import ListedTopology

    return topology if isinstance(topology, ListedTopology) else topology_of_graph(topology)


def load_result(path: str | Path) -> "ResultDocument":
    """The result in a JSON file.

    Raises StepsimError naming the file, the place in it, the value and what is allowed.
    """
    from stepsim.results.report import ResultDocument

    raw = read_json(Path(path), "a result of 'stepsim simulate --json'")
    return ResultDocument.from_plain(raw, str(path))


def load_comm_table(
    paths: str | Path | Sequence[str | Path], source: str = ""
) -> "tuple[CommTable, list[str]]":
    """Measured times of collectives from CSV files or nccl-tests output, outliers left out.

    `source` are texts that machine or run of a curve must hold (not: after `!`). With it comes
    what was assumed or left out. Raises CalibrationError naming file and line.
    """
    from stepsim.files.collectives.measurements import read_measurements

    several = [paths] if isinstance(paths, str | Path) else paths
    table = read_measurements([Path(each) for each in several])
    table, outliers = (table.choose(source) if source else table).without_outliers()
    return table, [*table.warnings, *(f"outlier left out: {each}" for each in outliers)]
