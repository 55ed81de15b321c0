"""What the command line prints: reports as tables of at most 80 columns."""

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stepsim.base.errors import printable
from stepsim.base.units import format_bandwidth, format_size_bytes, format_time_ps
from stepsim.files.simai.formula import SimaiTotals
from stepsim.network.one_collective import Probe, ProbeRow
from stepsim.network.topology.inspection import TopologyInspection
from stepsim.parallel.inspection import Inspection, Traffic
from stepsim.parallel.modes import RankOrder
from stepsim.parallel.ranks import ParallelPlan
from stepsim.results.report import Report, StageReport
from stepsim.show.doctor import Check
from stepsim.step.compare import ComparedSchedules, exposed_p2p_ps
from stepsim.workload.axes import Part, PartKind

if TYPE_CHECKING:
    from stepsim.explore.sweep.table import Extreme, StoredAxis, SweepTable

_STAGES_SHOWN = 16
_COMMS_SHOWN = 8
_VALUES_SHOWN = 16
_SCENARIOS_SHOWN = 3
_STAGE_TIMES = ("forward", "backward")
_STAGE_PARTS = {
    "compute": (Part.COMPUTE,),
    "exposed": tuple(part for part in Part if part.kind is PartKind.EXPOSED),
    "skew": (Part.SKEW,),
    "host": (Part.HOST,),
    "head": (Part.HEAD,),
    "inner": (Part.INNER,),
    "tail": (Part.TAIL,),
}
_SIMAI_PARTS = ("compute", "dp", "dp_ep", "tp", "ep", "bubble", "total")


