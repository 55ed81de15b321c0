"""Task lists: the tasks of one action on one rank, in the order a training runtime issues them.

A task list is made from rows once and used for every microbatch and rank that runs the same rows.
Only the members of its collectives can delay it from inside.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from stepsim.base.arrays import Ints, ints
from stepsim.base.axes import Group, ParallelAxis, Part, Phase, Stream
from stepsim.base.structs import Noun, Numbers, replace
from stepsim.core.ends import listed_waits
from stepsim.options import StepOptions
from stepsim.parallel.schedules import Action, ActionKind
from stepsim.run.spans import NodeWaits, TaskKind
from stepsim.workload.overlap import Kernels
from stepsim.workload.rows import CommOp, Row, Rows, StepItem, Work


class HostPart(IntEnum):
    """Which option a host task takes its time from; launches take it from their rows, and none.

    A part is named as its option: whatever evaluates many scenarios at once has a column for each
    of them.
    """

    HOST_OVERHEAD = 0
    GET_BATCH = 1
    LOSS_TIME = 2

    @property
    def option(self) -> str:
        """The option's name as people type it, e.g. `get_batch`."""
        return self.name.lower()

    @property
    def field(self) -> str:
        """The field of `StepOptions` that holds the time in ps."""
        return f"{self.option}_ps"


HostTimes = Numbers
"""Host time around an action in ps: a number for every `HostPart`."""
NO_HOST: HostTimes = (0,) * len(HostPart)


def host_times(options: StepOptions) -> HostTimes:
    """All that is asked for."""
    return tuple(getattr(options, part.field) for part in HostPart)


# Labels of host tasks that are not called as their option.
_HOST_LABELS = {HostPart.HOST_OVERHEAD: "host", HostPart.LOSS_TIME: "loss"}


class Task(Noun, kw_only=False):
    """One task of a task list; `after` are earlier tasks of the task list that it waits for.

    `comm` is the number of a communication in the graph's table, -1 for compute. `host_part` says
    which option the duration is of, if it is one's; `kernels` are what compute is made of. `part`
    is the part of a step that it is; of a transfer or a launch, when it is waited for. Nothing
    depends on the label.
    """

    kind: TaskKind
    stream: Stream
    label: str
    phase: Phase
    duration_ps: int = 0
    comm: int = -1
    after: Numbers = ()
    part: Part = Part.COMPUTE
    host_part: HostPart | None = None
    kernels: Kernels = ()


class TaskList(Noun, eq=False, dict=True):
    """Tasks in an order in which every task follows those it waits for."""

    tasks: tuple[Task, ...]

    @cached_property
    def comms(self) -> Counter[int]:
        """How often each communication is a task, in the order in which they are met."""
        return Counter(task.comm for task in self.tasks if task.comm >= 0)

    @property
    def parts(self) -> Ints:
        """The part that each task is."""
        return ints([task.part for task in self.tasks])

    @cached_property
    def waits(self) -> NodeWaits:
        """What its tasks wait for."""
        return listed_waits(task.after for task in self.tasks)

    @cached_property
    def streams(self) -> frozenset[Stream]:
        """Streams that tasks run on."""
        return frozenset(task.stream for task in self.tasks)


class CommNumbers(Struct, kw_only=True):
    """The distinct communications of a graph, numbered as they are met.

    A collective of one rank does not exist, one of a group that is `alone`: `dropped` are the
    groups of those met.
    """

    alone: frozenset[Group]
    ops: list[CommOp] = []
    dropped: set[Group] = set()
    _numbers: dict[CommOp, int] = {}

    def number(self, op: CommOp) -> int | None:
        """Number of a communication, None if there is nobody to communicate with."""
        if op.group in self.alone:
            self.dropped.add(op.group)
            return None
        if op not in self._numbers:
            self._numbers[op] = len(self.ops)
            self.ops.append(op)
        return self._numbers[op]


