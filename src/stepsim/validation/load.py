"""Opening measured runs, and simulating them as any workload."""

from dataclasses import dataclass, replace
from os.path import exists, isdir
from pathlib import Path

from stepsim.api import Result
from stepsim.calibration.document import Calibration, LinkFit, message_topology
from stepsim.calibration.runs import calibrate
from stepsim.errors import TraceError
from stepsim.formats.megatron_trace import is_megatron_trace, read_megatron_trace
from stepsim.formats.optimus_log import is_optimus_log
from stepsim.measured.clocks import Placement
from stepsim.measured.summary import RunSummary, summarise
from stepsim.validation.hidden import infer_hidden
from stepsim.validation.replay import Durations, Runtime, replay


@dataclass(frozen=True, kw_only=True)
class MeasuredRuntime:
    """A run with all its stages, what it is replayed with, and what was assumed."""

    summary: RunSummary
    runtime: Runtime
    links: tuple[LinkFit, ...]
    notes: tuple[str, ...]


def is_measured(path: Path) -> bool:
    """Whether a path is a measured run: a folder, a trace of a rank, or a log of leaf modules."""
    return is_megatron_trace(path) or is_optimus_log(path)


def load_run(path: str | Path, *, node_size: int | None = None) -> RunSummary:
    """Read and analyse a measured run; raises TraceError naming file, line and field."""
    path = Path(path)
    if not exists(path):
        raise TraceError(f"{path}: no such file or folder")
    if not isdir(path) and is_optimus_log(path):
        raise TraceError(
            f"{path}: a log of leaf modules holds no stage times: expected a trace (stepsim "
            "inspect and simulate read such logs)"
        )
    return summarise(read_megatron_trace(path), node_size=node_size)


def runtime_of(calibration: Calibration, summary: RunSummary) -> tuple[Runtime, list[str]]:
    """What a replay takes from a calibration, and what it lacks."""
    host = calibration.host_overhead
    notes = [] if host else ["the calibration has no host_overhead: taken as 0"]
    if not calibration.point_to_point:
        notes.append("the calibration has no point_to_point: messages are free")
    network = message_topology(calibration.point_to_point, summary.clocks.node_size)
    return Runtime(host_overhead_ps=round(host.value) if host else 0, topology=network), notes


def simulate_options(calibration: Calibration) -> dict[str, str]:
    """Arguments of `stepsim.simulate` for workload files that a calibration sets: host time.

    Its collective tables are `calibration.collectives`; message times belong to the topology.
    """
    host = calibration.host_overhead
    return {"host_overhead": f"{round(host.value)} ps"} if host else {}


def with_runtime(summary: RunSummary, calibration: Calibration | None = None) -> MeasuredRuntime:
    """A run ready to be replayed: stages inferred where one rank is all there is.

    Host and message times are those of the calibration, else the run's own. Stages inferred from
    waits keep those they were told apart from: others would count the difference twice. Raises
    TraceError where stages are missing and cannot be inferred.
    """
    if len(summary.stages) == summary.run.degrees.pp:
        own = calibration or calibrate([summary])
        runtime, notes = runtime_of(own, summary)
        if calibration is None:
            notes.append("host and message times are the run's own (--calibration replaces them)")
        return MeasuredRuntime(
            summary=summary, runtime=runtime, links=own.point_to_point, notes=tuple(notes)
        )
    found = infer_hidden(summary)
    runtime = Runtime(
        host_overhead_ps=found.host_overhead_ps,
        topology=message_topology(found.links, summary.clocks.node_size),
    )
    notes = list(found.notes())
    if calibration:
        notes.append("host and message times are those in the waits, not the calibration's")
    return MeasuredRuntime(
        summary=found.summary, runtime=runtime, links=found.links, notes=tuple(notes)
    )


def simulate_run(
    path: str | Path,
    *,
    calibration: Calibration | None = None,
    durations: Durations = Durations.MEDIAN,
    node_size: int | None = None,
) -> Result:
    """Replay a measured run as it was: its stage times, its schedule, blocking messages."""
    ready = with_runtime(load_run(path, node_size=node_size), calibration)
    result = replay(ready.summary, ready.runtime, durations)
    report = replace(result.report, warnings=(*result.report.warnings, *ready.notes))
    return replace(result, report=report)


def with_bandwidth(
    links: tuple[LinkFit, ...], changed: dict[Placement, float]
) -> tuple[LinkFit, ...]:
    """Links with other bandwidths in bytes/s; a placement not calibrated takes the other's latency.

    Raises TraceError without any link.
    """
    if not links:
        raise TraceError("message times are not known: expected a run whose messages can be timed")
    found = {link.placement: link for link in links}
    for placement, bandwidth in changed.items():
        link = found.get(placement, links[0])
        found[placement] = replace(link, placement=placement, bandwidth=bandwidth)
    return tuple(found.values())
