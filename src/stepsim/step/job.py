"""The job of a step: its workload, its plan, its schedule, and what its communications cost.

A workload is taken as it is; a model becomes one under its plan on a device, a recorded run in an
order. What nobody said is decided here and in `model_plan`. Schedules that are searched for need to
know how long the actions of the job take.
"""

from collections.abc import Mapping
from math import lcm, prod
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from stepsim.base.axes import EpLayout, Group, ParallelAxis, RankOrder
from stepsim.base.errors import CalibrationError, PlanError, ScheduleError, within
from stepsim.base.option import Panel
from stepsim.base.structs import Names, Noun, Values, replace
from stepsim.files.asked import StepInputs
from stepsim.network.collectives import parse_algorithms
from stepsim.network.prices import Known, Prices
from stepsim.network.topology import Topology
from stepsim.network.topology.network import MAX_NPUS
from stepsim.options import OPTIONS, StepOptions
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import (
    SCHEDULE_OPTIONS,
    ActionKind,
    Placement,
    Schedule,
    build,
    needs_times,
    options_of,
)
from stepsim.parallel.schedules.base import of_slots
from stepsim.parallel.schedules.check import check_schedule
from stepsim.parallel.stages import split_stages
from stepsim.workload.model.model import Model
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Workload
from stepsim.workload.scaling import (
    enlarge_microbatches,
    fill_placeholders,
    load_experts,
    placeholder_rows,
    scale_compute,
)

if TYPE_CHECKING:
    from stepsim.core.flat import Flat
    from stepsim.core.write import TaskGraph
    from stepsim.workload.model.step_time import StepModel

# What a workload file's step has of options that are not asked for.
_USUAL = {
    **dict.fromkeys(("dp_overlap", "tp_comm_overlap", "cuda_graph"), False),
    **dict.fromkeys(("expert_overlap", "shared_overlap", "delay_wgrad"), False),
    "reshard": True,
    "microbatch_size": 1,
}
_MODEL_ALONE = tuple(name for name, option in OPTIONS.items() if option.panel is Panel.MODEL)
# Largest values of counts.
_MOST = {
    **dict.fromkeys(("tp", "cp", "pp", "ep", "expert_tp", "npus", "shard_ranks"), MAX_NPUS),
    **dict.fromkeys(("microbatch_size", "microbatches"), 1 << 20),
    **dict.fromkeys(("sequence", "packed"), 1 << 30),
    "global_batch": MAX_NPUS << 20,
    "loss_chunks": 1 << 20,
}


class Job(Noun):
    """What a step runs of what is `asked`: a workload under a plan, with options.

    `given` is the workload as it was made or read, `workload` has its compute as the options scale
    it. `options` are those asked for with what was decided, `setup` is what a model runs on, None
    where the workload was read from a file. `notes` are what was assumed.
    """

    asked: StepInputs
    given: Workload
    workload: Workload
    plan: Plan
    options: StepOptions
    setup: "StepModel | None" = None
    notes: Names = ()


def job_of(asked: StepInputs, known: dict[Any, Any] | None = None) -> Job:
    """The job of what is asked; raises PlanError.

    A workload is taken as it is, and refuses what only a model can be asked. The errors of a model
    begin with its name. `known` has rows of jobs before, and takes those of this one.
    """
    source, options = asked.workload, asked.options
    if not isinstance(source, Model):
        given = source if isinstance(source, Workload) else source.workload(options)
        run = _options_of_file(given, options)
        scaled, found = scaled_workload(given, run)
        plan, assumed = plan_of_workload(scaled, asked.topology, run)
        job = Job(
            asked=asked,
            given=given,
            workload=scaled,
            plan=plan,
            options=run,
            notes=(*found, *assumed),
        )
    else:
        from stepsim.step.model_plan import made_work

        try:
            job = made_work(asked, known)
        except PlanError as error:
            raise PlanError(f"{source.source}: {error}") from None
        if options.compute_scale or options.expert_load is not None:
            job = replace(job, workload=_loaded(job.given, job.options))
    if (layout := options.ep_layout) is None:
        return job
    _check_layout_of_experts(job.workload, options)
    idle = [f"ep_layout {layout} has no effect: ep is 1"] if job.plan.ep == 1 else []
    return replace(job, notes=(*job.notes, *idle))


def held_degrees(asked: StepInputs, **more: Any) -> tuple[Values, list[str]]:
    """Options of the plan that a model's step takes where none of its degrees is given, and a note.

    Steps that are compared are held to one plan by it; `more` are fields of
    `PlanAsked`. Raises PlanError.
    """
    if not isinstance(asked.workload, Model):
        return {}, []
    from stepsim.step.default_plan import PlanAsked, choose_plan

    return choose_plan(PlanAsked(**asdict(asked), **more))