class _TaskListBuilder(Struct, kw_only=True):
    """Appends tasks; a task also follows the last one of its stream.

    Unless `detached`, a task list begins on the compute stream, if need be with a task of no
    duration, so that what happens before it is told apart from what happens inside. Detached
    collectives queue on the stream given, whatever they are of.
    """

    comms: CommNumbers
    detached: Stream | None = None
    tasks: list[Task] = []
    _last: dict[Stream, tuple[int]] = {}
    _launches: Numbers = ()

    def compute(self, item: StepItem, after: Numbers) -> Numbers:
        """Add an item's wait for the host, and its compute; returns what follows them.

        That is `after` itself where there is neither.
        """
        work, phase = item.work, item.phase
        if work.wait_ps:
            what = "wait for the host"
            own = TaskKind.HOST, Stream.COMPUTE, what, phase, work.wait_ps
            after = self.add(after, *own, part=Part.HOST)
        if not work.compute_ps:
            return after
        own = TaskKind.COMPUTE, Stream.COMPUTE, item.name, phase, work.compute_ps
        return self.add(after, *own, kernels=work.kernels)

    def collectives(self, item: StepItem, after: Numbers) -> Numbers:
        """Add an item's collectives one after the other; returns what follows them."""
        for op in item.work.comms:
            number = self.comms.number(op)
            if number is not None:
                after = self._begun(item, after)
                stream = op.axis.stream if self.detached is None else self.detached
                own = TaskKind.COLLECTIVE, stream, item.name, item.phase
                after = self.add(after, *own, comm=number, part=op.axis.exposed)
        return after

    def host(self, part: HostPart, phase: Phase, host: HostTimes, after: Numbers) -> Numbers:
        """Add a part of host time; returns what follows it, `after` itself if there is none."""
        if not host[part]:
            return after
        label = _HOST_LABELS.get(part, part.option)
        own = TaskKind.HOST, Stream.COMPUTE, label, phase, host[part]
        return self.add(after, *own, host_part=part, part=Part.HOST)

    def launch(self, item: StepItem, host_ps: int, after: Numbers) -> None:
        """Add the host's launches, which begin after `after`; `launched` waits for them."""
        if host_ps:
            own = TaskKind.HOST, Stream.HOST, item.name, item.phase, host_ps
            self._launches = self.add(self._begun(item, after), *own, part=Part.EXPOSED_HOST)

    def launched(self, after: Numbers) -> Numbers:
        """What kernels wait for that the host launches next: `after`, and its launches so far."""
        after, self._launches = tuple(sorted({*after, *self._launches})), ()
        return after

    def build(self, label: str, phase: Phase) -> TaskList:
        """The task list; an empty one gets a task of no duration, so that it has a place."""
        if not self.tasks:
            self.add((), TaskKind.COMPUTE, Stream.COMPUTE, label, phase)
        return TaskList(tasks=tuple(self.tasks))

    def _begun(self, item: StepItem, after: Numbers) -> Numbers:
        """What follows the beginning, which is on the compute stream unless detached."""
        if self.tasks or self.detached is not None:
            return after
        return self.add(after, TaskKind.COMPUTE, Stream.COMPUTE, item.name, item.phase)

    def add(
        self,
        after: Numbers,
        kind: TaskKind,
        stream: Stream,
        label: str,
        phase: Phase,
        duration_ps: int = 0,
        **more: Any,
    ) -> Numbers:
        """Add a task with such predecessors, and the fields of `Task`; returns what follows it."""
        queued = self._last.get(stream, ())
        if not after:
            after = queued
        elif after != queued:
            after = tuple(sorted({*after, *queued}))
        self._last[stream] = own = (len(self.tasks),)
        self.tasks.append(Task(kind, stream, label, phase, duration_ps, after=after, **more))
        return own


def forward_tasks(rows: Sequence[Row], comms: CommNumbers, host: HostTimes) -> TaskList:
    """Forward of a chunk, or of some of its rows: each computes, then waits for its collective.

    A row with a `forward_lag` waits only at the end of the row that many places on.
    """
    builder = _TaskListBuilder(comms=comms)
    phase = Phase.FORWARD
    after = builder.host(HostPart.HOST_OVERHEAD, phase, host, ())
    after = builder.host(HostPart.GET_BATCH, phase, host, after)
    after = _forward_rows(builder, rows, after)
    builder.host(HostPart.LOSS_TIME, phase, host, after)
    return builder.build("forward", Phase.FORWARD)


