"""What the slices of a run are called, and the facts about them."""

from collections.abc import Sequence

import numpy as np

from stepsim.core.flat import TaskRow, Tasks
from stepsim.core.write import Program, SegmentKind, TaskGraph
from stepsim.network.prices import Use
from stepsim.parallel.p2p import Message
from stepsim.parallel.schedules import OrderEntry
from stepsim.run.spans import UNKNOWN, Spans, TaskKind, TaskPhase
from stepsim.show.trace.document import Category, Fact, Label, Slice
from stepsim.workload.axes import Group

# Phases whose work has a category of another name.
_OTHER_NAMES = {TaskPhase.UNKNOWN: Category.FUSED, TaskPhase.UPDATE: Category.PER_STEP}

# What is told of an operation of a recorded run, where it is known.
_FACTS = ("step", "group", "peer", "size_bytes", "microbatch", "chunk")

Ways = dict[Use, str]
"""The algorithm of each communication of a rank."""


def actions_of(program: Program) -> list[Label]:
    """Labels of the entries of a program."""
    several = bool((program.entries.chunk > 0).any())
    return [_action(entry, numbered=several) for entry in program.entries]


def _action(entry: OrderEntry, *, numbered: bool) -> Label:
    """Label of an entry; chunks are `numbered` where there are several."""
    parts = entry.parts()
    first, second = parts[0], parts[-1]
    facts: dict[str, Fact] = {
        "action": entry.token,
        "chunk": first.chunk,
        "microbatch": first.microbatch,
    }
    if len(parts) > 1:
        facts |= {"backward_chunk": second.chunk, "backward_microbatch": second.microbatch}
    return Label(
        name=" + ".join(
            f"{part.kind}{part.microbatch}" + f" chunk {part.chunk}" * numbered for part in parts
        ),
        category=Category[first.kind.name] if len(parts) == 1 else Category.FUSED,
        facts=facts,
    )


def labels_of(
    tasks: Tasks, messages: Sequence[Message], graph: TaskGraph, ways: Ways
) -> list[Label]:
    """Labels of the tasks of a rank, each by itself; `messages` are those that it posts."""
    posted = iter(messages)
    of_rows = [_task(row, tasks.program, graph, ways) for row in tasks.rows]
    return [
        of_rows[row] or _message(tasks.rows[row].use, next(posted), graph, ways)
        for row in tasks.row.tolist()
    ]


def _task(row: TaskRow, program: Program, graph: TaskGraph, ways: Ways) -> Label | None:
    """Label of a task of a task list, None for a message."""
    task = row.task(program)
    if task is None:
        return None
    facts: dict[str, Fact] = {
        "kind": task.kind.name.lower(),
        "stage": program.stage,
        "row": task.label,
        "phase": task.phase,
    }
    if row.use:
        op = graph.comms[task.comm]
        facts |= _communication(row.use, graph, ways)
        return Label(name=f"{op.group} {op.kind}", category=Category.COLLECTIVE, facts=facts)
    in_action = row.look.kind is SegmentKind.ACTION
    category = Category[task.phase.name] if in_action else Category.PER_STEP
    category = Category.HOST if task.kind is TaskKind.HOST else category
    return Label(name=task.label, category=category, facts=facts)


def _message(use: Use, message: Message, graph: TaskGraph, ways: Ways) -> Label:
    """Label of one end of a message."""
    kind, side = ("send", "to") if use.sends else ("recv", "from")
    what = f"{message.kind}{message.microbatch}"
    return Label(
        name=f"{kind} {what} {side} stage {use.peer_stage}",
        category=Category(kind),
        facts={
            "kind": kind,
            "stage": use.stage,
            "peer_stage": use.peer_stage,
            "microbatch": message.microbatch,
            "source": message.source,
            "target": message.target,
            **_communication(use, graph, ways),
        },
    )


def _communication(use: Use, graph: TaskGraph, ways: Ways) -> dict[str, Fact]:
    op = graph.comms[use.comm]
    return {
        "group": op.group,
        "collective": op.kind,
        "ranks": 2 if op.group is Group.PP else graph.plan.group_size(op.group),
        "bytes": op.size_bytes,
        "algorithm": ways[use],
    }


def recorded_slices(spans: Spans, first_message: int) -> list[Slice]:
    """The slices of a rank's operations.

    The ends of a message have the number of their meeting, counted from `first_message`.
    """
    columns = (getattr(spans, name).tolist() for name in ("name", "kind", "phase", *_FACTS))
    keys = list(zip(*columns, strict=True))
    labels = {key: _operation(spans, *key) for key in set(keys)}
    met = spans.is_message & (spans.meeting != UNKNOWN)
    messages = np.where(met, spans.meeting + first_message, 0)
    times = (each.tolist() for each in (spans.start_ps, spans.end_ps, messages))
    return [
        Slice(labels[key], start, end, message=message)
        for key, start, end, message in zip(keys, *times, strict=True)
    ]


def _operation(spans: Spans, name: int, kind: int, phase: int, *facts: int) -> Label:
    """What an operation is: its name, category, and the facts that are known."""
    known: dict[str, Fact] = {n: fact for n, fact in zip(_FACTS, facts, strict=True) if fact >= 0}
    if "group" in known:
        known["group"] = spans.groups[facts[1]]
    part = TaskPhase(phase)
    of_phase = _OTHER_NAMES.get(part) or Category[part.name]
    category = Category.__members__.get(TaskKind(kind).name, of_phase)
    return Label(name=spans.names[name], category=category, facts=known)
