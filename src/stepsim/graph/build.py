"""The task graph: what every rank runs, in which order, and what each part waits for.

Ranks of one stage run the same program, so a program is stored once per stage: a list of segments,
each a task list of tasks or one end of a message. Collectives join the ranks of a stage; messages
join a segment of one stage's program with a segment of another's.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from stepsim.base.errors import ScheduleError
from stepsim.base.records import dataclass
from stepsim.graph.actions import CommNumbers, TaskList
from stepsim.graph.programs import Program, Segment, SegmentKind
from stepsim.graph.writer import ProgramWriter, TaskLists
from stepsim.options import StepOptions
from stepsim.parallel.p2p import Direction, Message, P2PMode, P2POptions, Post, default_mode
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
            [message for step in steps if isinstance(step, Post) for _, message in step.ends]
            for steps in every
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
        looks = Counter((s.kind, s.task_list, s.comm, s.peer_stage) for s in program.segments)
        for (kind, task_list, comm, peer), count in looks.items():
            if task_list < 0:
                sends = kind is SegmentKind.SEND
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
    writers = []
    p2p = options.p2p or default_mode(schedule)
    every = p2p.programs(schedule, _switches(options))
    for stage, (work, steps) in enumerate(zip(stages.works, every, strict=True)):
        writer = ProgramWriter(
            stage=stage,
            work=work,
            schedule=schedule,
            task_lists=task_lists,
            message=-1 if message is None else message,
            free=p2p.free or options.eager_transfers,
        )
        writer.pipeline(steps)
        writer.per_step()
        writers.append(writer)
    return TaskGraph(
        plan=plan,
        schedule=schedule,
        options=options,
        p2p=p2p,
        programs=tuple(_joined(writer, writers) for writer in writers),
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


def _joined(writer: ProgramWriter, writers: Sequence[ProgramWriter]) -> Program:
    """The finished program: each end of a message knows the other."""
    segments = list(writer.segments)
    for (direction, message), number in writer.ends.items():
        other = Direction.RECV if direction is Direction.SEND else Direction.SEND
        segment = segments[number]
        far = writers[segment.peer_stage]
        peer = far.ends.get((other, message), -1)
        if peer < 0:
            raise ScheduleError(
                f"schedule {writer.schedule.name}: rank {writer.stage} {direction}s microbatch "
                f"{message.microbatch} ({message.kind}, stage {message.source} to "
                f"{message.target}) but rank {far.stage} has no {other} for it"
            )
        segments[number] = Segment(*segment[:-1], peer)  # half the time of _replace
    return Program(
        stage=writer.stage,
        entries=writer.schedule.orders[writer.stage],
        segments=tuple(segments),
    )