def backward_tasks(
    rows: Sequence[Row],
    comms: CommNumbers,
    host: HostTimes,
    *,
    kind: ActionKind = ActionKind.BACKWARD,
    skipped: int = 0,
) -> TaskList:
    """Backward of a chunk, or its input-gradient or weight-gradient part: rows in reverse.

    The first `skipped` rows are left out, but for what runs again of them. Input-gradient compute;
    its collective, beside which the weight-gradient compute runs, before it if the row has
    `weights_first`, after it if it has `weights_last`; the next row waits for both, or, after a row
    with a `backward_lag`, for the collective only at the end of the row that many places on. Rows
    between the last checkpoint and a `recompute` row run forward again before that row's backward.
    Weight-gradient collectives are not part of it: they run once per step.
    """
    builder = _TaskListBuilder(comms=comms)
    input_grad, weight_grad = kind is not ActionKind.WEIGHT_GRAD, kind is not ActionKind.INPUT_GRAD
    phase = Phase.INPUT_GRAD if input_grad else Phase.WEIGHT_GRAD
    after = builder.host(HostPart.HOST_OVERHEAD, phase, host, ())
    part = range(skipped, len(rows))
    due: dict[int, Numbers] = {}
    for i in reversed(part):
        row = rows[i]
        inputs, weighted = row.item(Phase.INPUT_GRAD), row.item(Phase.WEIGHT_GRAD)
        host_ps = row.input_grad.host_ps * input_grad + row.weight_grad.host_ps * weight_grad
        after = builder.launched(after) if host_ps else after
        begun = gradient = reduced = after
        if input_grad:
            if row.recompute:
                after = _forward_rows(builder, rows[_last_checkpoint(rows, i) : i], after)
            gradient = builder.compute(inputs, after)
            if row.weights_first and weight_grad:
                gradient = builder.compute(weighted, gradient)
            reduced = builder.collectives(inputs, gradient)
        weights: Numbers = ()
        if weight_grad and not (row.weights_first and input_grad):
            waits = row.weights_last and (row.weight_grad.compute_ps or not row.backward_lag)
            beside = reduced if waits else gradient
            weights = builder.compute(weighted, beside)
        builder.launch(inputs, host_ps, begun)
        if row.backward_lag and reduced != gradient:
            last = max(i - row.backward_lag, part.start)
            due[last] = (*due.get(last, ()), *reduced)
            reduced = gradient
        after = tuple(sorted({*reduced, *weights, *due.pop(i, ())}))
    return builder.build("backward", Phase.INPUT_GRAD)


def fused_tasks(forward: TaskList, backward: TaskList, comms: CommNumbers) -> TaskList:
    """A forward and a backward as one: they take turns on the compute stream.

    Where both exchange tokens between experts, a half computes up to its next exchange while that
    of the other is under way, the backward first (Megatron-LM `TransformerLayerSchedulePlan.run`;
    DeepSeek-V3 technical report, section 3.2.1). Else tasks are merged by how far each half has
    come.
    """
    builder = _TaskListBuilder(comms=comms)
    halves = (forward, backward)
    place: dict[tuple[int, int], Numbers] = {}
    for half, number in _turns(halves, comms):
        task = halves[half].tasks[number]
        after = tuple(i for earlier in task.after for i in place[half, earlier])
        place[half, number] = builder.add(**asdict(task) | {"after": after})
    return builder.build("fused", Phase.FORWARD)


def _turns(halves: tuple[TaskList, TaskList], comms: CommNumbers) -> Iterator[tuple[int, int]]:
    """Half and number of the tasks of two task lists in the order in which they run as one."""
    exchanges = [
        [task.comm >= 0 and comms.ops[task.comm].axis is ParallelAxis.EP for task in half.tasks]
        for half in halves
    ]
    if all(map(any, exchanges)):
        progress, first = [_passed(each) for each in exchanges], 1
    else:
        progress, first = [_computed(half) for half in halves], 0
    merged = sorted(
        (share, half != first, number)
        for half, shares in enumerate(progress)
        for number, share in enumerate(shares)
    )
    return ((1 - first if is_other else first, number) for _, is_other, number in merged)


