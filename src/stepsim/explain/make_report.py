"""A timeline analysed: how the report of a step is made, and its totals alone."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import astuple
from numpy.typing import ArrayLike

from stepsim.base.arrays import Floats, Ints, rows_of
from stepsim.base.structs import Names, Noun
from stepsim.base.units import MAX_INT64, PS_PER_S, format_size_bytes
from stepsim.core.path import path_runs
from stepsim.core.timeline import Timeline
from stepsim.explain.breakdown import path_parts, step_breakdown
from stepsim.explain.network_use import Traffic, comm_use, link_use
from stepsim.explain.report import (
    Bubble,
    CommUse,
    Finding,
    LinkUse,
    Report,
    SimulatedRanks,
    StageMemory,
    StageReport,
    by_name,
)
from stepsim.network.collectives.cost import MEASURED
from stepsim.network.prices import Prices
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import Accuracy, size_band
from stepsim.parallel.modes import Engine, Sharing
from stepsim.parallel.schedules import ActionKind
from stepsim.parallel.schedules.base import Order, peak_live
from stepsim.workload.model.evidence import Throughput, throughput
from stepsim.workload.rows import Workload

if TYPE_CHECKING:
    from stepsim.explain.memory import StepMemory
    from stepsim.workload.model.evidence import Effort


class StepTotals(Noun):
    """What sweeps and searches ask of a step; the numbers are those of its `Report`.

    Parts are empty where nobody asks for them.
    """

    workload: str
    step_time_ps: int
    pipeline_time_ps: int
    bubble_fraction: float
    breakdown_ps: dict[str, int]
    throughput: Throughput | None


def bubble_fraction(bubble_ps: ArrayLike, ranks: int, pipeline_time_ps: ArrayLike) -> Floats:
    """Time of all ranks in no action over that in the pipeline; 0 without a pipeline."""
    pipeline = np.asarray(pipeline_time_ps, np.float64)
    mean = np.asarray(bubble_ps, np.float64) / ranks
    return np.divide(mean, pipeline, out=np.zeros_like(pipeline), where=pipeline > 0)


def mean_parts(parts: Ints, counts: Ints) -> dict[str, int]:
    """Mean of rows that all have the same sum, rounded by largest remainder to keep that sum.

    The parts have their names, e.g. `exposed_tp`.
    """
    return by_name(mean_columns(parts[:, :, None], counts)[:, 0].tolist())


def mean_columns(parts: Ints, counts: Ints) -> Ints:
    """As `mean_parts` for many columns at once: (actors, parts, columns) to (parts, columns)."""
    ranks = int(counts.sum())
    if float(parts.max(initial=0)) * ranks >= MAX_INT64:
        counts = counts.astype(object)
    sums = np.tensordot(counts, parts, axes=1)
    mean: Ints = (sums // ranks).astype(np.int64)
    remainder = (sums % ranks).astype(np.int64)
    short = parts[0].sum(axis=0) - mean.sum(axis=0)
    order = np.argsort(-remainder, axis=0, kind="stable")
    rank = np.argsort(order, axis=0, kind="stable")
    mean += rank < short
    return mean


def simulated_ranks(timeline: Timeline) -> SimulatedRanks:
    """What the step of every simulated rank goes into."""
    return SimulatedRanks(
        actors=timeline.actors, breakdown=step_breakdown(timeline), bubbles=_bubbles(timeline)
    )


def make_report(
    timeline: Timeline,
    prices: Prices,
    ranks: SimulatedRanks,
    traffic: Traffic,
    *,
    workload: str,
    warnings: Names,
    reading: str = "",
    notes: Names = (),
    effort: "Effort | None" = None,
    memory: "StepMemory | None" = None,
    findings: tuple[Finding, ...] = (),
) -> Report:
    """Analyse a timeline of a workload; `warnings` are those of before the run.

    `ranks` are the timeline's `simulated_ranks`, `traffic` is what its graph puts on links at these
    prices. `effort` is what the step is worth, where a model says it, `memory` what ranks hold,
    `findings` what a look at the input found.
    """
    graph, plan, options = timeline.graph, timeline.graph.plan, timeline.graph.options
    step, pipeline = timeline.step_time_ps, timeline.pipeline_time_ps
    unslowed_ps, links = timeline.unslowed_ps, link_use(prices.topology, traffic, step)
    stages = _stages(timeline, ranks, memory)
    busiest = max(bubble.busy for bubble in ranks.bubbles)
    placed = comm_use(graph.uses, prices)
    comms = tuple(use for use, _ in placed)
    poor, unmeasured = known_accuracy(placed, prices.topology, step)
    settings = options.settings()
    if timeline.engine is Engine.LEVELS:  # also where nobody asked for it
        settings["engine"] = str(timeline.engine)
    return Report(
        workload=workload,
        topology=prices.topology.name,
        schedule=graph.schedule.label,
        p2p=graph.p2p,
        contention=options.contention,
        device=effort.device if effort else prices.topology.device,
        npus=plan.npus,
        microbatches=plan.microbatches,
        rank_order=plan.rank_order,
        ep_layout=plan.ep_layout,
        plan={str(axis): degree for axis, degree in plan.degrees().items()},
        settings=settings,
        step_time_s=step / PS_PER_S,
        step_time_ps=step,
        slowed_by_communication_ps=None if unslowed_ps is None else step - unslowed_ps,
        throughput=_throughput(effort, timeline),
        pipeline_time_s=pipeline / PS_PER_S,
        pipeline_time_ps=pipeline,
        bubble_fraction=_mean_bubble(ranks.bubbles, ranks.actors.counts, pipeline),
        zero_bubble_rate=1 - busiest / pipeline if pipeline else 0.0,
        peak_activations=max(stage.peak_activations.freed_at_w for stage in stages),
        peak_activation_bytes=None if memory is None else memory.activation_bytes,
        breakdown_ps=mean_parts(ranks.breakdown, ranks.actors.counts),
        critical_path_ps=by_name(path_parts(path_runs(timeline)).tolist()),
        stages=stages,
        links=links,
        comms=comms,
        reading=reading,
        warnings=(*_warnings(timeline, links, comms, prices), *poor, *warnings),
        notes=(*notes, *graph.notes, *unmeasured),
        findings=findings,
    )


def _warnings(
    timeline: Timeline, links: Sequence[LinkUse], comms: Sequence[CommUse], prices: Prices
) -> Iterator[str]:
    """What the user asked of the network that shows nowhere, or should show and cannot."""
    unused = [use.name for use in links if use.links and not use.used]
    if unused and len(unused) < len(links):
        yield f"no traffic crosses {', '.join(unused)}: bandwidth and latency there have no effect"
    sharing = timeline.graph.options.contention
    who = "transfers" if sharing is Sharing.NONE else "groups that do not act together"
    if sharing is Sharing.FAIR:
        if not timeline.slowed:
            yield "no transfer slows another: contention has no effect on this step"
        links = ()
    for use in links:
        if use.utilisation > 1:
            yield (
                f"link {use.busiest} would be in use {use.utilisation:.0%} of the step: {who} "
                "do not slow each other here (--contention fair), so the step time is too short"
            )
    if prices.table is not None and not any(MEASURED in use.algorithms for use in comms):
        yield "the measured times cover no communication of this step: the model prices them all"
    if prices.algorithms and not any(use.kind in prices.algorithms for use in comms):
        kinds = ", ".join(prices.algorithms)
        yield f"the step has no {kinds}: the algorithm asked for has no effect"


def make_totals(timeline: Timeline, workload: Workload, *, breakdown: bool) -> StepTotals:
    """What a report would say of the whole step, without the rest of it."""
    counts, pipeline = timeline.actors.counts, timeline.pipeline_time_ps
    return StepTotals(
        workload=workload.source,
        step_time_ps=timeline.step_time_ps,
        pipeline_time_ps=pipeline,
        bubble_fraction=_mean_bubble(_bubbles(timeline), counts, pipeline),
        breakdown_ps=mean_parts(step_breakdown(timeline), counts) if breakdown else {},
        throughput=_throughput(workload.effort, timeline),
    )


def _throughput(effort: "Effort | None", timeline: Timeline) -> Throughput | None:
    if effort is None:
        return None
    return throughput(effort, timeline.graph.plan.npus, timeline.step_time_ps / PS_PER_S)


def _mean_bubble(bubbles: Sequence[Bubble], counts: Ints, pipeline_ps: int) -> float:
    """Mean over ranks of the time in the pipeline but in no action, over pipeline time."""
    total = sum(each.total * n for each, n in rows_of(bubbles, counts))
    return float(bubble_fraction(total, int(counts.sum()), pipeline_ps))


def _bubbles(timeline: Timeline) -> tuple[Bubble, ...]:
    """The bubble of each actor."""
    whole = timeline.pipeline_time_ps
    found = np.zeros((4, len(timeline.actors)), np.int64)
    for cohort in timeline.cohorts:
        start, end = cohort.entry_times
        first, last, busy = start.min(axis=0), end.max(axis=0), (end - start).sum(axis=0)
        found[:, cohort.actors] = first, last - first - busy, whole - last, busy
    return tuple(Bubble(*row) for row in found.T.tolist())


def _stages(
    timeline: Timeline, ranks: SimulatedRanks, memory: "StepMemory | None"
) -> tuple[StageReport, ...]:
    """What is said of every stage; `memory` is what ranks hold, where that is known."""
    plan, peaks = timeline.graph.plan, peak_live(timeline.graph.schedule)
    reports = []
    for stage in range(plan.pp):
        actors = np.flatnonzero(ranks.actors.stages == stage)
        counts = ranks.actors.counts[actors]
        forward, backward = _action_means(timeline, stage)
        start, end = timeline.entry_times(stage * plan.stage_ranks)
        order = timeline.graph.schedule.columns[stage]
        steady_start, steady_end = _steady_state(order, start, end)
        held = None
        if memory:
            peak = memory.peaks[stage]
            at_ps = int(start[peak.entry])
            held = StageMemory.taken_from(peak, total_bytes=peak.total, at_ps=at_ps)
        reports.append(
            StageReport(
                stage=stage,
                first_rank=stage * plan.stage_ranks,
                last_rank=(stage + 1) * plan.stage_ranks - 1,
                steady_start_ps=steady_start,
                steady_end_ps=steady_end,
                peak_activations=peaks[stage],
                forward_ps=forward,
                backward_ps=backward,
                bubble_ps=_stage_bubble([ranks.bubbles[a] for a in actors.tolist()], counts),
                breakdown_ps=mean_parts(ranks.breakdown[actors], counts),
                memory=held,
            )
        )
    return tuple(reports)


def _stage_bubble(bubbles: Sequence[Bubble], counts: Ints) -> Bubble:
    """The mean of some actors' bubbles; an actor counts as often as it stands for ranks."""
    means = np.average([*map(astuple, bubbles)], axis=0, weights=counts).tolist()
    return Bubble(*map(round, means))


