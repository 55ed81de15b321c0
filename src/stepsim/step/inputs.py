"""What a step is made from, by its options: workload, plan, schedule, prices.

A workload is taken as it is; a model becomes one. Schedules that are searched for need to know how
long the actions of the job take.
"""

from collections.abc import Mapping
from functools import partial
from math import lcm, prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.base.errors import CalibrationError, PlanError, ScheduleError
from stepsim.base.option import Panel
from stepsim.base.structs import Names, Noun, replace
from stepsim.network.collectives import parse_algorithms
from stepsim.network.prices import Known, Prices
from stepsim.network.topology import Topology
from stepsim.network.topology.network import MAX_NPUS
from stepsim.options import OPTIONS, StepOptions
from stepsim.parallel.modes import EpLayout
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.ranks import ParallelPlan
from stepsim.parallel.schedules import (
    SCHEDULE_OPTIONS,
    ActionKind,
    Placement,
    Schedule,
    build,
    needs_times,
    options_of,
)
from stepsim.parallel.schedules.check import check_schedule
from stepsim.parallel.schedules.order import ACTION_KINDS, Order
from stepsim.parallel.stages import Stages, split_stages
from stepsim.workload.expert_load import ExpertCounts, ExpertLaw, ExpertSkew
from stepsim.workload.model.model import Model
from stepsim.workload.rows import CommOp, Group, ParallelAxis, Workload
from stepsim.workload.scaling import (
    enlarge_microbatches,
    fill_placeholders,
    load_experts,
    load_experts_unevenly,
    placeholder_rows,
    rank_loads,
    scale_compute,
    skewed_loads,
)

if TYPE_CHECKING:
    from stepsim.core.flat import Flat
    from stepsim.workload.model.architecture import Architecture
    from stepsim.workload.model.device import Device
    from stepsim.workload.model.framework import Framework
    from stepsim.workload.model.interconnect import Interconnect
    from stepsim.workload.model.plan import ModelPlan


def scaled_workload(workload: Workload, options: StepOptions) -> tuple[Workload, list[str]]:
    """The workload with the microbatches, devices and expert load asked for; what is assumed."""
    if options.fill_placeholders:
        workload = fill_placeholders(workload)
    bare, rows = placeholder_rows(workload)
    note = f"{bare} of {rows} rows with compute have only placeholders (1 or 1000 ns)"
    workload = enlarge_microbatches(workload, options.samples)
    if options.compute_scale:
        workload = scale_compute(workload, options.compute_scale)
    ep, load = workload.made_for.ep, options.expert_load
    if isinstance(load, ExpertLaw | ExpertCounts):
        count = options.microbatches or workload.made_for.microbatches or _MOST_LOADS
        seed = load.seed if isinstance(load, ExpertLaw) else 0
        workload = load_experts_unevenly(workload, load, seed=seed, microbatches=count)
    elif isinstance(load, ExpertSkew):
        workload = load_experts(workload, skewed_loads(load.over_mean, ep))
    elif load is not None:
        workload = load_experts(workload, rank_loads(load, ep))
    return workload, [note] if bare else []


def choose_plan(
    workload: Workload, topology: Topology, options: StepOptions
) -> tuple[ParallelPlan, list[str]]:
    """Degrees and microbatches, and what was assumed; raises PlanError."""
    plan, assumed = plan_job(
        workload,
        topology,
        npus=options.npus,
        pp=options.pp,
        microbatches=options.microbatches,
        global_batch=options.global_batch,
        microbatch_size=options.samples,
        ep_layout=options.ep_layout,
    )
    if options.rank_order is not None:
        plan = replace(plan, rank_order=options.rank_order)
    if options.ep_layout is not None and plan.ep == 1:
        assumed = [*assumed, f"ep_layout {options.ep_layout} has no effect: ep is 1"]
    check_held_degrees(plan, workload)
    return plan, assumed


def choose_schedule(
    workload: Workload, topology: Topology, plan: ParallelPlan, options: StepOptions
) -> Schedule:
    """The schedule asked for; one that is searched for knows the times of the stages.

    Raises ScheduleError when it cannot run the job.
    """
    chosen = _schedule_options(options)
    if isinstance(options.schedule, Schedule):
        return _as_given(options.schedule, plan, options, chosen)
    if needs_times(options.schedule):
        alone = split_stages(workload, plan, Placement(ranks=plan.pp), options.stage_rows)
        searched = search_times(alone, plan, options, topology)
        took_ps = partial(_took_ps, alone, plan, options, topology)
        chosen = {"took_ps": took_ps, **searched, **chosen}
    return build(
        options.schedule,
        ranks=plan.pp,
        microbatches=plan.microbatches,
        chunks=options.chunks,
        **chosen,
    )


