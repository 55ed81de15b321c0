"""Programs being written: compute in the schedule's order, and the messages between."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import pairwise

from stepsim.base.errors import ScheduleError
from stepsim.base.records import dataclass
from stepsim.graph.actions import (
    BackwardParts,
    CommNumbers,
    HostTimes,
    TaskList,
    backward_tasks,
    forward_tasks,
    fused_tasks,
    per_step_tasks,
    reduction_tasks,
)
from stepsim.graph.programs import Segment, SegmentKind
from stepsim.options import StepOptions
from stepsim.parallel.p2p import Compute, Direction, End, Message, Post, Step, Wait
from stepsim.parallel.schedules import Action, ActionKind, Schedule
from stepsim.parallel.stages import StageWork
from stepsim.workload.axes import Stream
from stepsim.workload.rows import CommOp, Phase, Row

_GRADIENTS = {
    ActionKind.BACKWARD: (True, True),
    ActionKind.INPUT_GRAD: (True, False),
    ActionKind.WEIGHT_GRAD: (False, True),
}


@dataclass(slots=True, kw_only=True)
class TaskLists:
    """Makes each distinct task list once: rows that say the same share one."""

    comms: CommNumbers
    options: StepOptions
    last_stage: int
    lists: list[TaskList] = field(default_factory=list)
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)

    def action(self, action: Action, rows: Sequence[Row], part: range | None = None) -> int:
        """Number of the task list of an action, or of some rows' share of it."""
        host = HostTimes.of(
            self.options, action, last_stage=self.last_stage, rows=len(rows), part=part
        )

        def make() -> TaskList:
            if action.kind is ActionKind.FORWARD:
                some = rows if part is None else rows[part.start : part.stop]
                return forward_tasks(some, self.comms, host)
            input_grad, weight_grad = _GRADIENTS[action.kind]
            parts = BackwardParts(
                input_grad=input_grad,
                weight_grad=weight_grad,
                tp_overlap=self.options.tp_overlap,
                part=part,
            )
            return backward_tasks(rows, self.comms, parts, host)

        return self._number((action.kind, part, host, *map(id, rows)), make)

    def fused(self, forward: int, backward: int) -> int:
        """Number of the task list of a fused pair of two task lists."""
        factor = self.options.fused_factor

        def make() -> TaskList:
            halves = self.lists[forward], self.lists[backward]
            return fused_tasks(*halves, self.comms, factor)

        return self._number(("fused", forward, backward), make)

    def beside(self, label: str, ops: Sequence[CommOp], stream: Stream) -> int | None:
        """Number of the task list of collectives beside the actions; None if none is."""
        phase = Phase.FORWARD if stream is Stream.FSDP else Phase.WEIGHT_GRAD
        key = ("beside", label, stream, *ops)
        if key not in self._known:
            made = reduction_tasks(label, ops, self.comms, stream=stream, phase=phase)
            if made is None:
                return None
            self._known[key] = self.add(made)
        return self._known[key]

    def add(self, task_list: TaskList) -> int:
        """Number of a new task list."""
        self.lists.append(task_list)
        return len(self.lists) - 1

    def _number(self, key: tuple[object, ...], make: Callable[[], TaskList]) -> int:
        if key not in self._known:
            task_list = make()
            content = (task_list.tasks,)
            if content not in self._known:
                self._known[content] = self.add(task_list)
            self._known[key] = self._known[content]
        return self._known[key]


