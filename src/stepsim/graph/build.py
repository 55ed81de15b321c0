"""The task graph: what every rank runs, in which order, and what each part waits for.

Ranks of one stage run the same program, so a program is stored once per stage: a list of segments,
each a task list of tasks or one end of a message. Collectives join the ranks of a stage; messages
join a segment of one stage's program with a segment of another's.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from stepsim.base.errors import ScheduleError
from stepsim.base.records import dataclass
from stepsim.graph.actions import CommNumbers, TaskList
from stepsim.graph.linking import Rows, waits_of
from stepsim.graph.programs import Program, SegmentKind
from stepsim.graph.task_lists import TaskLists
from stepsim.graph.writer import ProgramWriter
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
from stepsim.workload.axes import ParallelAxis
from stepsim.workload.rows import CollectiveKind, CommOp, Group


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Use:
    """A communication as a stage uses it.

    For messages `peer_stage` is the stage at the other end (-1 for collectives) and `sends` says
    whether this one sends.
    """

    comm: int
    stage: int
    peer_stage: int = -1
    sends: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        """Stages of sender and receiver of a message; of a collective, its stage twice."""
        if self.peer_stage < 0:
            return self.stage, self.stage
        return (self.stage, self.peer_stage) if self.sends else (self.peer_stage, self.stage)


@dataclass(frozen=True, kw_only=True)
class TaskGraph:
    """Programs per stage, the task lists they use, and the communications of the task lists.

    Ranks of a stage are alike: they run `programs[stage]`. What sets them apart is only where
    their groups lie on the topology.
    """

    plan: ParallelPlan
    schedule: Schedule
    options: StepOptions
    p2p: P2PMode
    programs: tuple[Program, ...]
    task_lists: tuple[TaskList, ...]
    comms: tuple[CommOp, ...]
    warnings: tuple[str, ...]

    def messages(self) -> list[list[Message]]:
        """Per stage, what the message segments of its program carry, in their order."""
        every = self.p2p.programs(self.schedule, _switches(self.options))
        return [
            [Message.of(self.schedule, end // 2) for end in posted.tolist()]
            for posted in (steps.what[steps.kind == StepKind.POST] for steps in every)
        ]

    def uses(self, stage: int) -> list[Use]:
        """The communications of a stage."""
        return sorted(self._counts[stage])

    def counts(self, stage: int) -> Mapping[Use, int]:
        """How often a rank of a stage takes part in each communication."""
        return self._counts[stage]

    @cached_property
    def _counts(self) -> list[Counter[Use]]:
        return [self._count(program) for program in self.programs]

    def _count(self, program: Program) -> Counter[Use]:
        """Segments that look alike are counted first: there are few looks and many segments."""
        counts: Counter[Use] = Counter()
        for kind, task_list, peer, count in program.looks[0]:
            if task_list < 0:
                sends = kind is SegmentKind.SEND
                comm = program.message
                use = Use(comm=comm, stage=program.stage, peer_stage=peer, sends=sends)
                counts[use] += count
                continue
            for task in self.task_lists[task_list].tasks:
                if task.comm >= 0:
                    counts[Use(comm=task.comm, stage=program.stage)] += count
        return counts


def build_taskgraph(
    stages: Stages, schedule: Schedule, plan: ParallelPlan, options: StepOptions
) -> TaskGraph:
    """Compute first, in the schedule's order; then one pass adds the communication."""
    task_lists = TaskLists(
        comms=CommNumbers(plan=plan), options=options, last_stage=schedule.placement.stages - 1
    )
    message = task_lists.comms.number(
        CommOp(
            kind=CollectiveKind.SEND_RECV,
            group=Group.PP,
            axis=ParallelAxis.PP,
            size_bytes=stages.pp_comm_bytes,
        )
    )
    p2p = options.p2p or default_mode(schedule)
    every = p2p.programs(schedule, _switches(options))
    rows = [
        ProgramWriter(
            stage=stage,
            work=work,
            schedule=schedule,
            task_lists=task_lists,
            free=p2p.free or options.eager_transfers,
        ).write(steps)
        for stage, (work, steps) in enumerate(zip(stages.works, every, strict=True))
    ]
    return TaskGraph(
        plan=plan,
        schedule=schedule,
        options=options,
        p2p=p2p,
        programs=_joined(schedule, rows, -1 if message is None else message),
        task_lists=tuple(task_lists.lists),
        comms=tuple(task_lists.comms.ops),
        warnings=_dropped_warnings(task_lists.comms),
    )


def _switches(options: StepOptions) -> P2POptions:
    return P2POptions(
        warmup_flush=options.warmup_flush, deallocate_outputs=options.deallocate_outputs
    )


def _dropped_warnings(comms: CommNumbers) -> tuple[str, ...]:
    if not comms.dropped:
        return ()
    groups = ", ".join(sorted(comms.dropped))
    return (f"collectives on {groups} groups transfer nothing: these groups have one rank",)


def _joined(schedule: Schedule, every: Sequence[Rows], message: int) -> tuple[Program, ...]:
    """The finished programs: each end of a message knows the other."""
    most = max((int(rows.end.max(initial=-1)) for rows in every), default=-1)
    place = np.full(most + 2, -1, dtype=np.int32)
    for rows in every:
        ends = rows.end[rows.kind >= 0]
        place[ends[ends >= 0]] = np.flatnonzero(ends >= 0)
    programs = []
    for stage, rows in enumerate(every):
        here = rows.kind >= 0
        ends = rows.end[here]
        is_message = ends >= 0
        peer = np.full(len(ends), -1, dtype=np.int32)
        peer[is_message] = place[ends[is_message] ^ 1]
        alone = np.flatnonzero(is_message & (peer < 0))
        if len(alone):
            raise ScheduleError(_unmatched(schedule, stage, int(ends[alone[0]])))
        programs.append(
            Program(
                stage=stage,
                entries=schedule.orders[stage],
                message=message,
                kind=rows.kind[here],
                stream=rows.stream[here],
                task_list=rows.task_list[here],
                entry=rows.entry[here],
                peer_stage=rows.peer_stage[here],
                peer=peer,
                after=waits_of(rows),
            )
        )
    return tuple(programs)


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