def for_schedule(options: StepOptions, schedule: str | Schedule) -> StepOptions:
    """The options with another schedule, without those that only others have.

    1F1B has one chunk where nobody says more.
    """
    known = options_of(schedule) if isinstance(schedule, str) else []
    cleared: dict[str, Any] = dict.fromkeys(_schedule_options(options).keys() - set(known))
    if options.chunks in (None, 1):
        cleared["chunks"] = 1 if schedule == OPTIONS["schedule"].default else None
    return replace(options, schedule=schedule, **cleared)


def _schedule_options(options: StepOptions) -> dict[str, object]:
    """Options that are arguments of some schedules, where they were set."""
    return {
        option.name: getattr(options, option.field)
        for option in options.changed()
        if option.name in SCHEDULE_OPTIONS
    }


def _as_given(
    schedule: Schedule, plan: ParallelPlan, options: StepOptions, chosen: Mapping[str, object]
) -> Schedule:
    """A ready schedule, if it can run and fits the job."""
    if options.chunks is not None or chosen:
        asked = ", ".join([*(["chunks"] if options.chunks is not None else []), *chosen])
        raise ScheduleError(f"{schedule.name}: this schedule sets {asked} itself: leave it out")
    check_schedule(schedule)
    found = schedule.placement.ranks, schedule.microbatches
    if found != (plan.pp, plan.microbatches):
        raise ScheduleError(
            f"{schedule.name}: holds {found[0]} ranks and {found[1]} microbatches: "
            f"the job has pp {plan.pp} and {plan.microbatches} (--pp, --microbatches)"
        )
    return schedule


def prices_of(
    plan: ParallelPlan,
    comms: tuple[CommOp, ...],
    topology: Topology,
    options: StepOptions,
    known: Known | None = None,
) -> Prices:
    """What communications cost with the options of a step; `known` is as `Prices` takes it."""
    return Prices(
        plan=plan,
        topology=topology,
        comms=comms,
        algorithms=parse_algorithms(options.algorithm),
        table=options.comm_table,
        sharing=options.contention,
        known={} if known is None else known,
    )


_KINDS = {
    "forward_ps": ActionKind.FORWARD,
    "input_grad_ps": ActionKind.INPUT_GRAD,
    "weight_grad_ps": ActionKind.WEIGHT_GRAD,
}


