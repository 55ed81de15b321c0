"""What was understood of a workload and of a topology."""

from collections.abc import Iterator

from stepsim.base.fields import unbounded
from stepsim.base.units import format_bandwidth, format_size_bytes, format_time_ps
from stepsim.network.topology.inspection import TopologyNumbers
from stepsim.network.topology.library import Library
from stepsim.parallel.inspection import Inspection
from stepsim.show.tables.library import library_shown
from stepsim.show.tables.model import (
    BANDWIDTH,
    COUNT,
    SHARE,
    SIZE,
    TEXT,
    TIME,
    Shown,
    Table,
    table_of,
)
from stepsim.show.words import size_words

_TRAFFIC = {
    "group": TEXT.of("group"),
    "collective": TEXT.of("kind"),
    "count": COUNT.of("count"),
    "bytes": SIZE.of("size_bytes"),
}
_LINKS = {
    "links": TEXT.of("name"),
    "count": COUNT.of("count"),
    "bandwidth": BANDWIDTH.of(lambda link: unbounded(link.bandwidth)),
    "for payload": SHARE.of("efficiency"),
    "latency": TIME.of("latency_ps"),
    "endpoint": TIME.of("endpoint_latency_ps"),
}


def workload_shown(seen: Inspection) -> Iterator[Shown]:
    """What the file says of itself, the job, and what stage 0 computes and communicates."""
    plan = seen.plan
    least, most = min(seen.layers_per_stage), max(seen.layers_per_stage)
    blocks = len(seen.workload.microbatches)
    bare, rows = seen.placeholders
    degrees = {str(axis): size for axis, size in plan.degrees().items()}
    yield (
        *((("reading", seen.workload.reading),) if seen.workload.reading else ()),
        ("workload", seen.workload.source),
        *seen.workload.described,
        ("job", size_words(plan.npus, degrees, plan.microbatches, plan.rank_order, plan.ep_layout)),
        ("blocks", f"{blocks} microbatch block{'s' * (blocks != 1)} in the file"),
        ("layers", f"{least if least == most else f'{least} to {most}'} per stage"),
        ("to next stage", f"{format_size_bytes(seen.pp_comm_bytes)} per microbatch"),
        ("placeholders", f"{bare} of {rows} rows with compute are 1 or 1000 ns throughout"),
    )
    times = (*seen.compute_ps.values(), seen.step_compute_ps)
    names = ("forward", "input grad", "weight grad", "per step")
    yield Table(caption="compute of stage 0", columns=dict.fromkeys(names, TIME), rows=(times,))
    yield table_of("collectives of stage 0, per microbatch", seen.traffic, _TRAFFIC)
    yield table_of("collectives of stage 0, per step", seen.step_traffic, _TRAFFIC)


def topology_shown(seen: TopologyNumbers, library: Library) -> Iterator[Shown]:
    """What a topology is made of, its protocols last."""
    grows = ", as many as a job needs" if seen.grows else ""
    diameter = f"{seen.diameter_hops} links, {format_time_ps(seen.diameter_ps)}"
    injection = format_bandwidth(unbounded(seen.injection_bandwidth))
    bisection = format_bandwidth(unbounded(seen.bisection_bandwidth))
    yield (
        ("topology", seen.name),
        ("NPUs", f"{seen.npus}{grows}; {seen.nodes} nodes of {seen.node_size}"),
        *([("device", seen.device)] if seen.device else []),
        ("injection", f"{injection} per NPU, one way"),
        ("bisection", f"{bisection} one way: {seen.bisection_method}"),
        ("diameter", f"{diameter} with the software at its ends"),
        ("per collective", format_time_ps(seen.launch_latency_ps)),
        ("algorithms", ", ".join(seen.algorithms) or "all"),
    )
    yield table_of("links, one direction each", seen.links, _LINKS)
    yield from library_shown(library)
    yield f"source: {seen.source}"