@dataclass(slots=True, kw_only=True)
class _Buckets:
    """Gradients reduced piece by piece while the last backward goes on.

    As Megatron-LM's distributed data parallel does with `overlap_grad_reduce`: rows add their
    gradients to a bucket, and a full bucket is reduced at once. `ops` reduce the gradients of rows
    whose weights sum to `weight`. A row's share of the gradients is its share of the
    weight-gradient compute, since both grow with its parameters. `even`: no row says, so all have
    the same.
    """

    ops: tuple[CommOp, ...]
    bucket_bytes: int
    weight: int
    even: bool
    _passed: int = 0
    _taken: tuple[int, ...] = ()

    def add(self, row: Row) -> tuple[CommOp, ...]:
        """The row's gradients are ready: what to reduce now, nothing until a bucket is full."""
        self._passed += 1 if self.even else row.weight_grad.compute_ps
        taken = self._taken or (0,) * len(self.ops)
        ready = tuple(op.size_bytes * self._passed // self.weight for op in self.ops)
        if sum(ready) - sum(taken) < self.bucket_bytes and self._passed < self.weight:
            return ()
        self._taken = ready
        shares = zip(self.ops, taken, ready, strict=True)
        return tuple(replace(op, size_bytes=b - a) for op, a, b in shares if b > a)


def gradient_buckets(ops: Sequence[CommOp], rows: Sequence[Row], bucket_bytes: int) -> _Buckets:
    """Buckets for the gradients of these rows."""
    weight = sum(row.weight_grad.compute_ps for row in rows)
    return _Buckets(
        ops=tuple(ops), bucket_bytes=bucket_bytes, weight=weight or len(rows), even=not weight
    )


@dataclass(kw_only=True)
class ProgramWriter:
    """A program being written; `front` is what the next segment in order waits for.

    Where messages are `free`, they leave when they are posted, overtaking others, and are received
    when they come; sends are never waited for. `message` is the number of their communication.
    """

    stage: int
    work: StageWork
    schedule: Schedule
    task_lists: TaskLists
    message: int
    free: bool
    segments: list[Segment] = field(default_factory=list)
    ends: dict[End, int] = field(default_factory=dict)
    _known: dict[tuple[ActionKind, int, int], int] = field(default_factory=dict)
    _front: tuple[int, ...] = ()
    _last: dict[Stream, int] = field(default_factory=dict)
    _on_dp: dict[int, bool] = field(default_factory=dict)
    _computed: list[tuple[int, ...]] = field(default_factory=list)
    _begun: dict[int, int] = field(default_factory=dict)

    def pipeline(self, steps: Iterable[Step]) -> None:
        """Write the entries and messages of a point-to-point program."""
        for step in steps:
            match step:
                case Compute(place=place):
                    self._entry(place)
                case Post(ends=ends, wait=wait):
                    self._post(ends)
                    if wait:
                        self._wait(ends, alone=True)
                case Wait(ends=ends):
                    self._wait(ends)

    def per_step(self) -> None:
        """Write the rows that follow the pipeline; they need the reduced gradients."""
        items = self.work.per_step
        if self.task_lists.options.dp_overlap:
            _, items = self.work.without_gradients()
        if items:
            self._front = self._behind(self._front, Stream.DP)
            task_list = self.task_lists.add(per_step_tasks(items, self.task_lists.comms))
            self._in_order(SegmentKind.PER_STEP, task_list)

    @cached_property
    def _final(self) -> dict[int, tuple[int, Action]]:
        """Per chunk, the place and the action that computes its last weight gradients."""
        return {
            action.chunk: (place, action)
            for place, entry in enumerate(self.schedule.orders[self.stage])
            for action in entry.parts()
            if action.kind in (ActionKind.BACKWARD, ActionKind.WEIGHT_GRAD)
        }

    @cached_property
    def _buckets(self) -> _Buckets | None:
        """What to reduce while the last backward of every chunk goes on; None without overlap."""
        options = self.task_lists.options
        gradients, _ = self.work.without_gradients()
        if not options.dp_overlap or not gradients:
            return None
        rows = [row for _, action in self._final.values() for row in self._rows(action)]
        return gradient_buckets(gradients, rows, options.dp_bucket_bytes)

    def _entry(self, place: int) -> None:
        """An action or a fused pair; a final one releases its rows' gradient reductions."""
        parts = self.schedule.orders[self.stage][place].parts()
        if any(self._shard_units(action) for action in parts):
            if len(parts) == 1 and parts[0].kind in (ActionKind.FORWARD, ActionKind.BACKWARD):
                self._sharded(parts[0], place)
                return
            self._gather_before(parts)
        finals = [action for action in parts if self._final.get(action.chunk) == (place, action)]
        reducing = [action for action in finals if self._reduces(action)]
        if len(parts) == 1 and reducing:
            self._row_by_row(parts[0], place)
            return
        numbers = [self._task_list(action) for action in parts]
        task_list = numbers[0] if len(parts) == 1 else self.task_lists.fused(*numbers)
        self._in_order(SegmentKind.ACTION, task_list, place)
        for row in (row for action in reducing for row in reversed(self._rows(action))):
            self._reductions(row)

    def _reduces(self, action: Action) -> bool:
        return self._buckets is not None or any(r.weight_grad.comms for r in self._rows(action))

    def _task_list(self, action: Action) -> int:
        """Number of an action's task list: the same for all microbatches of a block."""
        block = action.microbatch % len(self.work.chunks[action.chunk])
        key = action.kind, action.chunk, block
        if key not in self._known:
            self._known[key] = self.task_lists.action(action, self._rows(action))
        return self._known[key]

    def _rows(self, action: Action) -> tuple[Row, ...]:
        blocks = self.work.chunks[action.chunk]
        return blocks[action.microbatch % len(blocks)]

    def _row_by_row(self, action: Action, place: int) -> None:
        """A backward in as many segments as rows, each followed by its reductions."""
        rows = self._rows(action)
        for i in reversed(range(len(rows))):
            task_list = self.task_lists.action(action, rows, range(i, i + 1))
            self._in_order(SegmentKind.ACTION, task_list, place)
            self._reductions(rows[i])

    def _reductions(self, row: Row) -> None:
        """Start what a row's gradients allow on their stream; the step ends when it has ended."""
        self._reduction(row.name, row.weight_grad.comms)
        if self._buckets:
            self._reduction("gradient bucket", self._buckets.add(row))

    def _reduction(self, label: str, ops: Sequence[CommOp]) -> None:
        self._beside(label, ops, Stream.DP, self._front)

    def _beside(
        self, label: str, ops: Sequence[CommOp], stream: Stream, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Start collectives on their stream, beside the actions; returns what waits for them."""
        number = self.task_lists.beside(label, ops, stream)
        if number is None:
            return ()
        self._last[stream] = self._add(
            Segment(
                kind=SegmentKind.REDUCTION,
                stream=stream,
                after=self._behind(after, stream),
                task_list=number,
            )
        )
        return (self._last[stream],)

    def _shard_units(self, action: Action) -> tuple[range, ...]:
        """Rows of an action unit by unit, those before the first with it; empty without shards."""
        rows = self._rows(action)
        starts = [i for i, row in enumerate(rows) if row.shards]
        if not starts:
            return ()
        bounds = [0, *starts[1:], len(rows)]
        return tuple(range(a, b) for a, b in pairwise(bounds))

    def _gather_before(self, parts: Sequence[Action]) -> None:
        """Gather what fused and split actions need once a step, before they begin.

        Raises ScheduleError where it is needed again and again: that is not modelled.
        """
        for action in parts:
            held = [row.shards for row in self._rows(action) if row.shards]
            if not all(shards.once for shards in held):
                raise ScheduleError(
                    f"schedule {self.schedule.name}: parameters gathered layer by layer (zero 2 "
                    "and 3) with fused or split backwards are not modelled"
                )
            if action.kind is ActionKind.FORWARD and self._is_first(action):
                for shards in held:
                    gathered = self._beside("gather", shards.gather, Stream.FSDP, ())
                    self._front = (*self._front, *gathered)

    def _sharded(self, action: Action, place: int) -> None:
        """An action unit by unit: parameters are gathered before, gradients reduced after.

        What a unit needs is gathered while the one before it computes, and not sooner, since two
        units' parameters are in memory at a time (torch's FSDP); what is gathered once a step
        waits for nothing.
        """
        rows, units = self._rows(action), self._shard_units(action)
        forward = action.kind is ActionKind.FORWARD
        for unit in units if forward else reversed(units):
            shards = next(row.shards for row in rows[unit.start : unit.stop] if row.shards)
            if shards.once:
                first = forward and self._is_first(action)
                gathered = self._beside("gather", shards.gather, Stream.FSDP, ()) if first else ()
            elif forward or shards.again:
                after = self._computed[-2] if len(self._computed) > 1 else ()
                gathered = self._beside("gather", shards.gather, Stream.FSDP, after)
            else:
                gathered = ()
            self._front = (*self._front, *gathered)
            self._in_order(SegmentKind.ACTION, self.task_lists.action(action, rows, unit), place)
            self._computed.append(self._front)
            if not forward:
                self._reduction("reduce shards", shards.reduce)
                if self._final[action.chunk] == (place, action):
                    for i in reversed(unit):
                        self._reductions(rows[i])

    def _is_first(self, action: Action) -> bool:
        """Whether no forward of this chunk came before."""
        return self._begun.setdefault(action.chunk, action.microbatch) == action.microbatch

    def _in_order(self, kind: SegmentKind, task_list: int, place: int = -1) -> None:
        queued = self._uses_dp(task_list)
        after = self._behind(self._front, Stream.DP) if queued else self._front
        segment = Segment(
            kind=kind, stream=Stream.COMPUTE, after=after, task_list=task_list, entry=place
        )
        self._front = (self._add(segment),)
        if queued:
            self._last[Stream.DP] = self._front[0]

    def _uses_dp(self, task_list: int) -> bool:
        """Whether a task list has collectives on the stream of the gradient reductions."""
        if task_list not in self._on_dp:
            tasks = self.task_lists.lists[task_list].tasks
            self._on_dp[task_list] = any(task.stream is Stream.DP for task in tasks)
        return self._on_dp[task_list]

    def _post(self, ends: Iterable[End]) -> None:
        for end in ends:
            direction, message = end
            send = direction is Direction.SEND
            peer = self.schedule.placement.rank(
                message.target if send else message.source, message.microbatch
            )
            stream = Stream.EAGER if self.free else self._message_stream(peer, direction, message)
            after = self._front if send or not self.free else ()
            self.ends[end] = self._add(
                Segment(
                    kind=SegmentKind.SEND if send else SegmentKind.RECV,
                    stream=stream,
                    after=self._behind(after, stream),
                    comm=self.message,
                    peer_stage=peer,
                )
            )
            if not self.free:
                self._last[stream] = self.ends[end]

    def _wait(self, ends: Iterable[End], *, alone: bool = False) -> None:
        """Make what follows wait for posted messages, `alone` for nothing else."""
        waited = [self.ends[end] for end in ends if not self.free or end[0] is Direction.RECV]
        if waited:
            self._front = tuple(waited) if alone and not self.free else (*self._front, *waited)

    def _message_stream(self, peer: int, direction: Direction, message: Message) -> Stream:
        """To the next rank or to the one before; with two ranks activations go forward."""
        ranks = self.schedule.placement.ranks
        ahead = (peer - self.stage) % ranks == 1
        if direction is Direction.RECV:
            ahead = (self.stage - peer) % ranks == 1
        if ranks == 2:
            ahead = message.kind is ActionKind.FORWARD
        if direction is Direction.SEND:
            return Stream.PP_FORWARD if ahead else Stream.PP_BACKWARD
        return Stream.PP_FORWARD_RECV if ahead else Stream.PP_BACKWARD_RECV

    def _behind(self, after: tuple[int, ...], stream: Stream) -> tuple[int, ...]:
        """What a segment waits for: `after`, and the last segment of its stream."""
        last = self._last.get(stream)
        return after if last is None or last in after else (*after, last)

    def _add(self, segment: Segment) -> int:
        self.segments.append(segment)
        return len(self.segments) - 1