def search_times(
    stages: Stages, plan: ParallelPlan, options: StepOptions, topology: Topology
) -> dict[str, object]:
    """Options of `auto_zb`: mean time per rank of F, I and W, and the time of a message, in ps.

    Collectives inside an action count. A stage's ranks wait for the slowest of them, so it
    represents them where they differ.
    """
    from stepsim.core.write import SegmentKind

    eager = replace(options, p2p=P2PMode.EAGER)
    flat = _flat(stages, _one_by_one(plan), plan, eager, topology)
    sums = {name: [0] * plan.pp for name in _KINDS}
    hop = 0
    for laid in flat.programs:
        took, program = laid.duration_ps, laid.program
        entry = program.entry[laid.segment]
        sends = (entry < 0) & (program.kind[laid.segment] == SegmentKind.SEND)
        hop = max(hop, int(took[sends].max(initial=0)))
        for name, kind in _KINDS.items():
            is_kind = flat.graph.schedule.columns[program.stage].runs(kind)[:, 0]
            spent = int(took[(entry >= 0) & is_kind[entry]].sum())
            sums[name][program.stage] = max(sums[name][program.stage], spent)
    means = {name: [each // plan.microbatches for each in times] for name, times in sums.items()}
    return {**means, "hop_ps": hop}


def _flat(
    stages: Stages, schedule: Schedule, plan: ParallelPlan, options: StepOptions, topology: Topology
) -> "Flat":
    """The tasks of a step with a schedule, whose transfers slow nobody."""
    from stepsim.core.flat import flatten
    from stepsim.core.write import write_graph
    from stepsim.network.fold import fold

    graph = write_graph(stages, schedule, plan, options)
    prices = prices_of(plan, graph.comms, topology, options)
    slow = options.slow.factors(plan.npus) if options.slow else None
    return flatten(graph, fold(prices, graph.uses, slow), prices, slow)


def _took_ps(
    stages: Stages, plan: ParallelPlan, options: StepOptions, topology: Topology, schedule: Schedule
) -> int:
    """What a step takes with a schedule, in ps."""
    from stepsim.core.ends import ends

    flat = _flat(stages, schedule, plan, options, topology)
    return int(ends(flat.waits, flat.duration_ps).max(initial=0))


def _one_by_one(plan: ParallelPlan) -> Schedule:
    """Every rank runs F, I and W of one microbatch after the other: a list, not a plan to run."""
    kinds = np.array([ACTION_KINDS.index(kind) for kind in _KINDS.values()])
    microbatch, place = np.divmod(np.arange(plan.microbatches * len(kinds)), len(kinds))
    orders = tuple(Order.of_actions(kinds[place], rank, 0, microbatch) for rank in range(plan.pp))
    return Schedule(
        name="one-by-one",
        placement=Placement(ranks=plan.pp),
        microbatches=plan.microbatches,
        orders=orders,
    )


WorkSource = Workload | Model
"""What a step is made of: a workload, or a model that becomes one under a plan on a device."""

_USUAL: Mapping[str, bool | int] = MappingProxyType(
    {
        **dict.fromkeys(("dp_overlap", "tp_comm_overlap", "cuda_graph"), False),
        **dict.fromkeys(("expert_overlap", "shared_overlap", "delay_wgrad"), False),
        "reshard": True,
        "microbatch_size": 1,
    }
)
"""What a workload file's step has of options that are not asked for."""
_MODEL_ALONE = tuple(name for name, option in OPTIONS.items() if option.panel is Panel.MODEL)


class BuiltModel(Noun):
    """What a workload was made of: a model, its plan, what it runs on.

    `interconnect` is the network in two levels, None where it has no dimensions.
    """

    architecture: "Architecture"
    plan: "ModelPlan"
    device: "Device"
    framework: "Framework"
    interconnect: "Interconnect | None"


class MadeWork(Noun):
    """A workload and the options it is run with; `sized` say its size.

    `built` is what the workload of a model was made of, `notes` are what was assumed.
    """

    workload: Workload
    options: StepOptions
    sized: StepOptions
    built: BuiltModel | None = None
    notes: Names = ()


def make_work(source: WorkSource, topology: Topology, options: StepOptions) -> MadeWork:
    """The workload of a source under the options asked for; raises PlanError.

    A workload is taken as it is, and refuses what only a model can be asked. The errors of a model
    begin with its name.
    """
    if isinstance(source, Workload):
        # what a file's step has anyway is as good as not asked for
        usual = {name: None for name, value in _USUAL.items() if getattr(options, name) == value}
        options = replace(options, **usual)
        if options.device is not None:
            raise PlanError(
                f"device is for models only: the compute times of {source.source} are those of an "
                "unknown device and have no operators: expected compute_scale, which scales them"
            )
        why = "it is for models only, and this is a workload file"
        options.refuse(_MODEL_ALONE, why)
        if options.calibration is not None:
            raise CalibrationError(
                "this calibration is for models on a known device, and this is a workload file"
            )
        return MadeWork(workload=source, options=options, sized=options)
    from stepsim.step.models import work_of_model

    return work_of_model(source, topology, options)


def held_degrees(
    source: WorkSource, topology: Topology, options: StepOptions, *, least_pp: int = 1
) -> tuple[dict[str, Any], list[str]]:
    """Options of the plan that a model's step takes where none of its degrees is given, and a note.

    Steps that are compared are held to one plan by it, which has `least_pp` stages or more where
    such a plan fits. Raises PlanError.
    """
    if isinstance(source, Workload):
        return {}, []
    from stepsim.step.models import degrees_of_model

    return degrees_of_model(source, topology, options, least_pp)


_MAX_MICROBATCHES = 1 << 20
_MOST_LOADS = 64
"""Microbatches that expert loads are drawn for where nobody says how many there are."""


def plan_job(
    workload: Workload,
    topology: Topology,
    *,
    npus: int | None = None,
    pp: int | None = None,
    microbatches: int | None = None,
    global_batch: int | None = None,
    microbatch_size: int = 1,
    ep_layout: EpLayout | None = None,
) -> tuple[ParallelPlan, list[str]]:
    """Plan of a job, and the assumptions made.

    `npus` scales dp and keeps the microbatches of a pipeline (weak scaling) unless `global_batch`,
    in samples of which a microbatch holds `microbatch_size`, is given. `pp` re-splits the layers.
    Raises PlanError when the numbers contradict each other.
    """
    _check_range("npus", npus, MAX_NPUS)
    _check_range("pp", pp, MAX_NPUS)
    _check_range("microbatches", microbatches, _MAX_MICROBATCHES)
    _check_range("global_batch", global_batch, MAX_NPUS * _MAX_MICROBATCHES)
    _check_range("microbatch_size", microbatch_size, _MAX_MICROBATCHES)
    warnings: list[str] = []
    stages = pp or workload.made_for.pp
    degrees = workload.made_for.degrees() | {ParallelAxis.PP: stages}
    expert_tp = _expert_tp(workload, ep_layout)
    size, origin = _job_size(workload, topology, npus, degrees, expert_tp, warnings)
    if size > MAX_NPUS:
        raise PlanError(f"{size} NPUs ({origin}): expected at most {MAX_NPUS}")
    degrees[ParallelAxis.TP] = workload.made_for.tp
    if _has_dimension_groups(workload):
        degrees[ParallelAxis.TP] = min(topology.node_size, size)
    split = {axis: degree for axis, degree in degrees.items() if axis.splits}
    replica = prod(split.values())
    if size % replica:
        named = {a: n for a, n in split.items() if n > 1 or a in (ParallelAxis.TP, ParallelAxis.PP)}
        shown = f"{'*'.join(named)} = {'*'.join(map(str, named.values()))} = {replica}"
        raise PlanError(f"{size} NPUs ({origin}): not divisible by {shown}")
    chosen: dict[str, Any] = {str(axis): degree for axis, degree in degrees.items()}
    plan = ParallelPlan(**chosen, dp=size // replica, expert_tp=expert_tp)
    count = microbatches or workload.made_for.microbatches or len(workload.microbatches)
    if global_batch is not None:
        if microbatches is not None:
            raise PlanError("global_batch and microbatches contradict each other: give one of them")
        count = _microbatches(plan, global_batch, microbatch_size)
    return replace(plan, microbatches=count), warnings


def check_held_degrees(plan: ParallelPlan, workload: Workload) -> None:
    """Raise PlanError when a plan changes a degree that the file's numbers already hold.

    Those are all but dp and pp: a job may have any number of replicas, and of stages.
    """
    if _has_dimension_groups(workload):
        return
    asked = plan.degrees()
    for axis, own in workload.made_for.degrees().items():
        if axis is not ParallelAxis.PP and own != asked[axis]:
            raise PlanError(
                f"{axis} is {asked[axis]}: {workload.source} was made for {axis} {own}, and its "
                "compute times and sizes hold for that alone"
            )


def _expert_tp(workload: Workload, ep_layout: EpLayout | None) -> int | None:
    """Ranks that share an expert in the layout asked for, else in the file's; None: as many as tp.

    Raises PlanError where a file was made for another layout.
    """
    own = workload.made_for.expert_tp
    if ep_layout is None:
        return own
    asked = 1 if ep_layout is EpLayout.FOLDED else None
    if own not in (None, asked or workload.made_for.tp):
        raise PlanError(
            f"ep_layout is {ep_layout}: in {workload.source} {own} ranks share an expert, and its "
            "compute times and sizes hold for that alone"
        )
    return asked


def _has_dimension_groups(workload: Workload) -> bool:
    """Whether the policy speaks of topology dimensions instead of tp and dp."""
    return any(op.group in (Group.INNER, Group.OUTER) for op in workload.comms())


def _check_range(name: str, value: int | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        raise PlanError(f"{name} is {value}: expected 1 to {most}")


def _job_size(
    workload: Workload,
    topology: Topology,
    npus: int | None,
    degrees: Mapping[ParallelAxis, int],
    expert_tp: int | None,
    warnings: list[str],
) -> tuple[int, str]:
    """NPUs of the job and where the number comes from."""
    if npus is not None:
        return npus, "npus asked for"
    if workload.made_for.npus is not None:
        return workload.made_for.npus, "all_gpus in the file"
    size, pp = topology.default_npus, degrees[ParallelAxis.PP]
    split = prod(degree for axis, degree in degrees.items() if axis.splits)
    tp, shards = degrees[ParallelAxis.TP], degrees.get(ParallelAxis.FSDP, 1)
    unit = pp * lcm(split // pp, (expert_tp or tp) * degrees[ParallelAxis.EP], tp * shards)
    if not topology.grows:
        return size, f"the size of topology {topology.name}"
    rounded = -(-size // unit) * unit
    warnings.append(f"the file gives no all_gpus: stepsim assumes {rounded} NPUs (--npus sets it)")
    return rounded, "assumed"


def _microbatches(plan: ParallelPlan, global_batch: int, microbatch_size: int) -> int:
    """Microbatches of a pipeline so that all pipelines together process the global batch."""
    per_round = plan.dp * microbatch_size
    if global_batch % per_round:
        raise PlanError(
            f"global_batch is {global_batch}: expected a multiple of dp * microbatch_size = "
            f"{plan.dp} * {microbatch_size} = {per_round}"
        )
    return global_batch // per_round
