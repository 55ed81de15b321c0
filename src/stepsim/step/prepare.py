"""From what a user says to a step that is ready to run, and running it."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError, ScheduleError
from stepsim.base.units import parse_size_bytes, parse_time_ps
from stepsim.engine import run as engine
from stepsim.engine.contention import Contention, Sharing
from stepsim.engine.fold import every_rank, fold
from stepsim.engine.lay_out import flatten
from stepsim.engine.prices import Prices
from stepsim.engine.shared_links import colour_sites, find_sites
from stepsim.engine.timeline import Timeline, make_timeline
from stepsim.files.load import load_comm_table, load_topology, load_workload
from stepsim.files.shipped import DEFAULT_TOPOLOGY
from stepsim.graph.actions import HostTimes
from stepsim.graph.build import TaskGraph, build_taskgraph
from stepsim.graph.programs import GraphOptions
from stepsim.network.collectives import parse_algorithms
from stepsim.network.flights import Fabric
from stepsim.network.measured_times import CommTable
from stepsim.network.topology import Topology
from stepsim.parallel.job_size import check_plan, plan_job
from stepsim.parallel.p2p import P2PMode, P2POptions, default_mode
from stepsim.parallel.ranks import ParallelPlan, RankOrder
from stepsim.parallel.schedules import Placement, Schedule, build
from stepsim.parallel.stages import StageRows, Stages, split_stages
from stepsim.step.action_times import search_times
from stepsim.workload.experts import load_experts, rank_loads, skewed_loads
from stepsim.workload.rows import Workload
from stepsim.workload.scaling import ComputeScale, placeholder_rows, scale_compute, slow_ranks

Choice = TypeVar("Choice", bound=StrEnum)

_DP_BUCKET = "160 MB"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A step that is ready to run: its graph, what its communications cost, and how it is run.

    `workload` has its compute as the graph has it; `slow` are factors on the ranks' compute times.
    """

    workload: Workload
    schedule: Schedule
    options: GraphOptions
    graph: TaskGraph
    prices: Prices
    slow: Floats | None
    sharing: Sharing
    fold_ranks: bool
    activation_bytes: int | None
    progress: engine.Progress | None
    warnings: tuple[str, ...]