class PlainConsole(Console):
    """A console that prints text as it is: no markup, no emoji, no control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """A text to print, its lines cleaned of what a terminal would obey."""
        return super().render_str("\n".join(map(printable, text.split("\n"))), **options)


def print_report(console: Console, report: Report) -> None:
    """Step time, breakdown, stages and links of a run."""
    plan = report.plan
    piped = plan.pp > 1
    pipeline = format_time_ps(report.pipeline_time_ps)
    rates = f"bubble {report.bubble_fraction:.1%}, zero-bubble rate {report.zero_bubble_rate:.1%}"
    settings = "; ".join(f"{name} {text}" for name, text in report.settings.items())
    lines = [
        ("workload", report.workload),
        ("topology", report.topology),
        ("job", _job(plan)),
        ("simulated", f"{len(report.counts)} of {plan.npus} ranks, the others behave alike"),
        ("schedule", f"{report.schedule}, {report.p2p} p2p" if piped else report.schedule),
        *([("settings", settings)] if settings else []),
        ("step time", format_time_ps(report.step_time_ps)),
        ("pipeline", f"{pipeline}, {rates}" if piped else pipeline),
    ]
    print_pairs(console, lines)
    _print_breakdown(console, report)
    if piped:
        _print_stages(console, report.stages)
    _print_comms(console, report)
    _print_links(console, report)


def print_inspection(console: Console, seen: Inspection) -> None:
    """What was understood of a workload."""
    least, most = min(seen.layers_per_stage), max(seen.layers_per_stage)
    blocks = len(seen.workload.microbatches)
    bare, rows = seen.placeholders
    print_pairs(
        console,
        [
            ("workload", seen.workload.source),
            *seen.workload.described,
            ("job", _job(seen.plan)),
            ("blocks", f"{blocks} microbatch block{'s' * (blocks != 1)} in the file"),
            ("layers", f"{least if least == most else f'{least} to {most}'} per stage"),
            ("to next stage", f"{format_size_bytes(seen.pp_comm_bytes)} per microbatch"),
            ("placeholders", f"{bare} of {rows} rows with compute are 1 or 1000 ns throughout"),
        ],
    )
    compute = table_of("compute of stage 0", "forward", "input grad", "weight grad", "per step")
    compute.add_row(*map(format_time_ps, (*seen.compute_ps.values(), seen.step_compute_ps)))
    print_table(console, compute)
    _print_traffic(console, "collectives of stage 0, per microbatch", seen.traffic)
    _print_traffic(console, "collectives of stage 0, per step", seen.step_traffic)


def print_topology(console: Console, seen: TopologyInspection) -> None:
    """What a topology is made of."""
    grows = ", as many as a job needs" if seen.grows else ""
    diameter = f"{seen.diameter_hops} links, {format_time_ps(seen.diameter_ps)}"
    bisection = format_bandwidth(seen.bisection_bandwidth)
    print_pairs(
        console,
        [
            ("topology", seen.name),
            ("NPUs", f"{seen.npus}{grows}; {seen.nodes} nodes of {seen.node_size}"),
            ("injection", f"{format_bandwidth(seen.injection_bandwidth)} per NPU, one way"),
            ("bisection", f"{bisection} one way: {seen.bisection_method}"),
            ("diameter", f"{diameter} with the software at its ends"),
            ("per collective", format_time_ps(seen.launch_latency_ps)),
            ("algorithms", ", ".join(seen.algorithms) or "all"),
        ],
    )
    columns = ("links", "count", "bandwidth", "for payload", "latency", "endpoint")
    table = table_of("links, one direction each", *columns)
    for row in seen.links:
        table.add_row(
            row.link.name,
            str(row.count),
            format_bandwidth(row.link.bandwidth),
            f"{row.link.efficiency:.1%}",
            format_time_ps(row.link.latency_ps),
            format_time_ps(row.link.endpoint_latency_ps),
        )
    print_table(console, table)
    console.print(f"\nsource: {seen.source}")


def print_comparison(console: Console, comparison: ComparedSchedules) -> None:
    """A row per schedule, then why the others cannot run."""
    report = comparison.valid[0][1].report
    print_pairs(
        console,
        [("workload", report.workload), ("topology", report.topology), ("job", _job(report.plan))],
    )
    columns = ("schedule", "p2p", "step", "speed-up", "bubble", "exposed p2p", "activations")
    table = table_of("schedules; activations: peak of any rank, in chunks or bytes", *columns)
    for name, result in comparison.valid:
        table.add_row(
            name,
            result.report.p2p,
            format_time_ps(result.report.step_time_ps),
            f"{comparison.speedup(result):.3f}",
            f"{result.report.bubble_fraction:.1%}",
            format_time_ps(exposed_p2p_ps(result)),
            _activations(result.report),
        )
    print_table(console, table)
    for candidate in comparison.candidates:
        if candidate.refusal:
            console.print(f"\n{candidate.name} cannot run: {candidate.refusal}", soft_wrap=True)


def _activations(report: Report) -> str:
    """Peak of any rank, in bytes where a chunk's size is known."""
    if report.peak_activation_bytes is None:
        return str(report.peak_activations)
    return format_size_bytes(report.peak_activation_bytes)


def print_simai(console: Console, totals: SimaiTotals) -> None:
    """SimAI-Analytical's closed formula, in microseconds, one column per part."""
    parts = {part: getattr(totals, part) for part in _SIMAI_PARTS}
    table = table_of("SimAI's closed formula (us)", *parts)
    table.add_row(*(f"{value:.0f}" for value in parts.values()))
    print_table(console, table)
    console.print(totals.note, soft_wrap=True)


def print_sweep(console: Console, table: "SweepTable") -> None:
    """The fastest and slowest scenarios, each axis by its values, why the first failure failed."""
    progress = table.progress
    counted = f"{progress.done} of {progress.size}, {progress.failed} failed"
    workload, topology = table.source
    print_pairs(
        console,
        [
            ("workload", workload),
            ("topology", topology),
            ("scenarios", counted),
            ("database", table.store.path.name),
        ],
    )
    for title, slowest in (("fastest", False), ("slowest", True)):
        _print_extremes(console, title, table, table.extremes(_SCENARIOS_SHOWN, slowest=slowest))
    for axis in table.axes:
        _print_axis(console, table, axis)
    failure = table.first_error()
    if failure:
        scenario, why = failure
        console.print(f"\nfirst failure, {_settings(table, scenario)}: {why}", soft_wrap=True)


