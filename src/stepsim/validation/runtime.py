"""What a measured run is replayed with."""

from collections.abc import Mapping

from msgspec import Struct

from stepsim.base.errors import TraceError
from stepsim.base.structs import replace
from stepsim.measured.calibration.calibration import Calibration, LinkFit, message_topology
from stepsim.measured.calibration.runs import calibrate_traces
from stepsim.measured.clocks import NodePlacement
from stepsim.measured.summary import RunSummary
from stepsim.validation.hidden import infer_hidden
from stepsim.validation.replay import ReplayRuntime


class _MeasuredRuntime(Struct, frozen=True, kw_only=True):
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


def with_runtime(summary: RunSummary, calibration: Calibration | None = None) -> _MeasuredRuntime:
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
        return _MeasuredRuntime(
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
    return _MeasuredRuntime(
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