def _passed(exchanges: Sequence[bool]) -> list[float]:
    """Share of the exchanges that lie before each task."""
    done = accumulate(exchanges, initial=0)
    return [before / sum(exchanges) for before, _ in zip(done, exchanges, strict=False)]


def _computed(task_list: TaskList) -> list[float]:
    """Share of the task list's compute done when each task ends."""
    done = list(accumulate(task.duration_ps for task in task_list.tasks))
    return [each / (done[-1] or 1) for each in done]


def _forward_rows(builder: _TaskListBuilder, rows: Sequence[Row], after: Numbers) -> Numbers:
    due: dict[int, Numbers] = {}
    for i, row in enumerate(rows):
        item = row.item(Phase.FORWARD)
        after = builder.launched(after) if item.work.host_ps else after
        begun = after
        after = builder.compute(item, after)
        builder.launch(item, item.work.host_ps, begun)
        done = builder.collectives(item, after)
        if row.forward_lag:
            last = min(i + row.forward_lag, len(rows) - 1)
            due[last] = (*due.get(last, ()), *done)
        else:
            after = done
        if i in due:
            after = tuple(sorted({*after, *due[i]}))
    return builder.launched(after)


def _last_checkpoint(rows: Sequence[Row], i: int) -> int:
    """Nearest checkpoint at or before row i, else the chunk's input, which every runtime keeps."""
    kept = [j for j in range(i + 1) if rows[j].checkpoint]
    return kept[-1] if kept else 0


class TaskLists(Struct, kw_only=True):
    """Makes each distinct task list once: rows that say the same share one."""

    comms: CommNumbers
    host: HostTimes
    last_stage: int
    lists: list[TaskList] = []
    _numbers: dict[tuple[Task, ...], int] = {}
    _of_actions: dict[tuple[object, ...], tuple[Rows, int]] = {}

    def action(self, action: Action, rows: Rows, part: range | None = None) -> int:
        """Number of the task list of an action, or of some rows' share of it.

        What runs again in the backward goes back to its checkpoint, ahead of the share.
        """
        share = range(len(rows)) if part is None else part
        host = self._host_of(action, share, len(rows))
        forward = action.kind is ActionKind.FORWARD
        again = () if forward else (i for i in share if rows[i].recompute)
        first = min([share.start, *(_last_checkpoint(rows, i) for i in again)])
        own, skipped = rows[first : share.stop], share.start - first
        key = tuple(map(id, own)), action.kind, skipped, host
        if key not in self._of_actions:
            if forward:
                made = forward_tasks(own, self.comms, host)
            else:
                made = backward_tasks(own, self.comms, host, kind=action.kind, skipped=skipped)
            self._of_actions[key] = own, self.add(made)  # rows that are held keep their ids
        return self._of_actions[key][1]

    def _host_of(self, action: Action, share: range, rows: int) -> HostTimes:
        """Host time of an action of so many rows, or of a share of them.

        Overhead is before an action's first part, which of a backward has its last rows. The first
        stage's forwards get their batch, the last stage's compute the loss. A weight gradient has
        none: the runtime of Zero Bubble takes it from a queue, with all that it needs, where other
        actions wait for messages.
        """
        if action.kind is ActionKind.WEIGHT_GRAD:
            return NO_HOST
        forward = action.kind is ActionKind.FORWARD
        begins = share.start == 0 if forward else share.stop == rows
        gets = forward and begins and action.stage == 0
        loses = forward and share.stop == rows and action.stage == self.last_stage
        return tuple(map(mul, self.host, (begins, gets, loses)))

    def fused(self, forward: int, backward: int) -> int:
        """Number of the task list of a fused pair of two task lists."""
        halves = self.lists[forward], self.lists[backward]
        return self.add(fused_tasks(*halves, self.comms))

    def per_step(self, items: Sequence[StepItem]) -> int:
        """Number of the task list of what follows the pipeline.

        Items run one after the other, each with its compute and collectives.
        """
        builder = _TaskListBuilder(comms=self.comms)
        after: Numbers = ()
        for item in items:
            begun = after
            after = builder.compute(item, after)
            builder.launch(item, item.work.host_ps, begun)
            after = builder.collectives(item, builder.launched(after))
        return self.add(builder.build("per-step", Phase.FORWARD))

    def beside(self, label: str, ops: Sequence[CommOp], stream: Stream) -> int | None:
        """Number of the task list of collectives beside the actions; None if none is."""
        builder = _TaskListBuilder(comms=self.comms, detached=stream)
        phase = Phase.FORWARD if stream is Stream.FSDP else Phase.WEIGHT_GRAD
        builder.collectives(StepItem(name=label, phase=phase, work=Work(comms=tuple(ops))), ())
        return self.add(builder.build(label, phase)) if builder.tasks else None

    def add(self, task_list: TaskList) -> int:
        """Number of a task list, that of the one with the same tasks where there is one."""
        number = self._numbers.setdefault(task_list.tasks, len(self.lists))
        if number == len(self.lists):
            self.lists.append(task_list)
        return number