def _print_extremes(
    console: Console, title: str, table: "SweepTable", found: "Sequence[Extreme]"
) -> None:
    shown = table_of(title, "step", "scenario")
    shown.columns[0].justify, shown.columns[1].justify = "right", "left"
    shown.columns[1].no_wrap = False
    for each in found:
        shown.add_row(format_time_ps(each.step_time_ps), _settings(table, each.scenario))
    if found:
        print_table(console, shown)


def _print_axis(console: Console, table: "SweepTable", axis: "StoredAxis") -> None:
    """Least and mean step time over all other axes; the middle of a long axis is left out."""
    shown = table_of(f"{axis.name}, over all other axes", axis.name, "fastest", "mean", "failed")
    rows = table.by_value(axis)
    half = _VALUES_SHOWN // 2
    for i, row in enumerate(rows):
        if len(rows) > _VALUES_SHOWN and half <= i < len(rows) - half:
            if i == half:
                shown.add_row("...")
            continue
        times = (row.least_ps, row.mean_ps)
        least, mean = ("-" if time is None else format_time_ps(time) for time in times)
        shown.add_row(axis.texts[row.position], least, mean, str(row.failed))
    print_table(console, shown)


def _settings(table: "SweepTable", scenario: int) -> str:
    return ", ".join(f"{name}={text}" for name, text in table.settings(scenario).items())


def _job(plan: ParallelPlan) -> str:
    return (
        f"{plan.npus} NPUs: tp {plan.tp}, dp {plan.dp}, pp {plan.pp}, ep {plan.ep}; "
        f"microbatches {plan.microbatches}{_order(plan)}"
    )


def _order(plan: ParallelPlan) -> str:
    """How ranks lie on the NPUs, where it is not the usual way."""
    return "" if plan.rank_order is RankOrder.TP_DP_PP else f"; {plan.rank_order}"


