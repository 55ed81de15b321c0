"""What one simulated rank runs, as slices of its streams."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from stepsim.critical_path import Walk
from stepsim.fragments import Stream
from stepsim.p2p import Message
from stepsim.program import Program, Segment, SegmentKind
from stepsim.taskgraph import Use
from stepsim.trace.document import Category, Label, Slice
from stepsim.trace.labels import Labels, Ways, actions_of

_MESSAGES = (SegmentKind.SEND, SegmentKind.RECV)


@dataclass(kw_only=True)
class Slicer:
    """Makes the slices of the `shown` actors of a run; `last_message` is the highest number.

    Messages between shown actors are numbered from `first_message`.
    """

    walk: Walk
    labels: Labels
    shown: Sequence[int]
    first_message: int
    last_message: int = 0
    _numbers: dict[int, int] = field(default_factory=dict)
    _carried: list[dict[int, Message]] = field(default_factory=list)
    _actions: dict[int, list[Label]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.walk.timeline.graph
        sizes = [len(self.walk.columns[actor][0].flat.program.segments) for actor in self.shown]
        firsts = list(accumulate(sizes, initial=self.first_message))
        self._numbers = dict(zip(self.shown, firsts, strict=False))
        self.last_message = firsts[-1] - 1
        for program, messages in zip(graph.programs, graph.messages(), strict=True):
            ends = (i for i, s in enumerate(program.segments) if s.kind in _MESSAGES)
            self._carried.append(dict(zip(ends, messages, strict=True)))

    def schedule(self, actor: int) -> list[Slice]:
        """The actions of a rank, and what it runs after the pipeline."""
        cohort, column = self.walk.columns[actor]
        program = cohort.flat.program
        starts, ends = (times[:, column].tolist() for times in cohort.entry_times)
        slices = [
            Slice(label=label, start_ps=start, end_ps=end)
            for label, start, end in zip(self.actions(program), starts, ends, strict=True)
        ]
        after = Label(name="per step", category=Category.PER_STEP, facts={"stage": program.stage})
        starts, ends = (times[:, column].tolist() for times in cohort.segment_times())
        return slices + [
            Slice(label=after, start_ps=starts[number], end_ps=ends[number])
            for number, segment in enumerate(program.segments)
            if segment.kind is SegmentKind.PER_STEP
        ]

    def streams(self, actor: int) -> dict[Stream, list[Slice]]:
        """Every task of a rank on its stream, by start."""
        times = self.walk.timeline.tasks(int(self.walk.timeline.actors.ranks[actor]))
        teller = _Teller(slicer=self, actor=actor)
        starts, ends = times.start.tolist(), times.end.tolist()
        first = 0
        for number, segment in enumerate(teller.program.segments):
            if segment.fragment < 0:
                teller.message(number, segment, starts[first], ends[first])
                first += 1
            else:
                past = first + teller.tasks_in(segment)
                teller.fragment(number, segment, starts[first:past], ends[first:past])
                first = past
        for slices in teller.found.values():
            slices.sort(key=lambda each: each.start_ps)
        return teller.found

    def actions(self, program: Program) -> list[Label]:
        """Labels of a program's entries."""
        if program.stage not in self._actions:
            self._actions[program.stage] = actions_of(program)
        return self._actions[program.stage]

    def carried(self, stage: int, segment: int) -> Message:
        """The message whose end a segment is."""
        return self._carried[stage][segment]

    def message_number(self, actor: int, number: int, segment: Segment) -> int:
        """Number of a message, 0 if only one of its ends is shown."""
        peer = self.walk.peer(actor, segment)
        if peer not in self._numbers or actor not in self._numbers:
            return 0
        if segment.kind is SegmentKind.SEND:
            return self._numbers[actor] + number
        return self._numbers[peer] + segment.peer


@dataclass(kw_only=True)
class _Teller:
    """Tells one actor's program, segment by segment.

    `done` and `called` are the end of every segment so far, and the name of what ended then.
    """

    slicer: Slicer
    actor: int
    found: dict[Stream, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    done: list[int] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    rank: int = field(init=False)
    program: Program = field(init=False)
    ways: Ways = field(init=False)
    actions: list[Label] = field(init=False)

    def __post_init__(self) -> None:
        walk = self.slicer.walk
        self.rank = int(walk.timeline.actors.ranks[self.actor])
        self.program = walk.columns[self.actor][0].flat.program
        self.ways = self.slicer.labels.ways(self.rank)
        self.actions = self.slicer.actions(self.program)

    def tasks_in(self, segment: Segment) -> int:
        return len(self.slicer.walk.timeline.graph.fragments[segment.fragment].tasks)

    def message(self, number: int, segment: Segment, start: int, end: int) -> None:
        use = Use(
            comm=segment.comm,
            stage=self.program.stage,
            peer_stage=segment.peer_stage,
            sends=segment.kind is SegmentKind.SEND,
        )
        carried = self.slicer.carried(self.program.stage, number)
        label = self.slicer.labels.message(use, carried, self.ways)
        waited_for = self._before(segment, start) or self._others(number, 0, start)
        arrow = self.slicer.message_number(self.actor, number, segment)
        self.found[segment.stream].append(Slice(label, start, end, None, waited_for, arrow))
        self.done.append(end)
        self.called.append(label.name)

    def fragment(
        self, number: int, segment: Segment, starts: Sequence[int], ends: Sequence[int]
    ) -> None:
        tasks = self.slicer.walk.timeline.graph.fragments[segment.fragment].tasks
        labels = self.slicer.labels.tasks(
            self.program.stage, segment.fragment, segment.kind, self.ways
        )
        action = self.actions[segment.entry] if segment.entry >= 0 else None
        for inner, (task, label) in enumerate(zip(tasks, labels, strict=True)):
            start = starts[inner]
            waited_for = ""
            if start:
                waited_for = next(
                    (labels[i].name for i in reversed(task.after) if ends[i] == start), ""
                )
                if not waited_for:
                    waited_for = self._before(segment, start) if not task.after else ""
                    waited_for = waited_for or self._others(number, inner, start)
            self.found[task.stream].append(Slice(label, start, ends[inner], action, waited_for))
        last = max(range(len(ends)), key=ends.__getitem__)
        self.done.append(ends[last])
        self.called.append((action or labels[last]).name)

    def _before(self, segment: Segment, start: int) -> str:
        """The earlier segment that ended when one could start."""
        return next((self.called[s] for s in reversed(segment.after) if self.done[s] == start), "")

    def _others(self, number: int, inner: int, start: int) -> str:
        """The rank for which a collective or a message waited."""
        if not start:
            return ""
        flat = self.slicer.walk.columns[self.actor][0].flat
        other, _ = self.slicer.walk.cause((self.actor, flat.first[number] + inner), start)
        return f"rank {self.slicer.walk.timeline.actors.ranks[other]}"
