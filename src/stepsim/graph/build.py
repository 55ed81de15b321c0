"""The task graph: what every rank runs, in which order, and what each part waits for.

Ranks of one stage run the same program, so a program is stored once per stage: a list of segments,
each a task list of tasks or one end of a message. Collectives join the ranks of a stage; messages
join a segment of one stage's program with a segment of another's.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import distinct, narrowed
from stepsim.base.errors import ScheduleError
from stepsim.base.kept import keep, kept_beside
from stepsim.graph.actions import CommNumbers, TaskList
from stepsim.graph.programs import (
    NONE,
    Looks,
    Program,
    Rows,
    Shape,
    ShapeFamily,
    looks_of,
    step_rows,
    waits_of,
)
from stepsim.graph.task_lists import TaskLists, TaskOptions
from stepsim.graph.writer import AlikeStages, ProgramWriter, Written
from stepsim.network.prices import Use
from stepsim.options import StepOptions
from stepsim.parallel.p2p import (
    Direction,
    Message,
    P2PMode,
    P2POptions,
    StepKind,
    default_mode,
)
from stepsim.parallel.p2p.columns import far_ranks
from stepsim.parallel.ranks import ParallelPlan
from stepsim.parallel.schedules import Schedule
from stepsim.parallel.stages import Stages
from stepsim.workload.rows import CollectiveKind, CommOp, Group, ParallelAxis, Stream

_SMALL = 1 << 13
"""Segments of a stage up to which its programs are kept for the next graph."""
_VARIANTS = 8
"""Programs, and looks of segments, that are kept of one shape."""


class TaskGraph(Struct, frozen=True, kw_only=True):
    """Programs per stage, the task lists they use, and the communications of the task lists.

    Ranks of a stage are alike: they run `programs[stage]`. What sets them apart is only where
    their groups lie on the topology. `notes` say which communications were left out.
    """

    plan: ParallelPlan
    schedule: Schedule
    options: StepOptions
    p2p: P2PMode
    programs: tuple[Program, ...]
    task_lists: tuple[TaskList, ...]
    comms: tuple[CommOp, ...]
    notes: tuple[str, ...]

    def messages(self) -> list[list[Message]]:
        """Per stage, what the message segments of its program carry, in their order."""
        every = self.p2p.programs(self.schedule, _switches(self.options))
        return [
            [Message.of(self.schedule, end // 2) for end in posted.tolist()]
            for posted in (steps.what[steps.kind == StepKind.POST] for steps in every)
        ]

    @property
    def uses(self) -> tuple[Use, ...]:
        """The communications of all stages, stage by stage."""
        return tuple(use for program in self.programs for use in program.uses)

    def streams(self) -> Iterator[tuple[int, Stream]]:
        """Communications and streams on which they run."""
        for task_list in self.task_lists:
            for task in task_list.tasks:
                yield task.comm, task.stream
        for program in self.programs:
            for stream in distinct(
                program.shape.stream[program.shape.peer >= 0].astype(np.int64)
            ).tolist():
                yield program.message, Stream(stream)


class _Asked(NamedTuple):
    """What segments depend on beside schedule and stages."""

    p2p: P2PMode
    switches: P2POptions
    free: bool


def build_taskgraph(
    stages: Stages, schedule: Schedule, plan: ParallelPlan, options: StepOptions
) -> TaskGraph:
    """Compute first, in the schedule's order; then one pass adds the communication."""
    p2p = options.p2p or default_mode(schedule)
    asked = _Asked(p2p=p2p, switches=_switches(options), free=p2p.free or options.eager_transfers)
    task_lists = TaskLists(
        comms=CommNumbers(alone=plan.alone),
        options=TaskOptions.of(options),
        last_stage=schedule.placement.stages - 1,
    )
    return TaskGraph(
        plan=plan,
        schedule=schedule,
        options=options,
        p2p=p2p,
        programs=_programs(stages, schedule, asked, task_lists),
        task_lists=tuple(task_lists.lists),
        comms=tuple(task_lists.comms.ops),
        notes=_dropped_notes(task_lists.comms),
    )


def _programs(
    stages: Stages, schedule: Schedule, asked: _Asked, task_lists: TaskLists
) -> tuple[Program, ...]:
    """What every stage runs; its task lists and communications get their numbers."""
    message = task_lists.comms.number(
        CommOp(
            kind=CollectiveKind.SEND_RECV,
            group=Group.PP,
            axis=ParallelAxis.PP,
            size_bytes=stages.pp_comm_bytes,
        )
    )
    alike: AlikeStages = {}
    written = [
        ProgramWriter(
            stage=stage, work=work, schedule=schedule, task_lists=task_lists, alike=alike
        ).write()
        for stage, work in enumerate(stages.works)
    ]
    number = NONE if message is None else message
    every = zip(_shaped(schedule, asked, written), written, strict=True)
    return tuple(_program(schedule, shape, each, number, task_lists.lists) for shape, each in every)


