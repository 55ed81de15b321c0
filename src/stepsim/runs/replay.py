"""A measured run as work for stepsim's own task graph, p2p programs and engine.

Stage times come from the run, the order of actions from a schedule, message times from a topology,
and host time is paid before every action but weight gradients.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from stepsim.base.errors import TraceError, member
from stepsim.base.structs import Noun, replace
from stepsim.core.timeline import run_graph
from stepsim.core.write import write_graph
from stepsim.explain.make_report import make_report, simulated_ranks
from stepsim.explain.network_use import find_traffic
from stepsim.measured.run import OpKind
from stepsim.measured.summary import OperationTimes, RunSummary, of_ranks
from stepsim.network.prices import Prices
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.modes import Engine
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import Schedule
from stepsim.parallel.stages import Stages, StageWork
from stepsim.step.prepared import SimulatedStep
from stepsim.workload.axes import Phase
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Row, StepItem, Work

_ChunkWork = Mapping[OpKind, OperationTimes]


class Durations(StrEnum):
    """Which durations a replay takes: one per stage, or a mean per stage and microbatch."""

    MEDIAN = "median"
    MEAN = "mean"
    MICROBATCH = "microbatch"


def parse_durations(text: str | None) -> Durations | None:
    """The durations that a name means, None for what the run tells best; raises PlanError."""
    return None if text is None else member(Durations, text, "times")


class ReplayRuntime(Noun):
    """What a replay takes from elsewhere: host time per action, and the network for messages."""

    host_overhead_ps: int
    topology: Topology
    p2p: P2PMode | None = None


def best_durations(summary: RunSummary) -> Durations:
    """A mean per microbatch where every rank was traced, else one mean per stage.

    Means, as a pipeline pays for every slow action. What one rank alone shows of a microbatch may
    be its own.
    """
    traced = len(summary.run.ranks) == summary.degrees.npus
    return Durations.MICROBATCH if traced else Durations.MEAN


def replay(
    summary: RunSummary, runtime: ReplayRuntime, durations: Durations | None = None
) -> SimulatedStep:
    """Simulate a measured run with its own stage times and schedule.

    Without `durations` they are those that the run tells best. Raises TraceError where stages have
    no trace or the order is that of no known schedule.
    """
    schedule = _known_schedule(summary)
    chosen = durations or best_durations(summary)
    stages = _measured_stages(summary, chosen)
    return simulate_work(summary.run.source, stages, job_plan(summary), schedule, runtime)


def columns(summary: RunSummary) -> Iterator[RunSummary]:
    """The run taken apart into its pipelines: one rank of every stage in each.

    A rank's own times tell its waits better than its stage's. Pipelines with an untraced rank are
    left out.
    """
    run, degrees = summary.run, summary.degrees
    width = degrees.stage_ranks or 1
    for index in range(width):
        places = [i for i, rank in enumerate(run.ranks) if rank.rank % width == index]
        if len(places) == degrees.pp:
            yield of_ranks(summary, places)


def _known_schedule(summary: RunSummary) -> Schedule:
    """The schedule a run followed; raises TraceError where it is unknown or its chunks are."""
    if summary.schedule is None:
        raise TraceError(
            f"{summary.run.source}: its order of forwards and backwards is that of no schedule "
            "known here: expected 1f1b, gpipe, interleaved or looped-bfs"
        )
    chunks = summary.schedule.placement.chunks
    if chunks > 1 and any(len(stage.chunks) != chunks for stage in summary.stages):
        raise TraceError(
            f"{summary.run.source}: ran {summary.schedule.label}: its trace does not tell chunks "
            "apart, so it cannot be simulated"
        )
    return summary.schedule


def _measured_stages(summary: RunSummary, durations: Durations) -> Stages:
    """A run's stage times as work: one block of rows, or one per microbatch.

    Raises TraceError where stages have no trace.
    """
    run, degrees = summary.run, summary.degrees
    if len(summary.stages) < degrees.pp:
        known = ", ".join(map(str, run.stages))
        raise TraceError(
            f"{run.source}: only stage {known} of {degrees.pp} was traced: infer the others first"
        )
    works = tuple(
        StageWork(
            chunks=tuple(
                _blocks(work, durations, degrees.microbatches)
                for work in stage.chunks or (stage.work,)
            ),
            per_step=items,
        )
        for stage, items in zip(summary.stages, measured_items(summary), strict=True)
    )
    return Stages(works=works, pp_comm_bytes=degrees.message_bytes, warnings=run.warnings)


def job_plan(summary: RunSummary) -> Plan:
    """The run's plan; ranks beside the pipeline that names do not tell apart count as dp."""
    degrees = summary.degrees
    width = degrees.stage_ranks or 1
    tp = degrees.tp or 1
    dp = width // tp
    ep = degrees.ep if degrees.ep and not width % degrees.ep else 1
    return Plan(
        tp=tp,
        dp=dp,
        pp=degrees.pp,
        ep=ep,
        microbatches=degrees.microbatches,
        expert_tp=1 if dp % ep else None,
    )


