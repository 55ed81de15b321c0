"""What a step is made from, by its options: workload, plan, schedule, prices."""

from collections.abc import Mapping
from typing import Any

from stepsim.base.errors import ScheduleError
from stepsim.base.structs import replace
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.job_size import check_held_degrees, plan_job
from stepsim.parallel.ranks import ParallelPlan
from stepsim.parallel.schedules import (
    SCHEDULE_OPTIONS,
    Placement,
    Schedule,
    build,
    needs_times,
    options_of,
)
from stepsim.parallel.schedules.check import check_schedule
from stepsim.parallel.stages import split_stages
from stepsim.step.action_times import search_times
from stepsim.workload.experts import load_experts, rank_loads, skewed_loads
from stepsim.workload.placeholders import fill_placeholders, placeholder_rows
from stepsim.workload.rows import Workload
from stepsim.workload.scaling import enlarge_microbatches, scale_compute


def scaled_workload(workload: Workload, options: StepOptions) -> tuple[Workload, list[str]]:
    """The workload with the microbatches, devices and expert load asked for; what is assumed."""
    if options.fill_placeholders:
        workload = fill_placeholders(workload)
    bare, rows = placeholder_rows(workload)
    note = f"{bare} of {rows} rows with compute have only placeholders (1 or 1000 ns)"
    workload = enlarge_microbatches(workload, options.samples)
    if options.compute_scale:
        workload = scale_compute(workload, options.compute_scale)
    ep = workload.made_for.ep
    if options.expert_load is not None:
        workload = load_experts(workload, rank_loads(options.expert_load, ep))
    elif options.expert_skew is not None:
        workload = load_experts(workload, skewed_loads(options.expert_skew, ep))
    return workload, [note] if bare else []


def choose_plan(
    workload: Workload, topology: Topology, options: StepOptions
) -> tuple[ParallelPlan, list[str]]:
    """Degrees and microbatches, and what was assumed; raises PlanError."""
    plan, assumed = options.plan, list[str]()
    if plan is None:
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
        chosen = {"objective": "makespan", **searched, **chosen}
    return build(
        options.schedule,
        ranks=plan.pp,
        microbatches=plan.microbatches,
        chunks=options.chunks,
        **chosen,
    )


def for_schedule(options: StepOptions, schedule: str | Schedule) -> StepOptions:
    """The options with another schedule, without those that only others have."""
    known = options_of(schedule) if isinstance(schedule, str) else []
    cleared: dict[str, Any] = dict.fromkeys(_schedule_options(options).keys() - set(known))
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
