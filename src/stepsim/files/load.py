"""Workloads, topologies and measured collectives by file or by name."""

from collections.abc import Sequence
from pathlib import Path

from stepsim.base.errors import PlanError
from stepsim.files.shipped import topology_file
from stepsim.files.simai.text import read_simai_text
from stepsim.files.topology.files import read_topology
from stepsim.network.measured_times import CommTable
from stepsim.network.topology import Topology
from stepsim.workload.rows import Workload


def load_workload(path: str | Path, *, strict: bool = False) -> Workload:
    """Read a SimAI / AICB / ASTRA-sim workload file.

    Raises WorkloadError naming file, line and field; with `strict` also for what is otherwise
    a warning about the file.
    """
    return read_simai_text(Path(path), strict=strict)


def load_topology(name_or_path: str | Path, npus: int | None = None) -> Topology:
    """A shipped topology by name, or a user's TOML file, with room for `npus`.

    Raises TopologyError naming the file and entry at fault, or when the topology is too small.
    """
    topology = read_topology(topology_file(name_or_path))
    if npus is not None and npus < 1:
        raise PlanError(f"npus is {npus}: expected at least 1")
    return topology if npus is None else topology.fit(npus)


def load_comm_table(
    table: CommTable | str | Path | Sequence[str | Path],
    notes: list[str] | None = None,
    source: str = "",
) -> CommTable:
    """Measured times of collectives from CSV files or nccl-tests output, outliers left out.

    `source` are texts that machine or run of a curve must hold (not: after `!`). What was assumed
    or left out is added to `notes`. Raises CalibrationError naming file and line.
    """
    from stepsim.files.collectives.measurements import read_measurements

    notes = notes if notes is not None else []
    if not isinstance(table, CommTable):
        several = [table] if isinstance(table, str | Path) else table
        table = read_measurements([Path(each) for each in several])
        table, outliers = (table.choose(source) if source else table).without_outliers()
        notes += [*table.warnings, *(f"outlier left out: {each}" for each in outliers)]
    return table