def _action_means(timeline: Timeline, stage: int) -> list[int]:
    """Mean duration of forwards and of everything else of a stage's actions, in ps."""
    forward = timeline.graph.schedule.columns[stage].runs(ActionKind.FORWARD)[:, 0]
    cohorts = [each for each in timeline.cohorts if each.tasks.program.stage == stage]
    lasts = np.hstack([end - start for start, end in (each.entry_times for each in cohorts)])
    ranks = timeline.actors.counts[np.hstack([each.actors for each in cohorts])]
    means = np.average(lasts, axis=1, weights=ranks)
    return [round(float(means[some].mean())) if some.any() else 0 for some in (forward, ~forward)]


def _steady_state(order: Order, start_ps: Ints, end_ps: Ints) -> tuple[int, int]:
    """Start of the first backward and end of the last forward of entries with these times."""
    forward = order.runs(ActionKind.FORWARD)
    others = ((order.kind >= 0) & ~forward).any(axis=1)
    first, last = start_ps[others], end_ps[forward.any(axis=1)]
    return int(first.min()) if len(first) else 0, int(last.max(initial=0))


# Communications that take less of the step are passed over.
_WORTH = 0.02
# Groups of so many times the ranks that were measured are named.
_FAR = 4


def known_accuracy(
    comms: Iterable[tuple[CommUse, int]], topology: Topology, step_time_ps: int
) -> tuple[list[str], list[str]]:
    """What a machine's library is poor at, and what it says nothing about, as sentences.

    Communications come with the nodes that they lie over, see `comm_use`; those that take less than
    2 % of the step are passed over.
    """
    accuracy, poor = topology.library.accuracy, list[str]()
    unknown: dict[str, set[str]] = defaultdict(set)
    for use, nodes in comms:
        if use.algorithms == (MEASURED,) or use.count * use.time_ps < _WORTH * step_time_ps:
            continue
        found = _stated(accuracy, use, nodes)
        if found is None or use.ranks > _FAR * found.most_ranks:
            place = "in a node" if nodes == 1 else "over several nodes"
            beyond = f" of more than {found.most_ranks} ranks" if found else ""
            unknown[f"{beyond} {place}".strip()].add(use.kind)
        elif not found.good:
            poor.append(
                f"{use.kind} of {format_size_bytes(use.size_bytes)} over {use.ranks} ranks: on "
                f"{topology.name} such times differ from measured ones by {found.mean:.0%} on "
                f"average, {found.largest:.0%} at most"
            )
    if not (accuracy and unknown):
        return poor, []
    named = "; ".join(f"{', '.join(sorted(kinds))} {at}" for at, kinds in unknown.items())
    return poor, [f"{topology.name} has no measurement of {named}: these times are extrapolated"]


def _stated(accuracy: Sequence[Accuracy], use: CommUse, nodes: int) -> Accuracy | None:
    """What is stated of a communication: of its kind, placement and size; None if nothing."""
    alike = [a for a in accuracy if a.kind == use.kind and (a.nodes > 1) == (nodes > 1)]
    band = size_band(use.size_bytes)
    return next((a for a in alike if size_band(a.first_bytes) == band), None)
