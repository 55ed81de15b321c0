"""What is told of the spans of one simulated rank."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np
from msgspec import Struct, field

from stepsim.explain.critical_path import Walk
from stepsim.graph.programs import Program, Segment, SegmentKind
from stepsim.network.prices import Use
from stepsim.parallel.p2p import Message
from stepsim.show.trace.document import Category, Label, Slice, SliceColumns
from stepsim.show.trace.labels import Labels, Ways, actions_of
from stepsim.show.trace.window import Window
from stepsim.tables.spans import Spans

_MESSAGES = (SegmentKind.SEND, SegmentKind.RECV)


class Slicer(Struct, kw_only=True):
    """Tells the spans of the `shown` actors that reach into a window.

    Messages between shown actors are numbered from `first_message`.
    """

    walk: Walk
    labels: Labels
    shown: Sequence[int]
    window: Window
    first_message: int
    _numbers: dict[int, int] = field(default_factory=dict)
    _carried: list[dict[int, Message]] = field(default_factory=list)
    _actions: dict[int, list[Label]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.walk.timeline.graph
        sizes = [len(self.walk.columns[actor][0].laid.program.segments) for actor in self.shown]
        firsts = list(accumulate(sizes, initial=self.first_message))
        self._numbers = dict(zip(self.shown, firsts, strict=False))
        for program, messages in zip(graph.programs, graph.messages(), strict=True):
            ends = (i for i, s in enumerate(program.segments) if s.kind in _MESSAGES)
            self._carried.append(dict(zip(ends, messages, strict=True)))

    def schedule(self, actor: int, spans: Spans) -> list[Slice]:
        """The actions of a rank, and what it runs after the pipeline; `spans` are all of its."""
        program = self.walk.columns[actor][0].laid.program
        starts, ends = (times.tolist() for times in spans.actions())
        slices = list(map(Slice, self.actions(program), starts, ends))
        after = Label(name="per step", category=Category.PER_STEP, facts={"stage": program.stage})
        for number in np.flatnonzero(program.shape.kind == SegmentKind.PER_STEP).tolist():
            tasks = spans.taken(spans.segment == number)
            slices.append(Slice(after, int(tasks.start_ps.min()), int(tasks.end_ps.max())))
        return [each for each in slices if self.window.holds(each.start_ps, each.end_ps)]

    def columns(self, actor: int, spans: Spans) -> SliceColumns:
        """What is told of the spans of a rank that reach into the window."""
        teller = _Teller(slicer=self, actor=actor, starts=spans.start_ps.tolist())
        held = self.window.holds(spans.start_ps, spans.end_ps).tolist()
        ends, first = spans.end_ps.tolist(), 0
        for number, segment in enumerate(teller.program.segments):
            if segment.task_list < 0:
                teller.message(number, segment, first, ends[first], held[first])
                first += 1
            else:
                past = first + teller.tasks_in(segment)
                teller.task_list(number, segment, first, ends[first:past], held[first:past])
                first = past
        return teller.said

    def actions(self, program: Program) -> list[Label]:
        """Labels of a program's entries."""
        if program.stage not in self._actions:
            self._actions[program.stage] = actions_of(program)
        return self._actions[program.stage]

    def carried(self, stage: int, segment: int) -> Message:
        """The message whose end a segment is."""
        return self._carried[stage][segment]

    def message_number(self, actor: int, number: int, segment: Segment) -> int:
        """Number of a message of a shown actor, 0 if its other end is not shown."""
        peer = self.walk.far(actor, segment.peer_stage)
        if peer not in self._numbers:
            return 0
        if segment.kind is SegmentKind.SEND:
            return self._numbers[actor] + number
        return self._numbers[peer] + segment.peer


class _Teller(Struct, kw_only=True, dict=True):
    """Tells one actor's program, segment by segment; `starts` are those of its spans.

    `done` and `called` are the end of every segment so far, and the name of what ended then.
    """

    slicer: Slicer
    actor: int
    starts: Sequence[int]
    labels: list[Label] = field(default_factory=list)
    actions: list[Label | None] = field(default_factory=list)
    waited_for: list[str] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    called: list[str] = field(default_factory=list)

    @cached_property
    def program(self) -> Program:
        """What the actor runs."""
        return self.slicer.walk.columns[self.actor][0].laid.program

    @cached_property
    def ways(self) -> Ways:
        """The ways between its rank and others."""
        rank = self.slicer.walk.timeline.actors.ranks[self.actor]
        return self.slicer.labels.ways(int(rank))

    @cached_property
    def of_entries(self) -> list[Label]:
        """The labels of its actions."""
        return self.slicer.actions(self.program)

    @property
    def said(self) -> SliceColumns:
        """What is told of the spans so far."""
        return SliceColumns(self.labels, self.actions, self.waited_for, self.messages)

    def tasks_in(self, segment: Segment) -> int:
        return len(self.slicer.walk.timeline.graph.task_lists[segment.task_list].tasks)

    def message(self, number: int, segment: Segment, first: int, end: int, held: bool) -> None:
        """Tell an end of a message, which is span `first` of the rank."""
        use = Use(
            comm=segment.comm,
            stage=self.program.stage,
            peer_stage=segment.peer_stage,
            sends=segment.kind is SegmentKind.SEND,
        )
        carried = self.slicer.carried(self.program.stage, number)
        label = self.slicer.labels.message(use, carried, self.ways)
        if held:
            start = self.starts[first]
            self.labels.append(label)
            self.actions.append(None)
            self.waited_for.append(self._waited_for(self._before(segment), number, 0, start))
            self.messages.append(self.slicer.message_number(self.actor, number, segment))
        self.done.append(end)
        self.called.append(label.name)

    def task_list(
        self, number: int, segment: Segment, first: int, ends: Sequence[int], held: Sequence[bool]
    ) -> None:
        """Tell the tasks of a task list, which are the spans of the rank from `first` on."""
        tasks = self.slicer.walk.timeline.graph.task_lists[segment.task_list].tasks
        labels = self.slicer.labels.tasks(
            self.program.stage, segment.task_list, segment.kind, self.ways
        )
        action = self.of_entries[segment.entry] if segment.entry >= 0 else None
        for inner, task in enumerate(tasks):
            if held[inner]:
                inside = ((ends[i], labels[i].name) for i in reversed(task.after))
                before = inside if task.after else self._before(segment)
                start = self.starts[first + inner]
                self.labels.append(labels[inner])
                self.waited_for.append(self._waited_for(before, number, inner, start))
        count = len(self.labels) - len(self.actions)
        self.actions += [action] * count
        self.messages += [0] * count
        last = max(range(len(ends)), key=ends.__getitem__)
        self.done.append(ends[last])
        self.called.append((action or labels[last]).name)

    def _before(self, segment: Segment) -> Iterator[tuple[int, str]]:
        """End and name of the segments that a segment waits for, the last first."""
        return ((self.done[s], self.called[s]) for s in reversed(segment.after))

    def _waited_for(
        self, before: Iterable[tuple[int, str]], number: int, inner: int, start: int
    ) -> str:
        """What ended when a task started: one of those before it, or another rank's task."""
        if not start:
            return ""
        for end, name in before:
            if end == start:
                return name
        walk = self.slicer.walk
        laid = walk.columns[self.actor][0].laid
        place = self.actor, laid.first[number] + inner
        other, _ = next(p for p in walk.before(place) if walk.end_ps(p) == start)
        return f"rank {walk.timeline.actors.ranks[other]}"
