"""What ran, and when, and what waited for what: tables without rules.

Spans are those of simulated steps and of recorded ones alike: `Timeline.spans` and `Profile.spans`
make them; figures, CSV, traces and pages read them, so that a view is written once. What a source
does not tell is `UNKNOWN`, and is never guessed. Waits are of nodes in an order in which each
follows those that it waits for.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, Self

import numpy as np

from stepsim.base.arrays import Bools, Ints, Lists, Small, among
from stepsim.base.errors import TraceError
from stepsim.base.structs import Noun, Numbers, Values, replace
from stepsim.parallel.schedules import ActionKind, OrderEntry
from stepsim.parallel.schedules.base import Order

EndView = Callable[[Ints], Ints]
"""How a node sees the end of another: which of its values are its own, in which order."""


class NodeWaits(Noun, eq=False, dict=True):
    """Nodes, and what each waits for: node i starts after all of `after[i]`, which are before it.

    Level l is the nodes from `levels[l]` to `levels[l + 1]`: they wait for lower levels only. Where
    nodes wait for each other in a circle, those and what waits for them are behind the last level.
    `levels` is None where nodes stand in order, but not by levels. `results` are the nodes whose
    ends are wanted, None for all: others are forgotten once nothing waits for them. `views[i]` has
    how node i sees the end of each node of `after[i]`, None as it is; without `views` all are seen
    as they are.

    For example three nodes, of which the last waits for the others, are `after` of the lists
    `(), (), (0, 1)` and `levels` of `0, 2, 3`.
    """

    after: Lists
    levels: Small | None = None
    results: Numbers | None = None
    views: tuple[tuple[EndView | None, ...], ...] | None = None

    def __len__(self) -> int:
        return len(self.after)

    @property
    def runnable(self) -> int:
        """How many nodes can run: the first ones. Fewer than all where some wait in a circle."""
        return len(self) if self.levels is None else int(self.levels[-1])

    @cached_property
    def lists(self) -> list[Numbers]:
        """What every node waits for, in Python's numbers."""
        return self.after.tolist()

    @property
    def last(self) -> list[int]:
        """Nodes that no other waits for."""
        awaited = np.bincount(self.after.values, minlength=len(self))
        last: list[int] = np.flatnonzero(awaited == 0).tolist()
        return last

    @cached_property
    def over_after(self) -> list[Numbers]:
        """For every node those that nothing later waits for, and that are no results."""
        last_use = list(range(len(self)))
        for node, before in enumerate(self.lists):
            for earlier in before:
                last_use[earlier] = node
        wanted = set(range(len(self)) if self.results is None else self.results)
        over: list[list[int]] = [[] for _ in last_use]
        for node, user in enumerate(last_use):
            if node not in wanted:
                over[user].append(node)
        return [tuple(nodes) for nodes in over]


UNKNOWN = -1
"""What a source does not tell, in every column of numbers."""


class TaskKind(IntEnum):
    """What a task is: work of one NPU, its part of a transfer, or work of its host."""

    COMPUTE = 0
    COLLECTIVE = 1
    SEND = 2
    RECV = 3
    COPY = 4
    HOST = 5


COMMUNICATIONS = (TaskKind.COLLECTIVE, TaskKind.SEND, TaskKind.RECV)


class TaskPhase(IntEnum):
    """The part of a step that a task belongs to; `UPDATE` is what follows the pipeline."""

    UNKNOWN = -1
    FORWARD = 0
    BACKWARD = 1
    UPDATE = 2
    INPUT_GRAD = 3
    WEIGHT_GRAD = 4


PHASES_OF_KINDS = np.array([TaskPhase[kind.name] for kind in ActionKind])
"""Phases of actions by the numbers of their kinds."""


class ColumnTable(Noun, eq=False):
    """A table: columns of one length, and what stands beside them."""

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns().items()}
        if len(set(lengths.values())) > 1:
            raise TraceError(f"columns have different lengths: {lengths}")

    def columns(self) -> Values:
        """The columns by their names."""
        every = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: column for name, column in every if isinstance(column, np.ndarray)}

    @classmethod
    def joined(cls, *parts: Self) -> Self:
        """Several tables, one after the other; what stands beside the columns is the first's."""
        tables = [part.columns() for part in parts]
        rows = {name: np.concatenate([each[name] for each in tables]) for name in tables[0]}
        return replace(parts[0], **rows)

    def taken(self, places: Ints | Bools | slice) -> Self:
        """The rows at some places, or those marked, in their order."""
        return replace(self, **{name: column[places] for name, column in self.columns().items()})


