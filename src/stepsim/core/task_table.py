"""What the tasks of a graph are, in columns: looked up for the tasks that a program runs."""

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints, Small
from stepsim.core.write import Program, SegmentKind, TaskGraph
from stepsim.parallel.schedules import ActionKind
from stepsim.parallel.schedules.order import ACTION_KINDS, Order
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase
from stepsim.workload.rows import Kernels, Phase, Stream

_PHASES = {
    Phase.FORWARD: TaskPhase.FORWARD,
    Phase.INPUT_GRAD: TaskPhase.INPUT_GRAD,
    Phase.WEIGHT_GRAD: TaskPhase.WEIGHT_GRAD,
}
PHASES_OF_ACTIONS = {
    ActionKind.FORWARD: TaskPhase.FORWARD,
    ActionKind.BACKWARD: TaskPhase.BACKWARD,
    ActionKind.INPUT_GRAD: TaskPhase.INPUT_GRAD,
    ActionKind.WEIGHT_GRAD: TaskPhase.WEIGHT_GRAD,
}
_PHASES_OF_KINDS = np.array([PHASES_OF_ACTIONS[kind] for kind in ACTION_KINDS])
"""Phases by the numbers of kinds of actions."""
_WHOLE = {
    SegmentKind.ACTION: (TaskKind.COMPUTE, UNKNOWN, "action"),
    SegmentKind.PER_STEP: (TaskKind.COMPUTE, TaskPhase.UPDATE, "optimizer and gradient sync"),
    SegmentKind.REDUCTION: (TaskKind.COLLECTIVE, UNKNOWN, "gradient reduction"),
}
STREAMS: Mapping[int, str] = {stream.value: stream.name.lower() for stream in Stream}
"""Names of the streams of simulated ranks."""


class TaskTable(Struct, frozen=True, kw_only=True, eq=False):
    """The distinct tasks of a graph, a row each, in columns named as those of `Spans`.

    The tasks of task list i are the rows from `first[i]` on. Then come a send to each stage, a
    receipt from each stage, and whole segments by their kinds: their first rows are `sends`,
    `receipts` and `wholes`. `names` are the labels, each once. A column `kernels` beside those of
    `Spans` holds places in `kernels`, what compute is made of, `UNKNOWN` where nobody says it.
    """

    columns: dict[str, Ints]
    first: Ints
    sends: int
    receipts: int
    wholes: int
    names: tuple[str, ...]
    kernels: tuple[Kernels, ...]

    @classmethod
    def of(cls, graph: TaskGraph) -> "TaskTable":
        """The table of a graph."""
        names: dict[str, int] = {}
        numbers, kernels = _kernels(graph)
        rows = [
            (kind, stream, phase, names.setdefault(label, len(names)), comm, size)
            for kind, stream, phase, label, comm, size in _rows(graph)
        ]
        sizes = [len(task_list.tasks) for task_list in graph.task_lists]
        first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        sends, stages = int(first[-1]), len(graph.programs)
        columns = np.array(rows, dtype=np.int64).T.copy()
        made_of = np.full(len(rows), UNKNOWN, dtype=np.int64)
        made_of[: len(numbers)] = numbers
        named = ("kind", "stream", "phase", "name", "group", "size_bytes")
        return cls(
            columns=dict(zip(named, columns, strict=True)) | {"kernels": made_of},
            first=first,
            sends=sends,
            receipts=sends + stages,
            wholes=sends + 2 * stages,
            names=tuple(names),
            kernels=kernels,
        )

    def of_program(self, program: Program, segment: Small, inner: Small) -> dict[str, Ints]:
        """The columns of tasks of a program: `inner` is the place in the segment's task list.

        Where it is -1 the task is the segment as a whole.
        """
        known = (
            program.kind,
            program.task_lists,
            program.peer_stage,
            program.entry,
        )
        kind, task_list, peer, entry = (column[segment].astype(np.int64) for column in known)
        row = np.where(inner < 0, self.wholes + kind, self.first[task_list] + inner)
        row = np.where(kind == SegmentKind.SEND, self.sends + peer, row)
        row = np.where(kind == SegmentKind.RECV, self.receipts + peer, row)
        columns = {name: values[row] for name, values in self.columns.items()}
        columns["stream"] = np.where(inner < 0, program.stream[segment], columns["stream"])
        order = Order.of(program.entries)
        for name in ("chunk", "microbatch"):
            columns[name] = np.append(getattr(order, name)[:, 0], UNKNOWN)[entry]
        phase = np.append(_PHASES_OF_KINDS[order.kind[:, 0]], UNKNOWN)[entry]
        whole = (inner < 0) & (kind == SegmentKind.ACTION)
        columns["phase"] = np.where(whole, phase, columns["phase"])
        return columns | {"segment": segment.astype(np.int64), "entry": entry}


def _kernels(graph: TaskGraph) -> tuple[Ints, tuple[Kernels, ...]]:
    """The place of the kernels of every task of the task lists, and all kernels."""
    known: dict[int, int] = {}
    kernels: list[Kernels] = []
    numbers: list[int] = []
    for task_list in graph.task_lists:
        for task in task_list.tasks:
            if not task.kernels.run:
                numbers.append(UNKNOWN)
                continue
            if id(task.kernels) not in known:
                known[id(task.kernels)] = len(kernels)
                kernels.append(task.kernels)
            numbers.append(known[id(task.kernels)])
    return np.array(numbers, dtype=np.int64), tuple(kernels)


def _rows(graph: TaskGraph) -> Iterator[tuple[int, int, int, str, int, int]]:
    """Kind, stream, phase, label, communication and bytes of every row of a `TaskTable`."""
    for task_list in graph.task_lists:
        for task in task_list.tasks:
            size = graph.comms[task.comm].size_bytes if task.comm >= 0 else 0
            yield task.kind, task.stream, _PHASES[task.phase], task.label, task.comm, size
    message = graph.programs[0].message
    size = graph.comms[message].size_bytes if message >= 0 else 0
    for kind in (TaskKind.SEND, TaskKind.RECV):
        for stage in range(len(graph.programs)):
            label = f"{kind.name.lower()} stage {stage}"
            yield kind, UNKNOWN, TaskPhase.UNKNOWN, label, message, size
    for kind, phase, label in _WHOLE.values():
        yield kind, UNKNOWN, phase, label, UNKNOWN, 0
