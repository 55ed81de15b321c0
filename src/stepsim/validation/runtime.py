"""What a measured run is replayed with, and what a calibration sets for workload files."""

from collections.abc import Mapping
from dataclasses import replace

from stepsim.base.errors import TraceError
from stepsim.base.records import dataclass
from stepsim.base.units import format_size_bytes
from stepsim.measured.calibration.calibration import Calibration, LinkFit, message_topology
from stepsim.measured.calibration.runs import calibrate_traces
from stepsim.measured.clocks import NodePlacement
from stepsim.measured.summary import RunSummary
from stepsim.options import StepOptions
from stepsim.validation.hidden import infer_hidden
from stepsim.validation.replay import ReplayRuntime


@dataclass(frozen=True, kw_only=True)
class MeasuredRuntime:
    """A run with all its stages, what it is replayed with, and what was assumed."""

    summary: RunSummary
    runtime: ReplayRuntime
    links: tuple[LinkFit, ...]
    notes: tuple[str, ...]


def runtime_of(calibration: Calibration, summary: RunSummary) -> tuple[ReplayRuntime, list[str]]:
    """What a replay takes from a calibration, and what it lacks."""
    host = calibration.host_overhead
    notes = [] if host else ["the calibration has no host_overhead: taken as 0"]
    if not calibration.point_to_point:
        notes.append("the calibration has no point_to_point: messages are free")
    network = message_topology(calibration.point_to_point, summary.clocks.node_size)
    return ReplayRuntime(host_overhead_ps=round(host.value) if host else 0, topology=network), notes


def with_calibration(options: StepOptions, calibration: Calibration) -> StepOptions:
    """The options for a workload file with what a calibration knows, where nothing else was asked.

    Host time, and times of collectives and messages.
    """
    host, table = calibration.host_overhead, calibration.comm_table()
    if host and not options.host_overhead_ps:
        options = replace(options, host_overhead_ps=round(host.value))
    if table and options.comm_table is None:
        options = replace(options, comm_table=table)
    return options


_OF_RUNS = (
    "gradient_launch",
    "gradient_scaling",
    "optimizer",
    "leaf_overhead",
    "expert_imbalance",
    "layer_times",
)
"""Fields of a calibration that measured runs alone make use of."""


def workload_notes(calibration: Calibration) -> list[str]:
    """What to know of a calibration that is used for a workload file."""
    unused = [name for name in _OF_RUNS if getattr(calibration, name)]
    notes = [f"of the calibration not used: {', '.join(unused)}"] if unused else []
    return notes + [
        f"messages {link.placement} were measured at {format_size_bytes(link.sizes[0])} only: "
        "other sizes take what their calibrated line says"
        for link in calibration.point_to_point
        if len(link.sizes) == 1
    ]


def with_runtime(summary: RunSummary, calibration: Calibration | None = None) -> MeasuredRuntime:
    """A run ready to be replayed: stages inferred where one rank is all there is.

    Host and message times are those of the calibration, else the run's own. Stages inferred from
    waits keep those they were told apart from: others would count the difference twice. Raises
    TraceError where stages are missing and cannot be inferred.
    """
    if len(summary.stages) == summary.run.degrees.pp:
        own = calibration or calibrate_traces([summary])
        runtime, notes = runtime_of(own, summary)
        if calibration is None:
            notes.append("host and message times are the run's own (--calibration replaces them)")
        return MeasuredRuntime(
            summary=summary, runtime=runtime, links=own.point_to_point, notes=tuple(notes)
        )
    found = infer_hidden(summary)
    runtime = ReplayRuntime(
        host_overhead_ps=found.host_overhead_ps,
        topology=message_topology(found.links, summary.clocks.node_size),
    )
    notes = list(found.notes())
    if calibration:
        notes.append("host and message times are those in the waits, not the calibration's")
    return MeasuredRuntime(
        summary=found.summary, runtime=runtime, links=found.links, notes=tuple(notes)
    )


def with_bandwidth(
    links: tuple[LinkFit, ...], changed: Mapping[NodePlacement, float]
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
