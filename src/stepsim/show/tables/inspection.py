"""What was understood of a workload and of a topology."""

from collections.abc import Iterator, Sequence

from stepsim.base.units import format_bandwidth, format_size_bytes, format_time_ps
from stepsim.network.topology.inspection import TopologyInspection
from stepsim.parallel.inspection import Inspection, Traffic
from stepsim.show.tables.model import BANDWIDTH, COUNT, SHARE, SIZE, TEXT, TIME, Shown, Table
from stepsim.show.tables.step import job_words


def workload_shown(seen: Inspection) -> Iterator[Shown]:
    """What the file says of itself, the job, and what stage 0 computes and communicates."""
    plan = seen.plan
    least, most = min(seen.layers_per_stage), max(seen.layers_per_stage)
    blocks = len(seen.workload.microbatches)
    bare, rows = seen.placeholders
    degrees = {"tp": plan.tp, "dp": plan.dp, "pp": plan.pp, "ep": plan.ep}
    yield (
        ("workload", seen.workload.source),
        *seen.workload.described,
        ("job", job_words(plan.npus, degrees, plan.microbatches, plan.rank_order)),
        ("blocks", f"{blocks} microbatch block{'s' * (blocks != 1)} in the file"),
        ("layers", f"{least if least == most else f'{least} to {most}'} per stage"),
        ("to next stage", f"{format_size_bytes(seen.pp_comm_bytes)} per microbatch"),
        ("placeholders", f"{bare} of {rows} rows with compute are 1 or 1000 ns throughout"),
    )
    names = ("forward", "input grad", "weight grad", "per step")
    yield Table(
        caption="compute of stage 0",
        columns=dict.fromkeys(names, TIME),
        rows=((*seen.compute_ps.values(), seen.step_compute_ps),),
    )
    yield _traffic("collectives of stage 0, per microbatch", seen.traffic)
    yield _traffic("collectives of stage 0, per step", seen.step_traffic)


def _traffic(caption: str, traffic: Sequence[Traffic]) -> Table:
    return Table(
        caption=caption,
        columns={"group": TEXT, "collective": TEXT, "count": COUNT, "bytes": SIZE},
        rows=tuple((each.group, each.kind, each.count, each.size_bytes) for each in traffic),
    )


def topology_shown(seen: TopologyInspection) -> Iterator[Shown]:
    """What a topology is made of."""
    grows = ", as many as a job needs" if seen.grows else ""
    diameter = f"{seen.diameter_hops} links, {format_time_ps(seen.diameter_ps)}"
    bisection = format_bandwidth(seen.bisection_bandwidth)
    yield (
        ("topology", seen.name),
        ("NPUs", f"{seen.npus}{grows}; {seen.nodes} nodes of {seen.node_size}"),
        ("injection", f"{format_bandwidth(seen.injection_bandwidth)} per NPU, one way"),
        ("bisection", f"{bisection} one way: {seen.bisection_method}"),
        ("diameter", f"{diameter} with the software at its ends"),
        ("per collective", format_time_ps(seen.launch_latency_ps)),
        ("algorithms", ", ".join(seen.algorithms) or "all"),
    )
    yield Table(
        caption="links, one direction each",
        columns={
            "links": TEXT,
            "count": COUNT,
            "bandwidth": BANDWIDTH,
            "for payload": SHARE,
            "latency": TIME,
            "endpoint": TIME,
        },
        rows=tuple(
            (
                row.link.name,
                row.count,
                row.link.bandwidth,
                row.link.efficiency,
                row.link.latency_ps,
                row.link.endpoint_latency_ps,
            )
            for row in seen.links
        ),
    )
    yield f"source: {seen.source}"
