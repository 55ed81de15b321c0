"""What one simulated rank runs, as slices of its streams."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate

from msgspec import Struct, field

from stepsim.graph.programs import Program, Segment, SegmentKind, Use
from stepsim.parallel.p2p import Message
from stepsim.results.critical_path import Walk
from stepsim.show.trace.document import Category, Label, Slice
from stepsim.show.trace.labels import Labels, Ways, actions_of
from stepsim.show.trace.window import Window
from stepsim.workload.rows import Stream

_MESSAGES = (SegmentKind.SEND, SegmentKind.RECV)


class Slicer(Struct, kw_only=True):
    """Makes slices of the `shown` actors that reach into a window.

    `last_message` is the highest number of a message.
    Messages between shown actors are numbered from `first_message`.
    """

    walk: Walk
    labels: Labels
    shown: Sequence[int]
    window: Window
    first_message: int
    last_message: int = 0
    _numbers: dict[int, int] = field(default_factory=dict)
    _carried: list[dict[int, Message]] = field(default_factory=list)
    _actions: dict[int, list[Label]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.walk.timeline.graph
        sizes = [len(self.walk.columns[actor][0].laid.program.segments) for actor in self.shown]
        firsts = list(accumulate(sizes, initial=self.first_message))
        self._numbers = dict(zip(self.shown, firsts, strict=False))
        self.last_message = firsts[-1] - 1
        for program, messages in zip(graph.programs, graph.messages(), strict=True):
            ends = (i for i, s in enumerate(program.segments) if s.kind in _MESSAGES)
            self._carried.append(dict(zip(ends, messages, strict=True)))

    def schedule(self, actor: int) -> list[Slice]:
        """The actions of a rank, and what it runs after the pipeline."""
        cohort, column = self.walk.columns[actor]
        program = cohort.laid.program
        starts, ends = (times[:, column].tolist() for times in cohort.entry_times)
        slices = [
            Slice(label=label, start_ps=start, end_ps=end)
            for label, start, end in zip(self.actions(program), starts, ends, strict=True)
        ]
        after = Label(name="per step", category=Category.PER_STEP, facts={"stage": program.stage})
        bounds = [*cohort.laid.first, len(cohort.start)]
        for number, segment in enumerate(program.segments):
            if segment.kind is SegmentKind.PER_STEP:
                tasks = slice(bounds[number], bounds[number + 1])
                start, end = cohort.start[tasks, column].min(), cohort.end[tasks, column].max()
                slices.append(Slice(label=after, start_ps=int(start), end_ps=int(end)))
        return [each for each in slices if self.window.holds(each.start_ps, each.end_ps)]

    def streams(self, actor: int) -> dict[Stream, list[Slice]]:
        """Every task of a rank on its stream, by start."""
        times = self.walk.timeline.tasks(int(self.walk.timeline.actors.ranks[actor]))
        teller = _Teller(slicer=self, actor=actor)
        starts, ends = times.start.tolist(), times.end.tolist()
        first = 0
        for number, segment in enumerate(teller.program.segments):
            if segment.task_list < 0:
                teller.message(number, segment, starts[first], ends[first])
                first += 1
            else:
                past = first + teller.tasks_in(segment)
                teller.task_list(number, segment, starts[first:past], ends[first:past])
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
        """Number of a message of a shown actor, 0 if its other end is not shown."""
        peer = self.walk.far(actor, segment.peer_stage)
        if peer not in self._numbers:
            return 0
        if segment.kind is SegmentKind.SEND:
            return self._numbers[actor] + number
        return self._numbers[peer] + segment.peer


class _Teller(Struct, kw_only=True, dict=True):
    """Tells one actor's program, segment by segment.

    `done` and `called` are the end of every segment so far, and the name of what ended then.
    """

    slicer: Slicer
    actor: int
    found: dict[Stream, list[Slice]] = field(default_factory=lambda: defaultdict(list))
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
    def actions(self) -> list[Label]:
        """The labels of its actions."""
        return self.slicer.actions(self.program)

    def tasks_in(self, segment: Segment) -> int:
        return len(self.slicer.walk.timeline.graph.task_lists[segment.task_list].tasks)

    def message(self, number: int, segment: Segment, start: int, end: int) -> None:
        use = Use(
            comm=segment.comm,
            stage=self.program.stage,
            peer_stage=segment.peer_stage,
            sends=segment.kind is SegmentKind.SEND,
        )
        carried = self.slicer.carried(self.program.stage, number)
        label = self.slicer.labels.message(use, carried, self.ways)
        if self.slicer.window.holds(start, end):
            waited_for = self._waited_for(self._before(segment), number, 0, start)
            arrow = self.slicer.message_number(self.actor, number, segment)
            self.found[segment.stream].append(Slice(label, start, end, None, waited_for, arrow))
        self.done.append(end)
        self.called.append(label.name)

    def task_list(
        self, number: int, segment: Segment, starts: Sequence[int], ends: Sequence[int]
    ) -> None:
        tasks = self.slicer.walk.timeline.graph.task_lists[segment.task_list].tasks
        labels = self.slicer.labels.tasks(
            self.program.stage, segment.task_list, segment.kind, self.ways
        )
        action = self.actions[segment.entry] if segment.entry >= 0 else None
        for inner, (task, label) in enumerate(zip(tasks, labels, strict=True)):
            start, end = starts[inner], ends[inner]
            if not self.slicer.window.holds(start, end):
                continue
            inside = ((ends[i], labels[i].name) for i in reversed(task.after))
            before = inside if task.after else self._before(segment)
            waited_for = self._waited_for(before, number, inner, start)
            self.found[task.stream].append(Slice(label, start, end, action, waited_for))
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
