"""The task graph: what every rank runs, in which order, and what each part waits for.

Ranks of one stage run the same program, so a program is stored once per stage: a list of segments,
each a task list of tasks or one end of a message. Collectives join the ranks of a stage; messages
join a segment of one stage's program with a segment of another's.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Bools, Small, distinct, narrowed
from stepsim.base.errors import ScheduleError
from stepsim.base.kept import kept_beside
from stepsim.graph.actions import CommNumbers, TaskList
from stepsim.graph.programs import (
    NONE,
    Program,
    Rows,
    Segments,
    Shape,
    ShapeFamily,
    StageSteps,
    looks_of,
    step_rows,
    waits_of,
)
from stepsim.graph.task_lists import TaskLists, TaskOptions
from stepsim.graph.writer import AlikeStages, ProgramWriter, Written, merged
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

_AT_ONCE = 1 << 14
"""Rows of stages that are made segments at once: many more do not fit the cache."""


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


class _Sent(NamedTuple):
    """How messages are sent, which sets segments beside the schedule and what is computed."""

    p2p: P2PMode
    switches: P2POptions
    free: bool


def build_taskgraph(
    stages: Stages, schedule: Schedule, plan: ParallelPlan, options: StepOptions
) -> TaskGraph:
    """Compute first, in the schedule's order; then one pass adds the communication."""
    p2p = options.p2p or default_mode(schedule)
    sent = _Sent(p2p, _switches(options), free=p2p.free)
    task_lists = TaskLists(
        comms=CommNumbers(alone=plan.alone),
        options=TaskOptions.of(options),
        last_stage=schedule.placement.stages - 1,
    )
    message = task_lists.comms.number(
        CommOp(
            kind=CollectiveKind.SEND_RECV,
            group=Group.PP,
            axis=ParallelAxis.PP,
            size_bytes=stages.pp_comm_bytes,
        )
    )
    written = _written(stages, schedule, task_lists)
    number = NONE if message is None else message
    every = zip(_shaped(schedule, sent, written), written, strict=True)
    return TaskGraph(
        plan=plan,
        schedule=schedule,
        options=options,
        p2p=p2p,
        programs=tuple(
            _program(schedule, shape, lists, each, number, task_lists.lists)
            for (shape, lists), each in every
        ),
        task_lists=tuple(task_lists.lists),
        comms=tuple(task_lists.comms.ops),
        notes=_dropped_notes(task_lists.comms),
    )


def _written(stages: Stages, schedule: Schedule, task_lists: TaskLists) -> list[Written]:
    """What every stage computes."""
    alike: AlikeStages = {}
    return [
        ProgramWriter(
            stage=stage, work=work, schedule=schedule, task_lists=task_lists, alike=alike
        ).write()
        for stage, work in enumerate(stages.works)
    ]


def _program(
    schedule: Schedule,
    shape: Shape,
    lists: Small,
    written: Written,
    message: int,
    task_lists: Sequence[TaskList],
) -> Program:
    """What a stage runs."""
    looks, look = looks_of(shape, lists)
    return Program(
        stage=written.stage,
        entries=schedule.orders[written.stage],
        message=message,
        shape=shape,
        lists={number: task_lists[number] for number in written.used},
        looks=looks,
        look=look,
    )


def _shaped(
    schedule: Schedule, sent: _Sent, written: Sequence[Written]
) -> Iterator[tuple[Shape, Small]]:
    """The segments of every stage, and the task list of each."""
    if all(each.is_plain for each in written):
        tails = tuple(each.has_tail for each in written)
        shapes = _plain_shapes(schedule, sent, tails)
        every = zip(shapes, written, strict=True)
        return ((shape, each.plain_lists(shape.entry)) for shape, each in every)
    marks = [(each.has_tail, each.on_dp) for each in written]
    rows = (
        merged(
            [written[each.stage] for each in stages],
            step_rows(schedule, stages, free=sent.free),
        )
        for stages in _side_by_side(schedule, sent, marks)
    )
    return iter(_joined(schedule, rows))


@kept_beside
def _plain_shapes(schedule: Schedule, sent: _Sent, tails: tuple[bool, ...]) -> tuple[Shape, ...]:
    """The segments of stages whose entries are one each; `tails` say what has something after."""
    nowhere = [np.zeros(len(order), dtype=bool) for order in schedule.columns]
    marks = [*zip(tails, nowhere, strict=True)]
    every = _side_by_side(schedule, sent, marks)
    rows = (step_rows(schedule, stages, free=sent.free) for stages in every)
    return tuple(shape for shape, _ in _joined(schedule, rows))


def _side_by_side(
    schedule: Schedule,
    sent: _Sent,
    marks: Sequence[tuple[bool, Bools]],
) -> Iterator[list[StageSteps]]:
    """Steps of stages, as many stages at once as have few: columns of few cost as much.

    `marks` are a stage's tail and entries on the stream of reductions, see `StageSteps`.
    """
    stages, count = list[StageSteps](), 0
    programs = zip(sent.p2p.programs(schedule, sent.switches), marks, strict=True)
    for stage, (steps, (tail, on_dp)) in enumerate(programs):
        if stages and count + len(steps.kind) > _AT_ONCE:
            yield stages
            stages, count = list[StageSteps](), 0
        stages.append(StageSteps(stage, steps, tail, on_dp))
        count += len(steps.kind)
    yield stages


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


def _joined(schedule: Schedule, every: Iterable[Rows]) -> list[tuple[Shape, Small]]:
    """The finished segments, each end of a message knows the other; and their task lists.

    Rows are made when their turn comes: all of them at once are the most that a graph needs.
    """
    family = ShapeFamily()
    place = np.full(4 * schedule.placement.stages * schedule.microbatches, NONE, dtype=np.int32)
    numbers, found = np.zeros(0, dtype=np.int32), list[tuple[Shape, Small]]()
    for rows in every:
        segments = Segments.of(rows)
        longest = int(np.diff(segments.firsts).max())
        if longest > len(numbers):
            numbers = np.arange(longest, dtype=np.int32)
        found += _shapes(rows, segments, place, numbers, schedule.placement.ranks, family)
    for stage, (shape, _) in enumerate(found):
        messages = np.flatnonzero(shape.peer >= 0)
        other = place.take(shape.peer.take(messages) ^ 1)
        alone = messages[other < 0]
        if len(alone):
            raise ScheduleError(_unmatched(schedule, stage, int(shape.peer[alone[0]])))
        shape.peer[messages] = other
    return found


def _shapes(
    rows: Rows, segments: Segments, place: Small, numbers: Small, ranks: int, family: ShapeFamily
) -> Iterator[tuple[Shape, Small]]:
    """Segments of stages, and their task lists; messages are put into `place` by their ends."""
    end = rows.end.take(segments.place)
    messages = np.flatnonzero(end >= 0)
    place[end.take(messages)] = segments.number.take(messages)
    after = waits_of(rows, segments, place)
    kind, stream = rows.kind.take(segments.place), rows.stream.take(segments.place)
    entry, task_list = rows.entry.take(segments.place), rows.task_list.take(segments.place)
    peer_stage = narrowed(rows.peer_stage, ranks).take(segments.place)
    for a, b in pairwise(segments.firsts.tolist()):
        shape = Shape(
            numbers=numbers[: b - a],
            kind=kind[a:b],
            stream=stream[a:b],
            entry=entry[a:b],
            peer_stage=peer_stage[a:b],
            peer=end[a:b],
            after=after.part(a, b),
            family=family,
        )
        yield shape, task_list[a:b]


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
