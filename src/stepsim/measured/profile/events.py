"""A profile: operations of all ranks in columns, one numpy array per field.

Readers make it, everything else works on it. What a format does not say is `UNKNOWN`, or an empty
tuple, and is never guessed. Times are integer picoseconds; those of one clock can be compared.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from stepsim.base.arrays import (
    Bools,
    Ints,
    among,
    bins,
    column_numbers,
    ints,
    narrowed,
    places_by,
    row_numbers,
    spans,
)
from stepsim.base.errors import TraceError, within
from stepsim.base.structs import Names, Noun, Numbers, replace
from stepsim.measured.profile.marks import Mark
from stepsim.measured.run import NO_INNER, Degrees, InnerOps
from stepsim.run.spans import UNKNOWN, Spans, extents, latest


class RankPlace(Noun):
    """A traced rank: its stage, its data-parallel replica and its node, None where not known.

    Ranks of the same `clock` have comparable times. `file` is where it was read, `gpu` what the
    tool calls the rank's GPU. A measured run has the fingerprint of the rank's `trace`.
    """

    rank: int
    stage: int | None = None
    replica: int | None = None
    node: int | None = None
    clock: int = 0
    file: str = ""
    gpu: str = ""
    trace: str = ""


class ProcessGroup(Noun):
    """Ranks that communicate: none listed where the format names the group only."""

    name: str
    ranks: Numbers = ()


class HostOperator(Noun, order=True):
    """An operator that launched kernels: its name, and the shapes of its inputs where told."""

    name: str
    sides: tuple[Numbers, ...] = ()


class Events(Spans, eq=False):
    """Operations of a profile: `rank`, `peer` and `step` are places among its ranks and steps."""


Following = tuple[Ints, Ints]
"""Pairs of operations: what comes before, and what after."""


class Profile(Noun, eq=False):
    """Steps of a job as a tool recorded them; `ranks` and `steps` ascending.

    `format` names the form it was read from, `steps` are the numbers the job gave them. `follows`
    are the pairs of operations that wait for each other, None where the format does not tell them.
    `marks` are the ranges in which programs said what they computed, `operators` launched
    operations, where the format says it. The job has `world` ranks, `peak_bytes` are what a rank's
    allocator held at most; None where not told. Without `has_steps` the only step is the whole
    recording.

    A measured run, of which stage times are told, is a profile of one step whose operations stand
    rank by rank, in the order of their traces; a chunk is a stage, and names are numbered as
    `OpKind` is. `degrees` are its shape where its files tell it. Collectives inside its forwards
    and backwards are parts of these, with their waits: `inner` lists them, and `inner.parent` is
    the place of an operation. `labels` are what the trace calls the operations after the pipeline,
    by their places.
    """

    source: str
    format: str
    ranks: tuple[RankPlace, ...]
    steps: Numbers
    names: Names
    groups: tuple[ProcessGroup, ...]
    events: Events
    follows: Following | None = None
    warnings: Names = ()
    marks: tuple[Mark, ...] = ()
    operators: tuple[HostOperator, ...] = ()
    world: int | None = None
    peak_bytes: int | None = None
    has_steps: bool = True
    degrees: Degrees = Degrees()
    inner: InnerOps = NO_INNER
    labels: Mapping[int, str] = {}

    def __post_init__(self) -> None:
        if not self.ranks or not len(self.events):
            raise TraceError(f"{self.source}: no operation of any rank was recorded")
        wrong = np.flatnonzero(self.events.end_ps < self.events.start_ps)
        if len(wrong):
            raise TraceError(
                f"{self.source}: operation {self.describe(int(wrong[0]))} ends before it starts: "
                f"expected no negative duration ({len(wrong)} of them)"
            )

    @property
    def stages(self) -> Numbers:
        """Stages with at least one traced rank."""
        return tuple(sorted({rank.stage for rank in self.ranks if rank.stage is not None}))

    def of_stage(self, stage: int) -> list[int]:
        """Places of a stage's ranks in `ranks`."""
        return [index for index, rank in enumerate(self.ranks) if rank.stage == stage]

    def of_rank(self, index: int) -> Events:
        """The operations of the rank at a place in `ranks`, in their order."""
        return self.events.taken(np.flatnonzero(self.events.rank == index))

    def describe(self, place: int) -> str:
        """An operation, for messages: its name, rank and step."""
        events = self.events
        step = events.step[place]
        told = f", step {self.steps[step]}" if step >= 0 else ""
        return (
            f"{self.names[events.name[place]]} of rank {self.ranks[events.rank[place]].rank}{told}"
        )

    def spans(self) -> Spans:
        """The operations with numbers and names, in the order in which they were recorded."""
        events = self.events
        ranks = self.of_ranks("rank")
        numbered = events.columns() | {
            "rank": ranks[events.rank],
            "stage": self.column_of_ranks("stage"),
            "step": np.array([*self.steps, UNKNOWN])[events.step],
            "peer": ranks[events.peer],
        }
        groups = [group.name for group in self.groups]
        return Spans(**numbered, names=self.names, groups=groups)

    def of_steps(self, *numbers: int) -> "Profile":
        """Some steps, by their numbers; raises TraceError where none of them was recorded."""
        kept = [place for place, number in enumerate(self.steps) if number in numbers]
        inside = np.isin(self.events.step, kept)
        chosen = self.events.taken(np.flatnonzero(inside))
        step = np.searchsorted(ints(kept), chosen.step)
        steps = tuple(self.steps[place] for place in kept)
        follows = None
        if self.follows is not None:
            place, both = np.cumsum(inside) - 1, inside[self.follows[0]] & inside[self.follows[1]]
            follows = place[self.follows[0][both]], place[self.follows[1][both]]
        return replace(self, steps=steps, events=replace(chosen, step=step), follows=follows)

    def on_nodes(self, size: int | None) -> "Profile":
        """The profile where as many ranks in turn share a node; as it is without a size.

        Raises TraceError for a size below 1.
        """
        within("node_size", size, 1, error=TraceError)
        if size is None:
            return self
        ranks = tuple(replace(each, node=each.rank // size) for each in self.ranks)
        return replace(self, ranks=ranks)

    def places_of_ranks(self) -> list[Ints]:
        """Where the operations of every rank are among all, ascending."""
        return places_by(self.events.rank, len(self.ranks))

    def named(self, *names: str) -> Bools:
        """Which operations bear one of these names."""
        wanted = [place for place, name in enumerate(self.names) if name in names]
        return among(self.events.name, wanted)

    def called(self, fits: Callable[[str], object]) -> Bools:
        """Which operations bear a name that fits, e.g. one that a pattern finds something in."""
        return _fitting(self.names, fits)[self.events.name]

    def in_group(self, fits: Callable[[str], object]) -> Bools:
        """Which operations are of a group whose name fits."""
        return _fitting((group.name for group in self.groups), fits)[self.events.group]

    def of_ranks(self, name: str) -> Ints:
        """A field of every rank, `UNKNOWN` where it is not told and of the rank `UNKNOWN`."""
        told = [getattr(each, name) for each in self.ranks]
        return ints([*(UNKNOWN if each is None else each for each in told), UNKNOWN])

    def column_of_ranks(self, name: str) -> Ints:
        """A field of the rank of every operation, `UNKNOWN` where it is not told."""
        return np.asarray(self.of_ranks(name)[self.events.rank], np.int64)

    def step_times_ps(self) -> Ints:
        """From the first start to the last end of every step."""
        events = self.events
        first, last = extents(events.step, len(self.steps), events.start_ps, events.end_ps)
        return np.asarray(np.maximum(last - first, 0), np.int64)


def _fitting(texts: Iterable[str], fits: Callable[[str], object]) -> Bools:
    """Which texts fit; what has none does not."""
    return np.array([*map(bool, map(fits, texts)), False])


def other_end(rank: int, sender: int, receiver: int) -> int:
    """The rank at the other end of a message, `UNKNOWN` where a format does not tell it."""
    ends = {sender, receiver} - {rank, UNKNOWN}
    return ends.pop() if len(ends) == 1 else UNKNOWN


def unknown(count: int) -> Ints:
    """A column of which nothing is told."""
    return np.full(count, UNKNOWN, np.int64)


def complete_ps(events: Events) -> Ints:
    """When the last traced member of every operation's meeting came; the start of others."""
    last = events.start_ps.copy()
    met = np.flatnonzero(events.meeting != UNKNOWN)
    meeting = events.meeting[met]
    arrived = latest(meeting, events.start_ps[met], bins(meeting))
    last[met] = np.minimum(arrived[meeting], events.end_ps[met])
    return last


def same(*columns: Ints) -> Ints:
    """A number for every place, equal where all columns are equal; numbers count from 0."""
    return column_numbers(columns[::-1])


def combined(*columns: Ints) -> tuple[list[list[int]], Ints]:
    """What columns have at one place, each once and ascending, and which of these each place has.

    For example the columns `3, 1, 3` and `0, 5, 0` have `1, 5` and `3, 0`, numbered `1, 0, 1`.
    """
    rows = np.stack(columns, axis=1)
    first, number = row_numbers(rows)
    return rows[first].tolist(), number


def begun(key: Ints, start_ps: Ints, which: Bools) -> Ints:
    """How many of the marked places of its key began before every place, itself among them.

    Of those that begin together the earlier places count. Keys are numbers from 0, none left out.
    """
    order = np.lexsort((start_ps, key))
    so_far = np.cumsum(which[order])
    begins = np.flatnonzero(np.diff(key[order], prepend=-1))
    skipped: Ints = (so_far - which[order])[begins]
    found = np.empty(len(key), np.int64)
    found[order] = so_far - skipped[key[order]]
    return found


def counted(*columns: Ints) -> Ints:
    """How many earlier places have the same values in all columns, for every place."""
    alike = same(*columns)
    count = np.bincount(alike)
    order = np.argsort(narrowed(alike, len(count)), kind="stable")
    found = np.empty(len(order), np.int64)
    found[order] = spans(np.zeros_like(count), count)
    return found