def prepare(
    workload: Workload | str | Path,
    topology: Topology | str | Path | None = None,
    *,
    plan: ParallelPlan | None = None,
    schedule: str = "1f1b",
    microbatches: int | None = None,
    chunks: int | None = None,
    p2p: P2PMode | str | None = None,
    npus: int | None = None,
    pp: int | None = None,
    rank_order: RankOrder | str | None = None,
    global_batch: int | None = None,
    microbatch_size: int = 1,
    compute_scale: ComputeScale | None = None,
    stage_rows: StageRows | str = StageRows.ENDS,
    tp_overlap: bool = True,
    dp_overlap: bool = False,
    dp_bucket: str = _DP_BUCKET,
    p2p_options: P2POptions | None = None,
    schedule_options: Mapping[str, object] | None = None,
    host_overhead: str = "0 ns",
    get_batch: str = "0 ns",
    loss_time: str = "0 ns",
    fused_factor: float = 1.0,
    activation_size: str | None = None,
    contention: Sharing | str = Sharing.NONE,
    algorithm: str | Sequence[str] = (),
    comm_table: CommTable | str | Path | None = None,
    expert_load: Sequence[float] | float | None = None,
    slow: str | None = None,
    fold_ranks: bool = True,
    progress: engine.Progress | None = None,
) -> Job:
    """One training step, ready to run; `simulate` takes the same arguments and runs it.

    Without `topology` it is hgx-h100. `plan` replaces what the file, `npus`, `pp`, `microbatches`
    and `global_batch` would give; `rank_order`, e.g. `tp-pp-dp`, says which axis runs fastest
    through the NPUs. `schedule` is a name such as `interleaved:4` or a .csv file in torch's
    notation; `p2p` defaults to what its runtime does. `host_overhead` is paid before each action,
    `get_batch` before the first stage's forwards, `loss_time` after the last's. `dp_overlap`
    reduces gradients while the last backward goes on, in buckets of at least `dp_bucket` (Megatron-
    LM's default of 40 million fp32 gradients). With `contention="fair"` transfers that overlap
    share links. `algorithm`, e.g. `all_reduce=ring`, replaces the fastest for a kind, or for all
    that it can carry out; times of `comm_table` replace the model's where it has them.
    `expert_load` are the tokens of each expert, or the load of the busiest expert rank over the
    mean; `slow`, e.g. `12:1.3,40-47:1.1`, are factors on the compute times of ranks.
    `activation_size`, e.g. `2 GiB`, is what a chunk keeps of one microbatch. Raises the errors of
    `stepsim.base.errors` when the input is wrong or contradictory.
    """
    workload = workload if isinstance(workload, Workload) else load_workload(workload)
    workload = scale_compute(workload, compute_scale or ComputeScale())
    workload = _load_experts(workload, expert_load)
    _log.info("workload %s: %d layers", workload.source, workload.layers)
    notes = [*workload.warnings, *_assumed_inputs(workload, topology)]
    topology = _resolve(topology)
    if plan is None:
        plan, assumed = plan_job(
            workload,
            topology,
            npus=npus,
            pp=pp,
            microbatches=microbatches,
            global_batch=global_batch,
            microbatch_size=microbatch_size,
        )
        notes += assumed
    if rank_order is not None:
        plan = replace(plan, rank_order=_choice(RankOrder, "rank_order", rank_order))
    check_plan(plan, workload)
    topology = topology.fit(plan.npus)
    _log.info("topology %s: %d NPUs", topology.name, topology.npus)
    if dp_bucket != _DP_BUCKET and not dp_overlap:
        notes.append(
            f"dp_bucket {dp_bucket} has no effect: gradients are not overlapped (dp_overlap)"
        )
    options = GraphOptions(
        p2p_options=p2p_options or P2POptions(),
        tp_overlap=tp_overlap,
        dp_bucket_bytes=parse_size_bytes(dp_bucket) if dp_overlap else None,
        host=HostTimes(
            overhead_ps=parse_time_ps(host_overhead),
            get_batch_ps=parse_time_ps(get_batch),
            loss_ps=parse_time_ps(loss_time),
        ),
        fused_factor=fused_factor,
    )
    model = _Model(
        workload=workload,
        topology=topology,
        plan=plan,
        rows=_choice(StageRows, "stage_rows", stage_rows),
    )
    order = _order(model, schedule, chunks, schedule_options or {}, options)
    options = replace(options, p2p=_choice(P2PMode, "p2p", p2p or default_mode(order)))
    stages = model.stages(order.placement)
    _log.info("schedule %s: %d stages", order.label, plan.pp)
    graph = build_taskgraph(stages, order, plan, options)
    _log.info("task graph: %d communications", len(graph.comms))
    prices = Prices(
        plan=plan,
        topology=topology,
        comms=graph.comms,
        algorithms=parse_algorithms([algorithm] if isinstance(algorithm, str) else algorithm),
        table=load_comm_table(comm_table, notes) if comm_table is not None else None,
    )
    return Job(
        workload=workload,
        schedule=order,
        options=options,
        graph=graph,
        prices=prices,
        slow=slow_ranks(slow, plan.npus) if slow else None,
        sharing=_choice(Sharing, "contention", contention),
        fold_ranks=fold_ranks,
        activation_bytes=parse_size_bytes(activation_size) if activation_size else None,
        progress=progress,
        warnings=(*notes, *stages.warnings, *graph.warnings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """What is divided among the stages, and where it runs."""

    workload: Workload
    topology: Topology
    plan: ParallelPlan
    rows: StageRows

    def stages(self, placement: Placement) -> Stages:
        return split_stages(self.workload, self.plan, placement, self.rows)


def _order(
    model: _Model,
    name: str,
    chunks: int | None,
    chosen: Mapping[str, object],
    options: GraphOptions,
) -> Schedule:
    """The schedule; one that is searched for knows the times of the stages."""
    if name == "auto-zb":
        alone = model.stages(Placement(ranks=model.plan.pp))
        searched = search_times(alone, model.plan, options, model.topology)
        chosen = {"objective": "makespan", **searched, **chosen}
    return _schedule(name, model.plan, chunks, chosen)


def run_graph(
    graph: TaskGraph,
    prices: Prices,
    *,
    fold_ranks: bool = True,
    slow: Floats | None = None,
    sharing: Sharing = Sharing.NONE,
    progress: engine.Progress | None = None,
) -> Timeline:
    """Run a task graph: every rank, or one of each class of ranks that behave alike.

    `slow` are factors on the ranks' compute times.
    """
    sites = find_sites(graph, prices) if sharing is Sharing.FAIR else None
    actors = fold(graph, prices, slow, sites) if fold_ranks else every_rank(graph, prices)
    contention = None
    if sites is not None:
        colours = colour_sites(sites, actors.actor_of)
        contention = Contention(graph=graph, sites=sites, colours=colours)
    _log.info("%d of %d ranks are simulated", len(actors), graph.plan.npus)
    execution = flatten(graph, actors, prices, slow, contention)
    fabric = Fabric(capacity=contention.capacity) if contention else None
    _log.info("%d tasks laid out", sum(len(flat.duration_ps) for flat in execution.flats))
    starts, ends = engine.run(execution, actors, graph.plan, fabric, progress)
    _log.info("all tasks ended")
    return make_timeline(graph, actors, execution.flats, starts, ends)


def _schedule(
    name: str, plan: ParallelPlan, chunks: int | None, options: Mapping[str, object]
) -> Schedule:
    """The schedule of a name, or of a file."""
    if not name.endswith(".csv"):
        ranks, count = plan.pp, plan.microbatches
        return build(name, ranks=ranks, microbatches=count, chunks=chunks, **options)
    from stepsim.files.schedule_csv import read_schedule

    if chunks is not None or options:
        asked = ", ".join([*(["chunks"] if chunks is not None else []), *options])
        raise ScheduleError(f"{name}: a schedule file sets {asked} itself: leave it out")
    schedule = read_schedule(Path(name))
    found = schedule.placement.ranks, schedule.microbatches
    if found != (plan.pp, plan.microbatches):
        raise ScheduleError(
            f"{name}: holds {found[0]} ranks and {found[1]} microbatches: "
            f"the job has pp {plan.pp} and {plan.microbatches} (--pp, --microbatches)"
        )
    return schedule


def _load_experts(workload: Workload, load: Sequence[float] | float | None) -> Workload:
    if load is None:
        return workload
    ep = workload.made_for.ep
    loads = skewed_loads(load, ep) if isinstance(load, int | float) else rank_loads(load, ep)
    return load_experts(workload, loads)


def _resolve(topology: Topology | str | Path | None) -> Topology:
    return load_topology(DEFAULT_TOPOLOGY if topology is None else topology)


def _assumed_inputs(workload: Workload, topology: Topology | str | Path | None) -> Iterator[str]:
    """What the user did not say and what the file's numbers do not hold."""
    if topology is None:
        yield f"no topology given: {DEFAULT_TOPOLOGY} assumed (--topology sets it)"
    bare, rows = placeholder_rows(workload)
    if bare:
        yield f"{bare} of {rows} rows with compute have only placeholders (1 or 1000 ns)"


def _choice(kind: type[Choice], name: str, value: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        raise PlanError(f"{name} is {value!r}: expected one of {', '.join(kind)}") from None