def simulate_work(
    source: str, stages: Stages, plan: Plan, schedule: Schedule, runtime: ReplayRuntime
) -> SimulatedStep:
    """Run stages in a schedule's order, level by level: replays are fitted, varied and compared."""
    options = StepOptions(
        p2p=runtime.p2p,
        host_overhead_ps=runtime.host_overhead_ps,
    )
    graph = write_graph(stages, schedule, plan, options)
    prices = Prices(plan=plan, topology=runtime.topology.fit(plan.npus), comms=graph.comms)
    timeline = run_graph(graph, prices, engine=Engine.LEVELS)
    ranks, traffic = simulated_ranks(timeline), find_traffic(graph, prices)
    report = make_report(
        timeline,
        prices,
        ranks,
        traffic,
        workload=source,
        warnings=stages.warnings,
    )
    # host time is the run's own: nobody set it
    report = replace(report, settings={})
    return SimulatedStep(
        report=report, timeline=timeline, prices=prices, ranks=ranks, traffic=traffic
    )


def measured_items(summary: RunSummary) -> list[tuple[StepItem, ...]]:
    """Operations after the pipeline, stage by stage, as long as they were measured."""
    return [
        tuple(
            StepItem(name=op.label, phase=Phase.FORWARD, work=Work(compute_ps=op.duration_ps))
            for op in summary.step_ops
            if op.stage == stage
        )
        for stage in range(summary.degrees.pp)
    ]


def _blocks(
    work: _ChunkWork, durations: Durations, microbatches: int
) -> tuple[tuple[Row, ...], ...]:
    count = microbatches if durations is Durations.MICROBATCH else 1
    return tuple(tuple(_rows(work, durations, j)) for j in range(count))


def _rows(work: _ChunkWork, durations: Durations, microbatch: int) -> Sequence[Row]:
    """get_batch, the layers and the loss of a chunk, as far as it has them."""
    if durations is Durations.MICROBATCH:
        times = {kind: each.by_microbatch_ps[microbatch] for kind, each in work.items()}
    else:
        times = {kind: getattr(each, f"{durations}_ps") for kind, each in work.items()}
    backward_ps, weight_ps = times[OpKind.BACKWARD], times.get(OpKind.WEIGHT_GRAD, 0)
    if weight_ps and durations is not Durations.MICROBATCH:  # some backwards may be whole
        apart = work[OpKind.WEIGHT_GRAD].samples / work[OpKind.BACKWARD].samples
        backward_ps -= round(weight_ps * (1 - apart))
    rows = [work_row("layers", times[OpKind.FORWARD], backward_ps + weight_ps, weight_ps)]
    if OpKind.GET_BATCH in times:
        rows.insert(0, work_row("get_batch", times[OpKind.GET_BATCH], 0))
    if OpKind.LOSS in times:
        rows.append(work_row("loss", times[OpKind.LOSS], 0))
    return rows


def work_row(name: str, forward_ps: int, backward_ps: int, weight_ps: int = 0) -> Row:
    """A row that only computes; `weight_ps` of the backward is its weight gradient."""
    return Row(
        name=name,
        forward=Work(compute_ps=max(forward_ps, 0)),
        input_grad=Work(compute_ps=max(backward_ps - weight_ps, 0)),
        weight_grad=Work(compute_ps=max(weight_ps, 0)),
    )
