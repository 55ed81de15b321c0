"""The task lists of a graph, each made once, and gradients that are reduced piece by piece."""

from collections.abc import Callable, Sequence
from typing import Self

from msgspec import Struct, field

from stepsim.base.kept import Same
from stepsim.base.structs import replace
from stepsim.graph.actions import (
    BackwardParts,
    CommNumbers,
    HostTimes,
    Task,
    TaskList,
    backward_tasks,
    forward_tasks,
    fused_tasks,
    per_step_tasks,
    reduction_tasks,
)
from stepsim.options import StepOptions
from stepsim.parallel.schedules import Action, ActionKind
from stepsim.workload.rows import CommOp, Phase, Row, StepItem, Stream

_GRADIENTS = {
    ActionKind.BACKWARD: (True, True),
    ActionKind.INPUT_GRAD: (True, False),
    ActionKind.WEIGHT_GRAD: (False, True),
}


class TaskOptions(Struct, frozen=True, kw_only=True):
    """What of a step's options its task lists depend on, each as it is named there."""

    host: HostTimes
    dp_overlap: bool
    dp_bucket_bytes: int

    @classmethod
    def of(cls, options: StepOptions) -> Self:
        """Those of a step."""
        return cls(
            host=HostTimes.of(options),
            dp_overlap=bool(options.dp_overlap),
            dp_bucket_bytes=options.dp_bucket_bytes,
        )


class TaskLists(Struct, kw_only=True):
    """Makes each distinct task list once: rows that say the same share one."""

    comms: CommNumbers
    options: TaskOptions
    last_stage: int
    lists: list[TaskList] = field(default_factory=list)
    _numbers: dict[tuple[Task, ...], int] = field(default_factory=dict)
    _of_actions: dict[tuple[object, ...], int] = field(default_factory=dict)

    def action(self, action: Action, rows: tuple[Row, ...], part: range | None = None) -> int:
        """Number of the task list of an action, or of some rows' share of it."""
        host = self.options.host.around(
            action, last_stage=self.last_stage, rows=len(rows), part=part
        )
        key = Same(rows), action.kind, part, host
        if key not in self._of_actions:
            self._of_actions[key] = self.add(self._of_action(rows, action.kind, part, host))
        return self._of_actions[key]

    def _of_action(
        self, rows: tuple[Row, ...], kind: ActionKind, part: range | None, host: HostTimes
    ) -> TaskList:
        if kind is ActionKind.FORWARD:
            own = rows if part is None else rows[part.start : part.stop]
            return forward_tasks(own, self.comms, host)
        input_grad, weight_grad = _GRADIENTS[kind]
        parts = BackwardParts(
            input_grad=input_grad,
            weight_grad=weight_grad,
            part=part,
        )
        return backward_tasks(rows, self.comms, parts, host)

    def fused(self, forward: int, backward: int) -> int:
        """Number of the task list of a fused pair of two task lists."""
        halves = self.lists[forward], self.lists[backward]
        return self.add(fused_tasks(*halves, self.comms))

    def per_step(self, items: Sequence[StepItem]) -> int:
        """Number of the task list of what follows the pipeline."""
        return self.add(per_step_tasks(items, self.comms))

    def beside(self, label: str, ops: Sequence[CommOp], stream: Stream) -> int | None:
        """Number of the task list of collectives beside the actions; None if none is."""
        phase = Phase.FORWARD if stream is Stream.FSDP else Phase.WEIGHT_GRAD
        made = reduction_tasks(label, ops, self.comms, stream=stream, phase=phase)
        return None if made is None else self.add(made)

    def add(self, task_list: TaskList) -> int:
        """Number of a task list, that of the one with the same tasks where there is one."""
        number = self._numbers.setdefault(task_list.tasks, len(self.lists))
        if number == len(self.lists):
            self.lists.append(task_list)
        return number


class Buckets(Struct, kw_only=True):
    """Gradients reduced piece by piece while the last backward goes on.

    As Megatron-LM's distributed data parallel does with `overlap_grad_reduce`: rows add their
    gradients to a bucket, and a full bucket is reduced at once. `ops` reduce the gradients of rows
    whose weights sum to `weight`. A row's share of the gradients is that of its parameters; where
    rows do not say them, its share of the weight-gradient compute, which grows with them. Where
    none says either, all have the same.
    """

    ops: tuple[CommOp, ...]
    bucket_bytes: int
    weight: int
    weight_of: Callable[[Row], int]
    _passed: int = 0
    _taken: tuple[int, ...] = ()

    def add(self, row: Row) -> tuple[CommOp, ...]:
        """The row's gradients are ready: what to reduce now, nothing until a bucket is full."""
        self._passed += self.weight_of(row)
        taken = self._taken or (0,) * len(self.ops)
        ready = tuple(op.size_bytes * self._passed // self.weight for op in self.ops)
        if sum(ready) - sum(taken) < self.bucket_bytes and self._passed < self.weight:
            return ()
        self._taken = ready
        shares = zip(self.ops, taken, ready, strict=True)
        return tuple(replace(op, size_bytes=b - a) for op, a, b in shares if b > a)


def gradient_buckets(ops: Sequence[CommOp], rows: Sequence[Row], bucket_bytes: int) -> Buckets:
    """Buckets for the gradients of these rows."""
    for weight_of in (_parameters, _compute):
        weight = sum(map(weight_of, rows))
        if weight:
            return Buckets(
                ops=tuple(ops), bucket_bytes=bucket_bytes, weight=weight, weight_of=weight_of
            )
    return Buckets(
        ops=tuple(ops), bucket_bytes=bucket_bytes, weight=len(rows), weight_of=lambda row: 1
    )


def _parameters(row: Row) -> int:
    return row.parameters + row.expert_parameters


def _compute(row: Row) -> int:
    return row.weight_grad.compute_ps
