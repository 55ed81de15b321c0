"""What tasks are, in columns named as those of `Spans`."""

from collections.abc import Mapping

import numpy as np

from stepsim.base.arrays import Ints, ints
from stepsim.core.flat import TaskRow, Tasks
from stepsim.core.write import Program, SegmentKind, TaskGraph
from stepsim.parallel.schedules import ActionKind
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase
from stepsim.workload.axes import Stream

PHASES_OF_KINDS = np.array([TaskPhase[kind.name] for kind in ActionKind])
"""Phases of actions by the numbers of their kinds."""
_WHOLE = {
    SegmentKind.ACTION: (TaskKind.COMPUTE, UNKNOWN, "action"),
    SegmentKind.PER_STEP: (TaskKind.COMPUTE, TaskPhase.UPDATE, "optimizer and gradient sync"),
    SegmentKind.REDUCTION: (TaskKind.COLLECTIVE, UNKNOWN, "gradient reduction"),
}
STREAMS: Mapping[int, str] = {stream.value: stream.name.lower() for stream in Stream}
"""Names of the streams of simulated ranks."""

# Kind, stream, phase, label and communication of a row.
_Facts = tuple[int, int, int, str, int]


def columns_of(tasks: Tasks, graph: TaskGraph, names: dict[str, int]) -> dict[str, Ints]:
    """The columns of the tasks of a program; `names` learns the labels, each with its number."""
    program, rows, segment = tasks.program, tasks.rows, tasks.segment
    kind, stream, phase, label, comm = zip(*(_facts(each, program) for each in rows), strict=True)
    sizes = [graph.comms[each].size_bytes if each >= 0 else 0 for each in comm]
    name = [names.setdefault(each, len(names)) for each in label]
    named = ("kind", "stream", "phase", "name", "group", "size_bytes")
    by_row = zip(named, (kind, stream, phase, name, comm, sizes), strict=True)
    columns = {key: ints(values).take(tasks.row) for key, values in by_row}
    entry, order = program.entry[segment].astype(np.int64), program.entries
    for key in ("chunk", "microbatch"):
        columns[key] = np.append(getattr(order, key)[:, 0], UNKNOWN)[entry]
    of_entry = np.append(PHASES_OF_KINDS[order.kind[:, 0]], UNKNOWN)[entry]
    for key, known in (("stream", program.stream[segment]), ("phase", of_entry)):
        columns[key] = np.where(columns[key] == UNKNOWN, known, columns[key])
    return columns | {"segment": segment.astype(np.int64), "entry": entry}


def _facts(row: TaskRow, program: Program) -> _Facts:
    task = row.task(program)
    if task:
        return task.kind, task.stream, TaskPhase[task.phase.name], task.label, task.comm
    if row.use:
        kind = TaskKind.SEND if row.use.sends else TaskKind.RECV
        way = "send to" if row.use.sends else "receive from"
        label = f"{way} stage {row.use.peer_stage}"
        return kind, UNKNOWN, TaskPhase.UNKNOWN, label, row.use.comm
    kind, phase, label = _WHOLE[row.look.kind]
    return kind, UNKNOWN, phase, label, UNKNOWN
