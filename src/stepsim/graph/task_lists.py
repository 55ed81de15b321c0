"""The task lists of a graph, each made once, and gradients that are reduced piece by piece."""

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from stepsim.base.records import dataclass
from stepsim.graph.actions import (
    BackwardParts,
    CommNumbers,
    HostTimes,
    TaskList,
    backward_tasks,
    forward_tasks,
    fused_tasks,
    reduction_tasks,
)
from stepsim.options import StepOptions
from stepsim.parallel.schedules import Action, ActionKind
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
class Buckets:
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


def gradient_buckets(ops: Sequence[CommOp], rows: Sequence[Row], bucket_bytes: int) -> Buckets:
    """Buckets for the gradients of these rows."""
    weight = sum(row.weight_grad.compute_ps for row in rows)
    return Buckets(
        ops=tuple(ops), bucket_bytes=bucket_bytes, weight=weight or len(rows), even=not weight
    )
