"""Measured runs of every form, tables of measured steps and benchmarks: from paths to nouns.

A run is a folder of traces, the trace of one rank, or a log of leaf modules.
"""

from collections.abc import Callable, Iterable, Mapping
from os.path import exists, isfile
from pathlib import Path

from stepsim.base.errors import TraceError, member, within
from stepsim.base.fields import checked
from stepsim.base.structs import File, replace
from stepsim.base.units import format_time_ps, parse_bandwidth
from stepsim.files.step_table import MeasuredStep, read_step_table
from stepsim.files.traces.forms import MEGATRON, format_of, is_measured, is_profile, read_profile
from stepsim.measured.calibration.calibration import MESSAGE_LINKS, Calibration
from stepsim.measured.clocks import NodePlacement
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile_run import run_of_profile
from stepsim.measured.ready import ready_run
from stepsim.measured.step_log import LeafLog
from stepsim.measured.summary import RunSummary, summarise
from stepsim.measured.work import RecordedWork
from stepsim.network.topology.network import MAX_NPUS

# What names of tables of measured steps end in.
_TABLES = (".csv", ".toml")
Run = RunSummary | LeafLog | File
"""A measured run: read already, or its path."""


@checked
def load_run(path: File, *, node_size: int | None = None) -> RunSummary | LeafLog:
    """Read a measured run: traces, analysed, or a log of leaf modules.

    `node_size` is the ranks per node where clocks do not tell it, 8 without it. Raises TraceError
    naming file, line and field.
    """
    path = Path(path)
    within("node_size", node_size, 1, MAX_NPUS, TraceError)
    if not exists(path):
        raise TraceError(f"{path}: no such file or folder")
    if is_profile(path):
        return run_of_profile(read_profile(path), node_size=node_size)
    run = (format_of(path) or MEGATRON).read(path)
    return run if isinstance(run, LeafLog) else summarise(run, node_size=node_size)


@checked
def load_profile(path: File, *, progress: Callable[[int, int], None] | None = None) -> Profile:
    """Read a profile, or make one of the traces of all ranks of a run.

    `progress` hears of the files of a folder that are read, and of all. Raises TraceError naming
    file and place.
    """
    path = Path(path)
    if not exists(path):
        raise TraceError(f"{path}: no such file or folder")
    if is_profile(path) or not is_measured(path):
        return read_profile(path, progress)
    found = load_trace(path)
    if found.degrees.npus is None or found.missing:
        traced = ", ".join(str(rank.rank) for rank in found.run.ranks[:8])
        raise TraceError(
            f"{path}: only rank {traced} was traced: expected all ranks (stepsim what-if takes one)"
        )
    return found.run


def load_trace(path: File, *, node_size: int | None = None) -> RunSummary:
    """As `load_run`, of ranks with stage times; raises TraceError for a log of leaf modules."""
    run = load_run(path, node_size=node_size)
    if isinstance(run, LeafLog):
        raise TraceError(
            f"{path}: a log of leaf modules holds no stage times: expected a trace (inspect, "
            "simulate, calibrate and validate read such logs)"
        )
    return run


def recorded_work(path: Path, calibration: Calibration | None = None) -> RecordedWork:
    """A run as what a step is made of, with the host and message times of a calibration.

    Raises TraceError for runs that do not tell what their stages take.
    """
    run = load_trace(path)
    work = ready_run(run, calibration).work()
    return replace(work, said=(*work.said, f"measured: {format_time_ps(run.step_ps)} per step"))


def load_measurements(
    given: Iterable[Run], *, node_size: int | None = None
) -> tuple[list[RunSummary | LeafLog], list[MeasuredStep]]:
    """Measured runs, and the steps of the tables (.csv, .toml) among the paths.

    A table that begins like a measured run is one. A node has `node_size` ranks. Raises TraceError
    for what cannot be read.
    """
    runs: list[RunSummary | LeafLog] = []
    steps: list[MeasuredStep] = []
    for each in given:
        if not isinstance(each, File):
            runs.append(each)
            continue
        path = Path(each)
        if isfile(path) and path.suffix in _TABLES and not is_measured(path):
            steps += read_step_table(path)
        else:
            runs.append(load_run(path, node_size=node_size))
    return runs, steps


def message_bandwidths(texts: Mapping[str, str]) -> dict[str, float]:
    """Numbers of a run's network in bytes/s, e.g. of `{"inter_node": "400Gbps"}`.

    Raises PlanError.
    """
    links = {MESSAGE_LINKS[member(NodePlacement, each, "bandwidth")]: texts[each] for each in texts}
    return {f"{link}.bandwidth": parse_bandwidth(text) for link, text in links.items()}