def _options_of_file(workload: Workload, asked: StepOptions) -> StepOptions:
    """The options of a workload file's step; raises PlanError for what only a model can be asked.

    What such a step has anyway is as good as not asked for.
    """
    usual = {name: None for name, value in _USUAL.items() if getattr(asked, name) == value}
    options = replace(asked, **usual)
    if options.device is not None:
        raise PlanError(
            f"device is for models only: the compute times of {workload.source} are those of an "
            "unknown device and have no operators: expected compute_scale, which scales them"
        )
    options.refuse(_MODEL_ALONE, "it is for models only, and this is none")
    if options.calibration is not None:
        raise CalibrationError("this calibration is for models on a known device, and this is none")
    return options


def check_counts(counts: StepOptions | Plan) -> None:
    """Raise PlanError where a count that somebody said is below 1 or absurd."""
    for name, most in _MOST.items():
        within(name, getattr(counts, name, None), 1, most)


def scaled_workload(workload: Workload, options: StepOptions) -> tuple[Workload, list[str]]:
    """A file's workload with microbatches, compute and expert load as asked; and what is assumed.

    Of a model compute and expert load alone are asked: it has the samples of its plan.
    """
    if options.fill_placeholders:
        workload = fill_placeholders(workload)
    bare, rows = placeholder_rows(workload)
    note = f"{bare} of {rows} rows with compute have only placeholders (1 or 1000 ns)"
    enlarged = enlarge_microbatches(workload, options.samples)
    return _loaded(enlarged, options), [note] if bare else []


def _loaded(workload: Workload, options: StepOptions) -> Workload:
    """The workload with compute and expert load as asked."""
    if options.compute_scale:
        workload = scale_compute(workload, options.compute_scale)
    if options.expert_load is None:
        return workload
    count = options.microbatches or workload.pipeline_microbatches
    return load_experts(workload, options.expert_load, count)