def gradient_buckets(
    ops: Sequence[CommOp], rows: Sequence[Row], bucket_bytes: int
) -> Iterator[tuple[CommOp, ...]]:
    """Gradients reduced piece by piece: of each row in turn, what to reduce when its are ready.

    As Megatron-LM's distributed data parallel does with `overlap_grad_reduce`: rows add their
    gradients to a bucket, and a full bucket is reduced at once; until then there is nothing to
    reduce. `ops` reduce the gradients of all rows, which stand in the order of their backwards. A
    row's share of the gradients is that of its parameters; where rows do not say them, its share of
    the weight-gradient compute, which grows with them. Where none says either, all have the same.
    """
    told: list[Callable[[Row], int]] = [
        lambda row: row.parameters + row.expert_parameters,
        lambda row: row.weight_grad.compute_ps,
    ]
    weight_of = next((each for each in told if any(map(each, rows))), lambda _: 1)
    weights = [weight_of(row) for row in rows]
    whole, taken = sum(weights), [0] * len(ops)
    for weight, passed in zip(weights, accumulate(weights), strict=True):
        ready = [op.size_bytes * passed // whole for op in ops]
        full = sum(ready) - sum(taken) >= bucket_bytes or passed == whole
        if weight and full:
            shares = zip(ops, taken, ready, strict=True)
            yield tuple(replace(op, size_bytes=b - a) for op, a, b in shares if b > a)
            taken = ready
        else:
            yield ()


def spread_launches(rows: Sequence[Row]) -> Rows:
    """Rows whose backward launches are shared out over the rows that they are for, by compute.

    A backward meets a row with host times first, and then the rows before it in `rows` up to the
    next with such. Run as one list, those rows take the longer of their compute and their launches;
    run one by one they take as long again where each has the same share of both. For example rows
    of 3, 0 and 1 ps of compute, the last with 8 ps of launches, get 6, 0 and 2 ps.
    """
    found = list(rows)
    last = len(rows)
    for first in range(len(rows) - 1, -1, -1):
        if first and not _launches(rows[first - 1]):
            continue
        found[first:last] = _shared(rows[first:last])
        last = first
    return tuple(found)


def reduces_as_it_launches(rows: Iterable[Row]) -> bool:
    """Whether some rows reduce gradients row by row, and some backward has the host's launches."""
    every = tuple(rows)
    return any(row.weight_grad.comms for row in every) and any(map(_launches, every))


def _launches(row: Row) -> bool:
    return row.input_grad.host_ps > 0 or row.weight_grad.host_ps > 0


def _shared(unit: Sequence[Row]) -> list[Row]:
    """The launches of a unit's last row, over all its rows."""
    host = unit[-1].input_grad.host_ps, unit[-1].weight_grad.host_ps
    compute = [row.input_grad.compute_ps + row.weight_grad.compute_ps for row in unit]
    total, done, found = sum(compute), 0, []
    if not total or not any(host):
        return list(unit)
    for row, own in zip(unit, compute, strict=True):
        input_ps, weight_ps = (each * (done + own) // total - each * done // total for each in host)
        done += own
        found.append(
            replace(
                row,
                input_grad=replace(row.input_grad, host_ps=input_ps),
                weight_grad=replace(row.weight_grad, host_ps=weight_ps),
            )
        )
    return found