def _program(
    schedule: Schedule,
    shape: Shape,
    written: Written,
    message: int,
    task_lists: Sequence[TaskList],
) -> Program:
    """What a stage runs: the program of before where it computes and sends the same."""
    used = {number: task_lists[number] for number in written.used}
    key = (message, *written.key, *used.items())
    program = shape.programs.get(key)
    if program is None:
        looks, look = _looks(shape, written)
        program = Program(
            stage=written.stage,
            entries=schedule.orders[written.stage],
            message=message,
            shape=shape,
            lists=used,
            looks=looks,
            look=look,
        )
        if written.is_plain and len(shape) <= _SMALL:
            keep(shape.programs, key, program, _VARIANTS)
    return program


def _looks(shape: Shape, written: Written) -> Looks:
    """What the segments of a stage do: found before where they do the same."""
    found = shape.looks.get(written.key)
    if found is None:
        found = looks_of(shape, written.of_segments(shape.entry))
        keep(shape.looks, written.key, found, _VARIANTS)
    return found


def _shaped(schedule: Schedule, asked: _Asked, written: Sequence[Written]) -> Sequence[Shape]:
    """The segments of every stage."""
    if all(each.is_plain for each in written):
        tails = tuple(each.has_tail for each in written)
        return _plain_shapes(schedule, asked.p2p, asked.switches, asked.free, tails)

    def rows() -> Iterator[Rows]:
        every = asked.p2p.programs(schedule, asked.switches)
        for each, steps in zip(written, every, strict=True):
            own = step_rows(
                schedule, each.stage, steps, free=asked.free, tail=each.has_tail, on_dp=each.on_dp
            )
            yield each.merged(own, np.flatnonzero(steps.kind == StepKind.COMPUTE))

    return _joined(schedule, rows())


@kept_beside
def _plain_shapes(
    schedule: Schedule, p2p: P2PMode, switches: P2POptions, free: bool, tails: tuple[bool, ...]
) -> tuple[Shape, ...]:
    """The segments of stages whose entries are one each; `tails` say what has something after."""

    def rows() -> Iterator[Rows]:
        every = p2p.programs(schedule, switches)
        for stage, (steps, tail) in enumerate(zip(every, tails, strict=True)):
            nowhere = np.zeros(len(schedule.columns[stage]), dtype=bool)
            yield step_rows(schedule, stage, steps, free=free, tail=tail, on_dp=nowhere)

    return _joined(schedule, rows())


def _switches(options: StepOptions) -> P2POptions:
    return P2POptions(
        warmup_flush=options.warmup_flush, deallocate_outputs=options.deallocate_outputs
    )


def _dropped_notes(comms: CommNumbers) -> tuple[str, ...]:
    """Which collectives are left out, for their groups have one rank, as those of a degree 1."""
    if not comms.dropped:
        return ()
    groups = ", ".join(sorted(comms.dropped))
    return (f"collectives on {groups} groups transfer nothing: these groups have one rank",)


def _joined(schedule: Schedule, every: Iterable[Rows]) -> tuple[Shape, ...]:
    """The finished segments: each end of a message knows the other.

    Rows are made when their turn comes: all of them at once are the most that a graph needs.
    """
    family = ShapeFamily()
    place = np.full(4 * schedule.placement.stages * schedule.microbatches, NONE, dtype=np.int32)
    numbers, shapes = np.zeros(0, dtype=np.int32), []
    for rows in every:
        here = np.flatnonzero(rows.kind >= 0)
        if len(here) > len(numbers):
            numbers = np.arange(len(here), dtype=np.int32)
        ends = rows.end.take(here)
        messages = np.flatnonzero(ends >= 0)
        place[ends.take(messages)] = messages
        shapes.append(
            Shape(
                numbers=numbers[: len(here)],
                kind=rows.kind.take(here),
                stream=rows.stream.take(here),
                entry=rows.entry.take(here),
                peer_stage=narrowed(rows.peer_stage, schedule.placement.ranks).take(here),
                peer=ends,
                after=waits_of(rows, place),
                family=family,
            )
        )
    for stage, shape in enumerate(shapes):
        messages = np.flatnonzero(shape.peer >= 0)
        found = place.take(shape.peer.take(messages) ^ 1)
        alone = messages[found < 0]
        if len(alone):
            raise ScheduleError(_unmatched(schedule, stage, int(shape.peer[alone[0]])))
        shape.peer[messages] = found
    return tuple(shapes)


def _unmatched(schedule: Schedule, stage: int, end: int) -> str:
    """Why a schedule does not run: an end of a message without the other."""
    message = Message.of(schedule, end // 2)
    here, there = list(Direction)[:: -1 if end % 2 else 1]
    far = int(far_ranks(schedule, np.array(end)))
    return (
        f"schedule {schedule.name}: rank {stage} {here}s microbatch "
        f"{message.microbatch} ({message.kind}, stage {message.source} to "
        f"{message.target}) but rank {far} has no {there} for it"
    )
