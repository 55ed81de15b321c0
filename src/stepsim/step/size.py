"""How large a step is, before it is built, and what its ranks will hold.

The formulas count the tasks that the graph will have. The constants by which these take bytes are
set on what `benchmarks/step_size.py` measures; they are right within a factor of two to three. How
NPUs lie, and what they put on links, are columns with a line per NPU: these are set on `simulate`
of gpt_1024, moe_128 and llama-3-8b on 1 to 16 million NPUs, and of gpt_1024 on 1 and 4 million that
share links in time.

Of a model all is known that ranks hold (`fits`), of a workload what its user said of its chunks.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import PlanError, ScheduleError
from stepsim.base.structs import Noun, replace
from stepsim.base.units import MAX_INT64
from stepsim.core.timeline import MOST_EVENTS
from stepsim.options import StepOptions
from stepsim.parallel.modes import Engine, Sharing
from stepsim.parallel.schedules import Schedule, build, needs_times
from stepsim.parallel.stages import Stages, StageWork
from stepsim.step.job import Job
from stepsim.workload.rows import Workload

if TYPE_CHECKING:
    from stepsim.explain.memory import StepMemory

_LIKE = 4  # ranks of a small schedule of the same shape
_MESSAGE_ENDS = 4  # a message forward and one backward, each with its send and its receive
_BYTES_OF_MICROBATCH, _BYTES_OF_EVENT, _BYTES_IN_COLUMN = 8_000, 400, 150
_BYTES_OF_NPU = 50
_BYTES_OF_MEMBER = 4_000  # of the largest group
_BYTES_OF_SHARING_NPU = 2_400


class StepSize(Noun):
    """Tasks of a step that is to be simulated, and about how many bytes it takes."""

    tasks: int
    size_bytes: int


def size_of(job: Job) -> StepSize:
    """Size of a step of a job.

    A rank of each stage is simulated. Where ranks share links or multiprocessors in time, each row
    of an action is a task of its own.
    """
    workload, plan, options = job.workload, job.plan, job.options
    chunks, halves = _shape(options.schedule, plan.pp, options.chunks)
    stages = plan.pp * chunks
    row_by_row = options.contention is Sharing.FAIR or options.overlap_cost
    rows = _tasks_of_rows(workload) if row_by_row else 0
    units, once = _tasks_of_shards(workload, options)
    of_microbatch = max(halves * stages, rows, units)
    tasks = plan.microbatches * of_microbatch + once
    tasks += plan.microbatches * _MESSAGE_ENDS * (stages - 1)
    by_events = row_by_row or options.engine is Engine.SIMPY
    by_events = by_events or (options.engine is None and tasks <= MOST_EVENTS)
    of_task = _BYTES_OF_EVENT if by_events else _BYTES_IN_COLUMN
    size = tasks * of_task + plan.microbatches * _BYTES_OF_MICROBATCH
    if options.contention is Sharing.FAIR:
        return StepSize(tasks=tasks, size_bytes=size + plan.npus * _BYTES_OF_SHARING_NPU)
    members = max([plan.replicas, *(plan.group_size(op.group) for op in workload.comms())])
    size += plan.npus * _BYTES_OF_NPU + members * _BYTES_OF_MEMBER
    return StepSize(tasks=tasks, size_bytes=size)


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


def _tasks_of_shards(workload: Workload, options: StepOptions) -> tuple[int, int]:
    """Tasks of a microbatch whose actions run unit by unit, and those that are done once.

    A unit runs forward and backward; its parameters are gathered, and its gradients reduced. Where
    all microbatches share parts no action runs so: the first forward gathers parameters unit by
    unit, the last backward reduces their gradients.
    """
    shards = [row.shards for row in workload.microbatches[0].rows() if row.shards]
    once = 2 * sum(each.once for each in shards) * (1 + bool(options.dp_overlap))
    if all(each.once and not each.reduce for each in shards):
        return 0, once
    each_time = sum(2 + (not s.once) * (1 + s.again) + bool(s.reduce) for s in shards)
    return each_time, once


def _tasks_of_rows(workload: Workload) -> int:
    """Tasks of all rows of one microbatch, forward and backward, in all stages."""
    block = workload.microbatches[0]
    works = [work for row in block.rows() for _, work in row.works()]
    tasks = sum((work.compute_ps > 0) + (work.wait_ps > 0) + len(work.comms) for work in works)
    # a file has the rows of one stage, a model all of them and a layout
    return tasks if workload.layout else tasks * workload.degrees["pp"]


# Bytes of one part of a rank's memory, so that the sum of all parts has 64 bits.
_LARGEST = MAX_INT64 >> 4


def memory_of(job: Job, schedule: Schedule, stages: Stages) -> "StepMemory | None":
    """Memory of a rank of every stage; None where neither a model nor the options say it."""
    of_sample, setup, placement = job.options.activation_size_bytes, job.setup, schedule.placement
    if of_sample is None and setup is None:
        return None
    from stepsim.explain.memory import HeldBytes, step_memory

    if setup:
        from stepsim.step.checks import bytes_of_ranks

        held = bytes_of_ranks(setup, job.plan, schedule)
    else:
        none = np.zeros((placement.ranks, placement.chunks), np.int64)
        held = HeldBytes(activations=none, logits=none, recomputed=none[:, 0], fixed={})
    if of_sample is not None:
        shares = _chunk_shares(job.workload, stages.works, schedule)
        kept = whole_bytes(of_sample * job.options.samples * shares, schedule)
        held = replace(held, activations=kept)
    return step_memory(held, schedule, setup.device.memory_bytes if setup else None)


def _chunk_shares(work: Workload, works: Sequence[StageWork], schedule: Schedule) -> Floats:
    """Layers of every chunk over those that a stage has on average; shape (ranks, chunks).

    Rows of layers are counted, for a chunk may have a part of a layer.
    """
    blocks, placement = work.microbatches, schedule.placement
    layers = [layer for block in blocks for layer in (*block.layers, *block.prediction)]
    names = {row.name for layer in layers for row in layer}
    rows = np.array(
        [[sum(row.name in names for row in blocks[0]) for blocks in each.chunks] for each in works],
        np.float64,
    )
    held_by = placement.ranks * placement.chunks / placement.stages
    return rows * placement.ranks * held_by / max(float(rows.sum()), 1.0)


def whole_bytes(sizes: Floats, schedule: Schedule | None = None) -> Ints:
    """Sizes as whole bytes; a schedule keeps at most those of all its microbatches and chunks.

    Raises PlanError where a rank could hold more bytes than 64 bits count.
    """
    kept = schedule.microbatches * schedule.placement.chunks if schedule else 1
    most = float(np.max(sizes, initial=0)) * kept
    if not most <= _LARGEST:
        raise PlanError(
            f"memory of a rank is up to {most:.3g} bytes of one kind: expected at most 2**59 "
            "(microbatch_size, sequence and activation_size set it)"
        )
    return np.asarray(np.rint(sizes), np.int64)