def plan_of_workload(
    workload: Workload, topology: Topology, options: StepOptions
) -> tuple[Plan, list[str]]:
    """Plan of a workload file's job, and the assumptions made.

    `npus` scales dp and keeps the microbatches of a pipeline (weak scaling) unless `global_batch`,
    in samples, is given. `pp` re-splits the layers.
    Raises PlanError when the numbers contradict each other.
    """
    check_counts(options)
    warnings: list[str] = []
    degrees = {**workload.degrees, "pp": options.pp or workload.degrees["pp"]}
    expert_tp = _check_layout_of_experts(workload, options)
    size, origin = _job_size(workload, topology, options, degrees, expert_tp, warnings)
    if size > MAX_NPUS:
        raise PlanError(f"{size} NPUs ({origin}): expected at most {MAX_NPUS}")
    # the policy may speak of topology dimensions instead of tp and dp
    if any(op.group in (Group.INNER, Group.OUTER) for op in workload.comms()):
        degrees["tp"] = min(topology.node_size, size)
    split = {axis: n for axis, n in degrees.items() if ParallelAxis(axis).splits}
    replica = prod(split.values())
    if size % replica:
        named = {a: n for a, n in split.items() if n > 1 or a in ("tp", "pp")}
        shown = f"{'*'.join(named)} = {'*'.join(map(str, named.values()))} = {replica}"
        raise PlanError(f"{size} NPUs ({origin}): not divisible by {shown}")
    if expert_tp is None:
        _check_experts(degrees, size // degrees["pp"])
    chosen: Values = {axis: degree for axis, degree in degrees.items() if axis != "fsdp"}
    if degrees["fsdp"] > 1:
        chosen |= {"zero": 3, "shard_ranks": degrees["fsdp"]}
    plan = Plan(
        **chosen,
        dp=size // replica,
        expert_tp=expert_tp,
        rank_order=options.rank_order or RankOrder.TP_DP_PP,
    )
    return replace(plan, microbatches=_microbatches(workload, plan, options)), warnings


def _microbatches(workload: Workload, plan: Plan, options: StepOptions) -> int:
    """Microbatches of a pipeline: so that all process the global batch, if one is given."""
    batch = options.global_batch
    if batch is None:
        own = workload.pipeline_microbatches or len(workload.microbatches)
        return options.microbatches or own
    if options.microbatches is not None:
        raise PlanError("global_batch and microbatches contradict each other: give one of them")
    per_round = plan.dp * options.samples
    if batch % per_round:
        raise PlanError(
            f"global_batch is {batch}: expected a multiple of dp * microbatch_size = "
            f"{plan.dp} * {options.samples} = {per_round}"
        )
    return batch // per_round


def _check_experts(degrees: Mapping[str, int], stage_ranks: int) -> None:
    """Raise PlanError where groups of experts, split like layers, do not divide the replicas."""
    ep, replicas = degrees["ep"], stage_ranks // degrees["tp"]
    if replicas % ep:
        other = "" if stage_ranks % ep else ", or be folded over tp (--ep-layout folded)"
        shown = "dp" if degrees["cp"] == 1 else "cp*dp"
        raise PlanError(f"ep is {ep}: expert groups must divide {shown} ({replicas}){other}")


def _check_layout_of_experts(workload: Workload, options: StepOptions) -> int | None:
    """Ranks that share an expert in the layout asked for, else in the file's; None: as many as tp.

    Raises PlanError where a file was made for another layout.
    """
    own, layout = workload.expert_tp, options.ep_layout
    if layout is None:
        return own
    asked = 1 if layout is EpLayout.FOLDED else None
    if own not in (None, asked or workload.degrees["tp"]):
        raise PlanError(
            f"ep_layout is {layout}: in {workload.source} {own} ranks share an expert, and its "
            "compute times and sizes hold for that alone"
        )
    return asked


def filled(npus: int, pp: int, *within: int) -> int:
    """So many NPUs, rounded up to `pp` stages whose ranks are multiples of all numbers `within`.

    For example 16 in 4 stages, of which each has experts on 8 ranks, are 32.
    """
    unit = pp * lcm(*within)
    return -(-npus // unit) * unit


def _job_size(
    workload: Workload,
    topology: Topology,
    options: StepOptions,
    degrees: Mapping[str, int],
    expert_tp: int | None,
    warnings: list[str],
) -> tuple[int, str]:
    """NPUs of the job and where the number comes from."""
    if options.npus is not None:
        return options.npus, "npus asked for"
    if workload.npus is not None:
        return workload.npus, "all_gpus in the file"
    size, pp = topology.default_npus, degrees["pp"]
    split = prod(n for axis, n in degrees.items() if ParallelAxis(axis).splits)
    tp, shards = degrees["tp"], degrees["fsdp"]
    if not topology.grows:
        return size, f"the size of topology {topology.name}"
    rounded = filled(size, pp, split // pp, (expert_tp or tp) * degrees["ep"], tp * shards)
    warnings.append(f"the file gives no all_gpus: stepsim assumes {rounded} NPUs (--npus sets it)")
    return rounded, "assumed"


def choose_schedule(job: Job, network: Topology) -> Schedule:
    """The schedule asked for; one that is searched for knows the times of the stages.

    Raises ScheduleError when it cannot run the job.
    """
    plan, options = job.plan, job.options
    chosen: dict[str, object] = {
        option.name: getattr(options, option.field)
        for option in options.changed()
        if option.name in SCHEDULE_OPTIONS
    }
    if isinstance(options.schedule, Schedule):
        return _as_given(options.schedule, plan, options, chosen)
    if needs_times(options.schedule):
        chosen = {**_searched(job, network), **chosen}
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
    cleared: Values = {
        option.field: None
        for option in options.changed()
        if option.name in SCHEDULE_OPTIONS and option.name not in known
    }
    if options.chunks in (None, 1):
        cleared["chunks"] = 1 if schedule == OPTIONS["schedule"].default else None
    return replace(options, schedule=schedule, **cleared)


def _as_given(
    schedule: Schedule, plan: Plan, options: StepOptions, chosen: Mapping[str, object]
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


def prices_of(graph: "TaskGraph", network: Topology, known: Known | None = None) -> Prices:
    """What communications of a step cost on its network; `known` is as `Prices` takes it."""
    options = graph.options
    return Prices(
        plan=graph.plan,
        topology=network,
        comms=graph.comms,
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


def _searched(job: Job, network: Topology) -> dict[str, object]:
    """Options of `auto_zb`: mean time per rank of F, I and W, and the time of a message, in ps.

    Collectives inside an action count. A stage's ranks wait for the slowest of them, so it
    represents them where they differ. `took_ps` says what a step takes with a schedule.
    """
    from stepsim.core.ends import ends
    from stepsim.core.flat import flatten
    from stepsim.core.write import SegmentKind, write_graph
    from stepsim.network.fold import fold

    plan, options, alone = job.plan, job.options, Placement(ranks=job.plan.pp)
    stages = split_stages(job.workload, plan, alone, options.stage_rows)
    # every rank runs F, I and W of one microbatch after the other: a list, not a plan to run
    slots = [["F0", "I0", "W0"] * plan.microbatches] * plan.pp
    one_by_one = of_slots("one-by-one", alone, plan.microbatches, slots)
    slow = options.slow.factors(plan.npus) if options.slow else None

    def flat(graph: "TaskGraph") -> "Flat":
        """The tasks of a step, whose transfers slow nobody."""
        prices = prices_of(graph, network)
        return flatten(graph, fold(prices, graph.uses, slow), prices, slow)

    def took_ps(tasks: "Flat") -> int:
        return int(ends(tasks.waits, tasks.duration_ps).max(initial=0))

    eager = replace(options, p2p=P2PMode.EAGER)
    apart = flat(write_graph(stages, one_by_one, plan, eager))
    sends = (
        tasks.duration_ps[tasks.program.kind[tasks.segment] == SegmentKind.SEND]
        for tasks in apart.programs
    )
    return {
        **{
            name: [each // plan.microbatches for each in apart.spent_ps(kind)]
            for name, kind in _KINDS.items()
        },
        "hop_ps": max(int(took.max(initial=0)) for took in sends),
        "took_ps": lambda schedule: took_ps(flat(write_graph(stages, schedule, plan, options))),
    }
