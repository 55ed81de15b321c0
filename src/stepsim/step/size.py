"""How large a step is, before it is built: its tasks, and the seconds and bytes that they take.

The formulas count what the graph will have. Their constants are set on what
`benchmarks/step_size.py` measures, on one core; seconds and bytes are right within a factor of two
to three, which is enough to warn of a run that will not end.
"""

import os
from collections.abc import Callable

from msgspec import Struct

from stepsim.base.errors import ScheduleError
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.modes import Engine, Sharing
from stepsim.parallel.ranks import ParallelPlan
from stepsim.parallel.schedules import Schedule, build, needs_times
from stepsim.step.inputs import choose_plan, scaled_workload
from stepsim.step.work import WorkSource, make_work
from stepsim.workload.rows import Workload

MOST_EVENTS = 100_000
"""Tasks above which columns take the place of events, unless an engine is asked for."""

_LIKE = 4  # ranks of a small schedule of the same shape
_MESSAGE_ENDS = 4  # a message forward and one backward, each with its send and its receive
_S_OF_EVENT, _S_OF_SHARING_EVENT = 45e-6, 120e-6
_S_OF_LEVEL, _S_IN_COLUMN = 110e-6, 6e-6
_S_OF_SEARCH = 2e-3
_BYTES_OF_MICROBATCH, _BYTES_OF_EVENT, _BYTES_IN_COLUMN = 8_000, 400, 150


class StepSize(Struct, frozen=True, kw_only=True):
    """Tasks of a step that is to be simulated, and about what it takes: seconds, and bytes."""

    tasks: int
    seconds: float
    size_bytes: int


OnSize = Callable[[StepSize], None]
"""Called with the size of a step before it is built; raises to give it up."""


def step_size(workload: WorkSource, topology: Topology, options: StepOptions) -> StepSize:
    """Size of a step, of what it is made from; raises as `prepare` does."""
    made = make_work(workload, topology, options)
    work, _ = scaled_workload(made.workload, made.sized)
    plan, _ = choose_plan(work, topology, made.sized)
    return size_of(work, plan, made.options)


def size_of(workload: Workload, plan: ParallelPlan, options: StepOptions) -> StepSize:
    """Size of a step of a workload under a plan.

    A rank of each stage is simulated, or with `fold_ranks` off every rank. Where ranks meet one by
    one, or share links in time, each row of an action is a task of its own.
    """
    chunks, halves = _shape(options.schedule, plan.pp, options.chunks)
    stages, alone = plan.pp * chunks, not options.fold_ranks
    fair = options.contention is Sharing.FAIR
    actions = halves * stages
    row_by_row = fair or alone
    tasks_of_actions = max(actions, _tasks_of_rows(workload)) if row_by_row else actions
    tasks_of_actions = max(tasks_of_actions, _tasks_of_shards(workload))
    copies = plan.npus // plan.pp if alone else 1
    messages = _MESSAGE_ENDS * (stages - 1)
    tasks = plan.microbatches * copies * (tasks_of_actions + messages)
    if fair:
        seconds = tasks * _S_OF_SHARING_EVENT
    elif options.engine is Engine.SIMPY or (options.engine is None and tasks <= MOST_EVENTS):
        seconds = tasks * _S_OF_EVENT
    else:
        depth = plan.microbatches * 2 * chunks * (2 if stages > 1 else 1)
        depth = depth * tasks_of_actions // actions
        seconds = depth * _S_OF_LEVEL + tasks * _S_IN_COLUMN
        return _sized(plan, options, tasks, seconds, _BYTES_IN_COLUMN)
    return _sized(plan, options, tasks, seconds, _BYTES_OF_EVENT)


def memory_of_machine() -> int | None:
    """Bytes of memory of this machine, None where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _sized(
    plan: ParallelPlan, options: StepOptions, tasks: int, seconds: float, of_task: int
) -> StepSize:
    searched = isinstance(options.schedule, str) and needs_times(options.schedule)
    return StepSize(
        tasks=tasks,
        seconds=seconds + (plan.pp * plan.microbatches * _S_OF_SEARCH if searched else 0.0),
        size_bytes=plan.microbatches * _BYTES_OF_MICROBATCH + tasks * of_task,
    )


def _shape(schedule: str | Schedule, ranks: int, chunks: int | None) -> tuple[int, int]:
    """Chunks of a rank, and actions of a microbatch and a stage."""
    if isinstance(schedule, Schedule):
        return schedule.placement.chunks, 3 if schedule.splits_backward else 2
    if needs_times(schedule):
        return 1, 3
    try:
        like = build(schedule, ranks=min(ranks, _LIKE), microbatches=2 * _LIKE, chunks=chunks)
    except ScheduleError:  # it is refused where it is built, in words of its own
        return 1, 3
    return _shape(like, ranks, chunks)


def _tasks_of_shards(workload: Workload) -> int:
    """Tasks of a microbatch whose actions run unit by unit, 0 where nothing is sharded.

    A unit runs forward and backward; where its parameters are gathered each time, and its gradients
    reduced, those are tasks as well.
    """
    shards = [row.shards for row in workload.microbatches[0].rows() if row.shards]
    return sum(2 + (not each.once) * (1 + each.again) + bool(each.reduce) for each in shards)


def _tasks_of_rows(workload: Workload) -> int:
    """Tasks of all rows of one microbatch, forward and backward, in all stages."""
    block = workload.microbatches[0]
    works = [work for row in block.rows() for _, work in row.works()]
    tasks = sum((work.compute_ps > 0) + len(work.comms) for work in works)
    # a file has the rows of one stage, a model all of them and a layout
    return tasks if workload.layout else tasks * workload.made_for.pp