class Spans(ColumnTable, eq=False):
    """Spans in columns of one length, a row per span, `UNKNOWN` where not told.

    `rank` and `peer` are numbers of ranks; the peer is the other end of a message. `step` is the
    number that the job gave a recorded step. `mark` and `operator` are places among those of a
    profile, and `form` is a number that kernels launched alike have in common. `segment` is the
    place of the span's segment in the program of a simulated rank. `name` is a place in `names`,
    `group` one in `groups`, and `entry` one in `entries`, the actions of the rank's schedule in
    their order; without a schedule `entries` is None. `chunk` and `microbatch` are those of the
    entry's first action, or as they were recorded: `chunk` is then the model chunk in the whole
    model. `order` is the place among recorded spans of its name, rank and step, `launch_ps` when
    the host launched it. Recorded spans of one `meeting` wait for each other: members of a
    collective, or both ends of a message. `kind` is a `TaskKind`, `phase` a `TaskPhase`. Spans of
    one `stream` of a rank run one after the other; `streams` names streams by their numbers. Times
    are picoseconds. `alone_ps` is how long compute takes beside no communication, where that was
    shorter.
    """

    rank: Ints
    stage: Ints
    step: Ints
    segment: Ints
    stream: Ints
    kind: Ints
    phase: Ints
    name: Ints
    entry: Ints
    chunk: Ints
    microbatch: Ints
    size_bytes: Ints
    group: Ints
    peer: Ints
    meeting: Ints
    order: Ints
    mark: Ints
    operator: Ints
    form: Ints
    launch_ps: Ints
    start_ps: Ints
    end_ps: Ints
    alone_ps: Ints
    names: Sequence[str] = ()
    groups: Sequence[str] = ()
    entries: Sequence[OrderEntry] | None = None
    streams: Mapping[int, str] = {}

    @classmethod
    def of(cls, count: int, **told: Any) -> Self:
        """So many spans of the columns that are told, and of what stands beside them."""
        return cls(**dict.fromkeys(SPAN_NUMBERS, np.full(count, UNKNOWN, np.int64)) | told)

    def __len__(self) -> int:
        return len(self.start_ps)

    @property
    def duration_ps(self) -> Ints:
        """From start to end."""
        return self.end_ps - self.start_ps

    @property
    def is_message(self) -> Bools:
        """Which spans are one end of a message."""
        return self.of_kind(TaskKind.SEND, TaskKind.RECV)

    def later(self, by_ps: Ints | int) -> Self:
        """The spans with all their times later, each by so much."""
        launch = np.where(self.launch_ps == UNKNOWN, UNKNOWN, self.launch_ps + by_ps)
        start, end = self.start_ps + by_ps, self.end_ps + by_ps
        return replace(self, launch_ps=launch, start_ps=start, end_ps=end)

    def in_time(self, places: Ints) -> Ints:
        """Some spans in order of their start."""
        return places[np.argsort(self.start_ps[places], kind="stable")]

    @property
    def slowed(self) -> Bools:
        """Which spans communication slowed."""
        marked: Bools = self.alone_ps != UNKNOWN
        return marked

    def of_kind(self, *kinds: TaskKind) -> Bools:
        """Which spans are of these kinds."""
        return among(self.kind, kinds)

    @property
    def entry_columns(self) -> Order:
        """The entries of the schedule in columns; none where it is not told."""
        return Order.of(self.entries or ())

    def actions(self) -> tuple[Ints, Ints]:
        """First start and last end in ps of every entry of the schedule, as one rank ran them."""
        return extents(self.entry, len(self.entries or ()), self.start_ps, self.end_ps)

    def stream_words(self, stream: int) -> str:
        """What a stream is called: `pp forward recv`, `stream 7`, empty where it is not told."""
        if stream == UNKNOWN:
            return ""
        name = self.streams.get(stream)
        return name.replace("_", " ") if name else f"stream {stream}"


def extents(place: Ints | Small, places: int, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """First start and last end of the tasks that have each place; -1 is none."""
    tasks = np.flatnonzero(place >= 0)
    own = place[tasks]
    if np.array_equal(own, np.arange(places)):
        return start[tasks], end[tasks]
    return earliest(own, start[tasks], places), latest(own, end[tasks], places)


def earliest(places: Ints | Small, times_ps: Ints, count: int) -> Ints:
    """The least time at each of so many places; the largest number where there is none."""
    found = np.full((count, *times_ps.shape[1:]), np.iinfo(np.int64).max)
    np.minimum.at(found, places, times_ps)
    return found


def latest(places: Ints | Small, times_ps: Ints, count: int) -> Ints:
    """The largest time at each of so many places; the least number where there is none."""
    found = np.full((count, *times_ps.shape[1:]), np.iinfo(np.int64).min)
    np.maximum.at(found, places, times_ps)
    return found


SPAN_NUMBERS = tuple(name for name, kind in Spans.__annotations__.items() if kind is Ints)
"""The columns of numbers of `Spans`, in their order."""