def print_pairs(console: Console, pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        console.print(f"{name:<{width}}  {value}", soft_wrap=True)


def _print_breakdown(console: Console, report: Report) -> None:
    """Mean over ranks of each part that is not zero."""
    table = table_of("where the step goes, mean over ranks", "part", "time", "share")
    for part, time in report.mean_breakdown_ps().items():
        if time:
            share = f"{time / report.step_time_ps:.1%}"
            table.add_row(part.label, format_time_ps(time), share)
    print_table(console, table)


def _print_stages(console: Console, stages: Sequence[StageReport]) -> None:
    """Mean over the ranks of each stage; the middle of a long pipeline is left out.

    All columns but the first three add up to the step.
    """
    shown = {name: parts for name, parts in _STAGE_PARTS.items() if _any(stages, parts)}
    table = table_of(
        "stages: one forward, one backward; where the step goes", "stage", *_STAGE_TIMES, *shown
    )
    half = _STAGES_SHOWN // 2
    for stage in stages:
        if len(stages) > _STAGES_SHOWN and half <= stage.stage < len(stages) - half:
            if stage.stage == half:
                table.add_row("...")
            continue
        sums = (sum(stage.breakdown_ps[part] for part in parts) for parts in shown.values())
        times = (stage.forward_ps, stage.backward_ps, *sums)
        table.add_row(str(stage.stage), *map(format_time_ps, times))
    print_table(console, table)


def _any(stages: Sequence[StageReport], parts: Sequence[Part]) -> bool:
    """Whether a column has anything to show; compute and bubbles are always there."""
    always = parts[0] not in (Part.SKEW, Part.HOST)
    return always or any(stage.breakdown_ps[part] for stage in stages for part in parts)


def _print_comms(console: Console, report: Report) -> None:
    """The communications that take most time."""
    columns = ("communications", "ranks", "bytes", "count", "alone", "algorithm")
    table = table_of("communications, of the rank that does most; alone: time of one", *columns)
    for use in report.comms[:_COMMS_SHOWN]:
        table.add_row(
            f"{use.group} {use.kind}",
            str(use.ranks),
            format_size_bytes(use.size_bytes),
            str(use.count),
            format_time_ps(use.time_ps),
            " or ".join(use.algorithms),
        )
    if table.row_count:
        print_table(console, table)


def _print_links(console: Console, report: Report) -> None:
    """Classes of links that carry anything, by their busiest link, and whose bytes it carries."""
    columns = ("links", "used", "bandwidth", "busiest", "its bytes", "in use", "mostly")
    table = table_of("links, one direction each", *columns)
    for link in report.links:
        if link.total_bytes:
            table.add_row(
                link.name,
                f"{link.used}/{link.links}",
                format_bandwidth(link.bandwidth),
                link.busiest,
                format_size_bytes(link.busiest_bytes),
                f"{link.utilisation:.1%}",
                f"{link.users[0].group} {link.users[0].size_bytes / link.busiest_bytes:.0%}",
            )
    if table.row_count:
        print_table(console, table)


def _print_traffic(console: Console, title: str, traffic: Sequence[Traffic]) -> None:
    table = table_of(title, "group", "collective", "count", "bytes")
    for each in traffic:
        size = format_size_bytes(each.size_bytes)
        table.add_row(each.group, each.kind, str(each.count), size)
    if traffic:
        print_table(console, table)


def table_of(title: str, *columns: str) -> Table:
    """An unframed table: first column left, numbers right. Its title is printed above it."""
    table = Table(title=title, box=None, pad_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=True)
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table below its title."""
    console.print(f"\n{table.title}", style="bold", soft_wrap=True)
    table.title = None
    console.print(table)


def print_checks(console: Console, checks: Sequence[Check]) -> None:
    """What `stepsim doctor` found, a line each."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        console.print(f"{check.status:<6}  {check.name:<{width}}  {check.detail}", soft_wrap=True)


def print_probes(console: Console, probes: Sequence[Probe]) -> None:
    """A collective by size and algorithm; the links that the largest size uses."""
    first = probes[0]
    ranks = f"{first.kind} over {len(first.ranks)} ranks"
    print_pairs(console, [("topology", first.topology), ("collective", ranks)])
    if len(first.rows) == 1:
        _print_rows(
            console, "bandwidths in GB/s, as nccl-tests counts", [probe.rows[0] for probe in probes]
        )
    else:
        for probe in probes:
            _print_rows(
                console, f"{probe.algorithm}; bandwidths in GB/s, as nccl-tests counts", probe.rows
            )
    shown = {probe.rows[-1].algorithm: probe.rows[-1] for probe in probes}
    for row in shown.values():
        _print_link_traffic(console, row)


def _print_rows(console: Console, title: str, rows: Sequence[ProbeRow]) -> None:
    table = table_of(title, "size", "time", "algbw", "busbw", "algorithm")
    table.columns[-1].justify = "left"
    table.columns[-1].no_wrap, table.columns[-1].overflow = False, "fold"
    for row in rows:
        table.add_row(
            format_size_bytes(row.size_bytes),
            format_time_ps(row.time_ps),
            *(f"{rate / 1e9:.2f}" if isfinite(rate) else "-" for rate in (row.algbw, row.busbw)),
            row.algorithm,
        )
    print_table(console, table)


def _print_link_traffic(console: Console, row: ProbeRow) -> None:
    columns = ("links", "used", "all bytes", "busiest", "its bytes", "in use")
    table = table_of(f"links of {row.algorithm}, {format_size_bytes(row.size_bytes)}", *columns)
    for link in row.links:
        table.add_row(
            link.name,
            str(link.links),
            format_size_bytes(link.total_bytes),
            link.busiest,
            format_size_bytes(link.busiest_bytes),
            f"{link.utilisation:.1%}",
        )
    if row.links:
        print_table(console, table)
