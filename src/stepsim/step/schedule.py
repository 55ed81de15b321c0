"""The schedule of a step, and what its communications cost.

Schedules that are searched for need to know how long the actions of the job take.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.base.errors import ScheduleError
from stepsim.base.structs import replace
from stepsim.network.collectives import parse_algorithms
from stepsim.network.prices import Known, Prices
from stepsim.network.topology import Topology
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
from stepsim.parallel.schedules.check import check_schedule
from stepsim.parallel.schedules.order import ACTION_KINDS, Order
from stepsim.parallel.stages import Stages, split_stages
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp, Workload

if TYPE_CHECKING:
    from stepsim.core.flat import Flat


def choose_schedule(
    workload: Workload, topology: Topology, plan: Plan, options: StepOptions
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


def prices_of(
    plan: Plan,
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
    stages: Stages, plan: Plan, options: StepOptions, topology: Topology
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
    stages: Stages, schedule: Schedule, plan: Plan, options: StepOptions, topology: Topology
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
    stages: Stages, plan: Plan, options: StepOptions, topology: Topology, schedule: Schedule
) -> int:
    """What a step takes with a schedule, in ps."""
    from stepsim.core.ends import ends

    flat = _flat(stages, schedule, plan, options, topology)
    return int(ends(flat.waits, flat.duration_ps).max(initial=0))


def _one_by_one(plan: Plan) -> Schedule:
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
