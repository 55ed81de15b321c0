"""What the slices of a run are called, and the facts about them."""

import numpy as np

from stepsim.base.structs import Noun
from stepsim.core.actions import Task
from stepsim.core.write import Program, SegmentKind, TaskGraph
from stepsim.network.prices import Prices, Use
from stepsim.parallel.p2p import Message
from stepsim.parallel.schedules import Action, ActionKind, OrderEntry
from stepsim.run.spans import UNKNOWN, Spans, TaskKind, TaskPhase
from stepsim.show.trace.document import Category, Fact, Label, SliceColumns
from stepsim.workload.axes import Group, Phase

_OF_ACTION = {
    ActionKind.FORWARD: Category.FORWARD,
    ActionKind.BACKWARD: Category.BACKWARD,
    ActionKind.INPUT_GRAD: Category.INPUT_GRAD,
    ActionKind.WEIGHT_GRAD: Category.WEIGHT_GRAD,
}
_OF_PHASE = {
    Phase.FORWARD: Category.FORWARD,
    Phase.INPUT_GRAD: Category.INPUT_GRAD,
    Phase.WEIGHT_GRAD: Category.WEIGHT_GRAD,
}

_CATEGORIES = {
    TaskKind.COLLECTIVE: Category.COLLECTIVE,
    TaskKind.SEND: Category.SEND,
    TaskKind.RECV: Category.RECV,
    TaskKind.HOST: Category.HOST,
}
_RECORDED_PHASES = {
    TaskPhase.UNKNOWN: Category.FUSED,
    TaskPhase.FORWARD: Category.FORWARD,
    TaskPhase.BACKWARD: Category.BACKWARD,
    TaskPhase.UPDATE: Category.PER_STEP,
}

Ways = dict[Use, str]
"""The algorithm of each communication of a rank."""


def actions_of(program: Program) -> list[Label]:
    """Labels of the entries of a program."""
    chunks = len({action.chunk for entry in program.entries for action in entry.parts()})
    return [_action(entry, numbered=chunks > 1) for entry in program.entries]


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
        name=" + ".join(_action_name(part, numbered=numbered) for part in parts),
        category=_OF_ACTION[first.kind] if len(parts) == 1 else Category.FUSED,
        facts=facts,
    )


def _action_name(action: Action, *, numbered: bool) -> str:
    return f"{action.kind}{action.microbatch}" + (f" chunk {action.chunk}" if numbered else "")


class Labels(Noun):
    """Labels of tasks and messages, each made once."""

    graph: TaskGraph
    prices: Prices
    _tasks: dict[tuple[object, ...], list[Label]] = {}
    _messages: dict[tuple[object, ...], Label] = {}

    def ways(self, rank: int) -> Ways:
        """How a rank's communications are carried out."""
        found = {}
        for use in self.graph.programs[self.graph.plan.stage_of(rank)].uses:
            look = self.prices.patterns(use).look(rank)
            found[use] = self.prices.cost(use, look).way
        return found

    def tasks(self, stage: int, number: int, kind: SegmentKind, ways: Ways) -> list[Label]:
        """Labels of the tasks of task list `number` in a segment of this kind."""
        tasks = self.graph.task_lists[number].tasks
        mine = tuple(ways[Use(comm=t.comm, stage=stage)] for t in tasks if t.comm >= 0)
        key = stage, number, kind, mine
        if key not in self._tasks:
            self._tasks[key] = [self._task(task, stage, kind, ways) for task in tasks]
        return self._tasks[key]

    def message(self, use: Use, message: Message, ways: Ways) -> Label:
        """Label of one end of a message."""
        key = use, message, ways[use]
        if key not in self._messages:
            kind = TaskKind.SEND if use.sends else TaskKind.RECV
            what = f"{message.kind}{message.microbatch}"
            side = "to" if use.sends else "from"
            self._messages[key] = Label(
                name=f"{kind.name.lower()} {what} {side} stage {use.peer_stage}",
                category=Category.SEND if use.sends else Category.RECV,
                facts={
                    "kind": kind.name.lower(),
                    "stage": use.stage,
                    "peer_stage": use.peer_stage,
                    "microbatch": message.microbatch,
                    "source": message.source,
                    "target": message.target,
                    **self._communication(use, ways),
                },
            )
        return self._messages[key]

    def _task(self, task: Task, stage: int, kind: SegmentKind, ways: Ways) -> Label:
        facts: dict[str, Fact] = {
            "kind": task.kind.name.lower(),
            "stage": stage,
            "row": task.label,
            "phase": task.phase,
        }
        if task.comm >= 0:
            facts |= self._communication(Use(comm=task.comm, stage=stage), ways)
            op = self.graph.comms[task.comm]
            return Label(name=f"{op.group} {op.kind}", category=Category.COLLECTIVE, facts=facts)
        category = _OF_PHASE[task.phase] if kind is SegmentKind.ACTION else Category.PER_STEP
        category = Category.HOST if task.kind is TaskKind.HOST else category
        return Label(name=task.label, category=category, facts=facts)

    def _communication(self, use: Use, ways: Ways) -> dict[str, Fact]:
        op = self.graph.comms[use.comm]
        ranks = 2 if op.group is Group.PP else self.graph.plan.group_size(op.group)
        return {
            "group": op.group,
            "collective": op.kind,
            "ranks": ranks,
            "bytes": op.size_bytes,
            "algorithm": ways[use],
        }


def recorded_slices(
    spans: Spans, labels: dict[tuple[int, ...], Label], first_message: int
) -> SliceColumns:
    """What slices of a rank's operations say; `labels` are those made before, by what they tell.

    The ends of a message have the number of their meeting, counted from `first_message`.
    """
    facts = (spans.step, spans.group, spans.peer, spans.size_bytes, spans.microbatch, spans.chunk)
    keys = np.stack([spans.name, spans.kind, spans.phase, *facts], axis=1).tolist()
    for key in keys:
        if tuple(key) not in labels:
            labels[tuple(key)] = _operation(spans, *key)
    met = spans.of_kind(TaskKind.SEND, TaskKind.RECV) & (spans.meeting != UNKNOWN)
    return SliceColumns(
        labels=[labels[tuple(key)] for key in keys],
        actions=[None] * len(keys),
        waited_for=[""] * len(keys),
        messages=np.where(met, spans.meeting + first_message, 0).tolist(),
    )


def _operation(spans: Spans, name: int, kind: int, phase: int, *facts: int) -> Label:
    """What an operation is: its name, category, and the facts that are known."""
    names = ("step", "group", "peer", "size_bytes", "microbatch", "chunk")
    known: dict[str, Fact] = {n: fact for n, fact in zip(names, facts, strict=True) if fact >= 0}
    if "group" in known:
        known["group"] = spans.groups[facts[1]]
    return Label(
        name=spans.names[name],
        category=_CATEGORIES.get(TaskKind(kind)) or _RECORDED_PHASES[TaskPhase(phase)],
        facts=known,
    )
