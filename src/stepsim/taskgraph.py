"""The task graph: what every rank runs, in which order, and what each part waits for.

Ranks of one stage run the same program, so a program is stored once per stage: a list of segments,
each a fragment of tasks or one end of a message. Collectives join the ranks of a stage; messages
join a segment of one stage's program with a segment of another's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from stepsim.errors import ScheduleError
from stepsim.fragments import (
    CommTable,
    Fragment,
    Stream,
    backward_fragment,
    forward_fragment,
    per_step_fragment,
    reduction_fragment,
)
from stepsim.p2p import Compute, Direction, Message, P2PMode, Post, Wait, program
from stepsim.parallel import ParallelPlan
from stepsim.schedules import Action, ActionKind, Schedule
from stepsim.stages import Stages, StageWork
from stepsim.workload import Axis, CollectiveKind, CommOp, Group, Row


class SegmentKind(IntEnum):
    """What a segment is: work of the pipeline, after it, beside it, or one end of a message."""

    ACTION = 0
    PER_STEP = 1
    REDUCTION = 2
    SEND = 3
    RECV = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One entry of a program; `after` are earlier segments it waits for.

    `fragment` is a number in the graph's list (-1 for messages); `action` the place in the
    schedule's order (-1 outside the pipeline). A message has `comm`, and `peer` is the segment at
    its other end, in the program of stage `peer_stage`.
    """

    kind: SegmentKind
    stream: Stream
    after: tuple[int, ...]
    fragment: int = -1
    action: int = -1
    comm: int = -1
    peer_stage: int = -1
    peer: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What each rank of a stage runs. `actions` is the schedule's order, `segments` the program."""

    stage: int
    actions: tuple[Action, ...]
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGraph:
    """Programs per stage, the fragments they use, and the communications of the fragments.

    Ranks of a stage are alike: they run `programs[stage]`. What sets them apart is only where
    their groups lie on the topology.
    """

    plan: ParallelPlan
    programs: tuple[Program, ...]
    fragments: tuple[Fragment, ...]
    comms: tuple[CommOp, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions:
    """How a runtime issues its work.

    `tp_overlap`: weight-gradient compute runs beside the input gradient's collective.
    `host_overhead_ps`: host time before each action.
    """

    p2p: P2PMode
    tp_overlap: bool = True
    host_overhead_ps: int = 0


def build_taskgraph(
    stages: Stages, schedule: Schedule, plan: ParallelPlan, options: GraphOptions
) -> TaskGraph:
    """Compute first, in the schedule's order; then one pass adds the communication."""
    factory = _FragmentFactory(comms=CommTable(plan=plan), options=options)
    drafts = []
    for stage, work in enumerate(stages.works):
        draft = _Draft(
            stage=stage, schedule=schedule, factory=factory, message_bytes=stages.pp_comm_bytes
        )
        draft.pipeline(work, options.p2p)
        draft.per_step(work)
        drafts.append(draft)
    return TaskGraph(
        plan=plan,
        programs=tuple(_joined(draft, drafts) for draft in drafts),
        fragments=tuple(factory.fragments),
        comms=tuple(factory.comms.ops),
        warnings=_dropped_warnings(factory.comms),
    )


def _dropped_warnings(comms: CommTable) -> tuple[str, ...]:
    if not comms.dropped:
        return ()
    groups = ", ".join(sorted(comms.dropped))
    return (f"collectives on {groups} groups transfer nothing: these groups have one rank",)


@dataclass(slots=True, kw_only=True)
class _FragmentFactory:
    """Makes each distinct fragment once: rows that say the same share one."""

    comms: CommTable
    options: GraphOptions
    fragments: list[Fragment] = field(default_factory=list)
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)

    def action(self, kind: ActionKind, rows: Sequence[Row], only: int | None = None) -> int:
        """Number of the fragment of an action, or of one row's share of a backward."""
        host_ps = self.options.host_overhead_ps if only in (None, len(rows) - 1) else 0

        def make() -> Fragment:
            if kind is ActionKind.FORWARD:
                return forward_fragment(rows, self.comms, host_ps)
            overlap = self.options.tp_overlap
            return backward_fragment(
                rows, self.comms, tp_overlap=overlap, host_ps=host_ps, only=only
            )

        return self._number((kind, only, *map(id, rows)), make)

    def add(self, fragment: Fragment) -> int:
        """Number of a new fragment."""
        self.fragments.append(fragment)
        return len(self.fragments) - 1

    def _number(self, key: tuple[object, ...], make: Callable[[], Fragment]) -> int:
        if key not in self._known:
            fragment = make()
            content = (fragment.tasks,)
            if content not in self._known:
                self._known[content] = self.add(fragment)
            self._known[key] = self._known[content]
        return self._known[key]


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A program being written; `front` is what the next segment in order waits for."""

    stage: int
    schedule: Schedule
    factory: _FragmentFactory
    message_bytes: int
    segments: list[Segment] = field(default_factory=list)
    ends: dict[tuple[Direction, Message], int] = field(default_factory=dict)
    _front: tuple[int, ...] = ()
    _last: dict[Stream, int] = field(default_factory=dict)

    def pipeline(self, work: StageWork, mode: P2PMode) -> None:
        """Write the actions and messages of the point-to-point program."""
        order = self.schedule.orders[self.stage]
        places = {action: i for i, action in enumerate(order)}
        final = {action.chunk: action for action in order if action.kind is ActionKind.BACKWARD}
        for step in program(self.schedule, mode, self.stage):
            match step:
                case Compute(action=action):
                    blocks = work.chunks[action.chunk]
                    rows = blocks[action.microbatch % len(blocks)]
                    last = action == final.get(action.chunk)
                    self._action(action.kind, rows, places[action], last=last)
                case Post():
                    self._post(step)
                case Wait(messages=messages):
                    received = [self.ends[Direction.RECV, message] for message in messages]
                    self._front = (*self._front, *received)

    def per_step(self, work: StageWork) -> None:
        """Write the rows that follow the pipeline; they need the reduced gradients."""
        if work.per_step:
            self._front = (*self._front, *self._queued(Stream.DP))
            fragment = self.factory.add(per_step_fragment(work.per_step, self.factory.comms))
            self._in_order(SegmentKind.PER_STEP, fragment)

    def _action(self, kind: ActionKind, rows: Sequence[Row], place: int, *, last: bool) -> None:
        """An action; the last backward of a chunk releases each row's gradient reduction."""
        reduces = last and any(row.weight_grad.comms for row in rows)
        if not reduces:
            self._in_order(SegmentKind.ACTION, self.factory.action(kind, rows), place)
            return
        for i in reversed(range(len(rows))):
            fragment = self.factory.action(kind, rows, only=i)
            self._in_order(SegmentKind.ACTION, fragment, place)
            reduction = reduction_fragment(rows[i], self.factory.comms)
            if reduction:
                after = (*self._front, *self._queued(Stream.DP))
                number = self.factory.add(reduction)
                self._last[Stream.DP] = self._add(
                    Segment(
                        kind=SegmentKind.REDUCTION, stream=Stream.DP, after=after, fragment=number
                    )
                )

    def _in_order(self, kind: SegmentKind, fragment: int, place: int = -1) -> None:
        segment = Segment(
            kind=kind, stream=Stream.COMPUTE, after=self._front, fragment=fragment, action=place
        )
        self._front = (self._add(segment),)

    def _post(self, post: Post) -> None:
        posted = []
        for direction, message in post.messages:
            send = direction is Direction.SEND
            stream = _message_stream(message, direction) if post.queued else Stream.EAGER
            after = self._front if send or post.queued else ()
            far = message.target if send else message.source
            segment = Segment(
                kind=SegmentKind.SEND if send else SegmentKind.RECV,
                stream=stream,
                after=tuple(sorted({*after, *self._queued(stream)})),
                comm=self.factory.comms.number(self._message_op()) or 0,
                peer_stage=self.schedule.placement.rank(far),
            )
            posted.append(self._add(segment))
            self.ends[direction, message] = posted[-1]
            if post.queued:
                self._last[stream] = posted[-1]
        if post.wait:
            self._front = tuple(posted)

    def _message_op(self) -> CommOp:
        return CommOp(
            kind=CollectiveKind.SEND_RECV,
            group=Group.PP,
            axis=Axis.PP,
            size_bytes=self.message_bytes,
        )

    def _queued(self, stream: Stream) -> tuple[int, ...]:
        return (self._last[stream],) if stream in self._last else ()

    def _add(self, segment: Segment) -> int:
        self.segments.append(segment)
        return len(self.segments) - 1


def _message_stream(message: Message, direction: Direction) -> Stream:
    """Activations go forward, gradients backward."""
    forward = message.kind is ActionKind.FORWARD
    if direction is Direction.SEND:
        return Stream.PP_FORWARD if forward else Stream.PP_BACKWARD
    return Stream.PP_FORWARD_RECV if forward else Stream.PP_BACKWARD_RECV


def _joined(draft: _Draft, drafts: Sequence[_Draft]) -> Program:
    """The finished program: each end of a message knows the other."""
    segments = list(draft.segments)
    for (direction, message), number in draft.ends.items():
        other = Direction.RECV if direction is Direction.SEND else Direction.SEND
        far = drafts[segments[number].peer_stage]
        if (other, message) not in far.ends:
            raise ScheduleError(
                f"schedule {draft.schedule.name}: rank {draft.stage} {direction}s microbatch "
                f"{message.microbatch} ({message.kind}, stage {message.source} to "
                f"{message.target}) but rank {far.stage} has no {other} for it"
            )
        segments[number] = replace(segments[number], peer=far.ends[other, message])
    return Program(
        stage=draft.stage,
        actions=draft.schedule.orders[draft.stage],
        segments=tuple(segments),
    )
