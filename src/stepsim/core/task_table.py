"""What tasks are, in columns named as those of `Spans`."""

from collections.abc import Mapping

import numpy as np

from stepsim.base.arrays import Ints, ints
from stepsim.base.axes import Stream
from stepsim.core.flat import TaskRow, Tasks
from stepsim.core.write import Program, SegmentKind, TaskGraph
from stepsim.parallel.schedules import Schedule
from stepsim.run.spans import PHASES_OF_KINDS, UNKNOWN, TaskKind, TaskPhase

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
    sizes = [graph.comms[each].size_bytes if each >= 0 else UNKNOWN for each in comm]
    name = [names.setdefault(each, len(names)) for each in label]
    named = ("kind", "stream", "phase", "name", "group", "size_bytes")
    by_row = zip(named, (kind, stream, phase, name, comm, sizes), strict=True)
    columns = {key: ints(values).take(tasks.row) for key, values in by_row}
    for key, known in ({"stream": program.stream} | _of_segments(program, graph.schedule)).items():
        own = columns.get(key, np.int64(UNKNOWN))
        columns[key] = np.where(own == UNKNOWN, known[segment], own).astype(np.int64)
    more = {"segment": segment, "entry": program.entry[segment]}
    return columns | {key: column.astype(np.int64) for key, column in more.items()}


def _of_segments(program: Program, schedule: Schedule) -> dict[str, Ints]:
    """Phase, chunk and microbatch of every segment: of its entry's first action, or of a message.

    The chunk is a virtual stage, of a message the one at the rank's own end.
    """
    order, entry = program.entries, program.entry
    number, receives = np.divmod(program.end, 2)
    rest, microbatch = np.divmod(number, schedule.microbatches)
    back, source = np.divmod(rest, schedule.placement.stages)
    carried = {
        "phase": np.where(back == 1, TaskPhase.BACKWARD, TaskPhase.FORWARD),
        "chunk": source + receives * (1 - 2 * back),
        "microbatch": microbatch,
    }
    first = PHASES_OF_KINDS[order.kind[:, 0]], order.stage[:, 0], order.microbatch[:, 0]
    return {
        name: np.where(program.end >= 0, of_message, np.append(of_entries, UNKNOWN)[entry])
        for (name, of_message), of_entries in zip(carried.items(), first, strict=True)
    }


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
