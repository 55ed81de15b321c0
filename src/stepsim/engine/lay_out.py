"""Programs made ready to run: flat lists of tasks with durations, one list for each actor.

A task list that nothing outside its rank's class can delay is one task whose inner times are known
(coalesced); any other is laid out task by task. The layout follows from who meets whom; then come
the prices, which say how long tasks take.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from stepsim.base.arrays import (
    Floats,
    Ints,
    Lists,
    Small,
    bounds,
    distinct,
    narrowed,
    row_numbers,
    spans,
)
from stepsim.base.errors import SimulationError
from stepsim.base.structs import replace
from stepsim.base.units import MAX_INT64
from stepsim.graph.actions import Task, TaskList
from stepsim.graph.build import TaskGraph
from stepsim.graph.programs import Look, Program, SegmentKind
from stepsim.network.fold import Actors
from stepsim.network.prices import Prices, Use
from stepsim.parallel.ranks import ParallelPlan
from stepsim.tables.ends import ends
from stepsim.tables.spans import TaskKind
from stepsim.workload.rows import Group

if TYPE_CHECKING:
    from stepsim.network.contention import Contention
    from stepsim.network.flights import Transfer

Times = NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.integer)

GROUPS = tuple(Group)
"""Kinds of groups by the numbers that columns have for them."""
MESSAGES = GROUPS.index(Group.PP)


class TaskListTimes(Struct, frozen=True, kw_only=True, eq=False):
    """A task list run without interruption: start and end of its tasks from its start, in ps."""

    start: Times
    end: Times
    duration_ps: int


class LaidOut(Struct, frozen=True, kw_only=True, eq=False):
    """A program as the engine runs it: task i takes `duration_ps[i]` after all of `after[i]`.

    `segment[i]` is its segment and `inner[i]` its task within the segment's task list, -1 where the
    segment is one task; then `times[task_list]` holds the times inside, in ps. `group[i]` is the
    group that must meet before the task starts, a place in `GROUPS`, -1 if it is the rank's own.
    `slowed[i]` is the place among `uses` of the communication where others may slow the task (its
    duration is then the shortest), -1 elsewhere. `first[s]` is the first task of segment s, `meets`
    are the groups of tasks that are no messages.
    Tasks that do the same have one `row`: the look of their segment and their place in it, `rows`,
    and how long they take, `row_ps`. Rows stand in the order in which they appear.
    """

    program: Program
    uses: tuple[Use, ...]
    segment: Small
    inner: Small
    row: NDArray[np.integer]
    rows: tuple[tuple[Look, int], ...]
    row_ps: Times
    group: NDArray[np.int8]
    slowed: NDArray[np.int16]
    after: Lists
    first: Small
    meets: tuple[int, ...]
    times: dict[int, TaskListTimes]

    def __len__(self) -> int:
        return len(self.segment)

    @property
    def duration_ps(self) -> Times:
        """How long each task takes."""
        found: Times = self.row_ps.take(self.row)
        return found

    def taking(self, duration_ps: Times) -> Self:
        """The program whose tasks take so long; those of one row may differ."""
        first, row = row_numbers(np.column_stack((self.row, duration_ps)).astype(np.int64))
        rows = tuple(self.rows[each] for each in self.row[first].tolist())
        return replace(self, row=row, rows=rows, row_ps=duration_ps[first])

    def alike(self) -> Iterator[tuple[Look, int, Ints]]:
        """Tasks that do the same: the look of their segment, their place in it, and which they are.

        What appears first comes first; tasks are ascending.
        """
        counts = np.bincount(self.row, minlength=len(self.rows))
        tasks = np.split(np.argsort(self.row, kind="stable"), np.cumsum(counts)[:-1])
        for (look, inner), each in zip(self.rows, tasks, strict=True):
            yield look, inner, each


class Met(NamedTuple):
    """Whom an actor meets in a use: the group, if nobody else is in it, if others may slow it."""

    group: Group
    alone: bool
    slowed: bool


class ProgramLayout(Struct, frozen=True, kw_only=True, eq=False):
    """A program laid out whatever its tasks take: `make` adds it, and the times of `rows`.

    It has so many `tasks`. `use_of_row[r]` is the place of the use among the program's that row r
    is, -1 for other work.
    """

    make: Callable[..., LaidOut]
    tasks: int
    rows: tuple[tuple[Look, int], ...]
    use_of_row: tuple[int, ...]


def layout_of(program: Program, met: tuple[Met, ...], coalesce: bool) -> ProgramLayout:
    """How a program is laid out whose uses are `met` so."""
    pieces = _Pieces(program=program, met=met, coalesce=coalesce).of_looks()
    uses = tuple(use for piece in pieces for use in piece.use_of_task)
    rows = tuple(
        (each, number)
        for each, piece in zip(program.looks, pieces, strict=True)
        for number in piece.inner
    )
    inner = np.array([number for _, number in rows], dtype=np.int32)
    group = np.array([GROUPS.index(met[use].group) if use >= 0 else -1 for use in uses], np.int8)
    slowed = np.array([use if use >= 0 and met[use].slowed else -1 for use in uses], np.int16)
    look, after = program.look, program.shape.after
    segment = first = program.shape.numbers
    row = look
    if len(inner) > len(pieces):
        sizes = np.array([len(piece.inner) for piece in pieces], dtype=np.int64)
        row = narrowed(spans(bounds(sizes)[look], sizes[look]), len(inner))
        first = bounds(sizes[look])[:-1]
        segment = np.repeat(segment, sizes[look])
        after = _after(after, first, look, pieces, row)
    make = partial(
        LaidOut,
        uses=program.uses,
        segment=segment,
        inner=_column(inner, row),
        row=row,
        rows=rows,
        group=group[row],
        slowed=_column(slowed, row),
        after=after,
        first=first,
        meets=tuple(distinct(group[(group >= 0) & (group != MESSAGES)]).tolist()),
    )
    return ProgramLayout(make=make, tasks=len(row), rows=rows, use_of_row=uses)


class _Pieces(Struct, kw_only=True):
    """Takes the segments of a program apart, whose uses are `met` so."""

    program: Program
    met: tuple[Met, ...]
    coalesce: bool
    _uses: dict[tuple[int, int, bool], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._uses = {
            (use.comm, use.peer_stage, use.sends): place
            for place, use in enumerate(self.program.uses)
        }

    def of_looks(self) -> "list[_Piece]":
        """What a segment of each look is laid out as; a list that is one task stays so."""
        coalesced: set[int] = set()
        pieces = []
        for look in self.program.looks:
            if look.task_list in coalesced or self._is_private(look):
                coalesced.add(look.task_list)
                pieces.append(_Piece.one(-1))
            else:
                pieces.append(self._piece(look))
        return pieces

    def _piece(self, look: Look) -> "_Piece":
        if look.task_list < 0:
            sends = look.kind is SegmentKind.SEND
            return _Piece.one(self._uses[self.program.message, look.peer_stage, sends])
        tasks = self.program.lists[look.task_list].tasks
        waited_for = {i for task in tasks for i in task.after}
        return _Piece(
            inner=range(len(tasks)),
            use_of_task=[self._collective(t.comm) if t.comm >= 0 else -1 for t in tasks],
            after=[task.after for task in tasks],
            ends=[i for i in range(len(tasks)) if i not in waited_for],
        )

    def _collective(self, comm: int) -> int:
        """The place among the uses of a collective."""
        return self._uses[comm, -1, False]

    def _is_private(self, look: Look) -> bool:
        """Whether nobody outside the actor can delay or slow the task list's collectives.

        Reductions stay apart: each of them may be waited for beside transfers of other kinds.
        """
        if not self.coalesce or look.task_list < 0 or look.kind is SegmentKind.REDUCTION:
            return False
        met = [self.met[self._collective(c)] for c in self.program.lists[look.task_list].comms]
        return all(each.alone and not each.slowed for each in met)


def _column(values: NDArray[_Number], rows: NDArray[np.integer]) -> NDArray[_Number]:
    """A value for every row; one that all have is held once."""
    if (values == values[:1]).all():
        return np.broadcast_to(values[:1], len(rows)) if len(values) else values
    found: NDArray[_Number] = values[rows]
    return found


class _Piece(Struct, frozen=True, kw_only=True):
    """The tasks that a segment is laid out as; nothing in it waits for those at its `ends`."""

    inner: Sequence[int]
    use_of_task: Sequence[int]
    after: Sequence[tuple[int, ...]]
    ends: Sequence[int]

    @classmethod
    def one(cls, use: int) -> "_Piece":
        """A segment that is one task."""
        return cls(inner=(-1,), use_of_task=(use,), after=((),), ends=(0,))


def _after(
    after: Lists,
    first: Small,
    look: NDArray[np.integer],
    pieces: Sequence[_Piece],
    rows: NDArray[np.integer],
) -> Lists:
    """What tasks wait for: others of their segment, else the ends of the segments before it.

    `rows[i]` is the row of task i in the pieces one after the other.
    """
    inside = Lists.of([each for piece in pieces for each in piece.after])
    ends = Lists.of([piece.ends for piece in pieces])
    counts = ends.counts[look[after.values]]
    before = np.repeat(first[after.values], counts)
    before += ends.values[spans(ends.starts[look[after.values]], counts)]
    starts = bounds(counts)[after.starts]
    segment = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(rows))))
    own = inside.counts[rows]
    begins = own == 0
    sizes = np.where(begins, np.diff(starts)[segment], own)
    values = np.where(begins, starts[:-1][segment], len(before) + inside.starts[rows])
    shift = np.repeat(np.where(begins, 0, first[segment]), sizes)
    found = np.concatenate((before, inside.values))[spans(values, sizes)] + shift
    return Lists(bounds(sizes), found.astype(np.int32))


_TOO_LONG = "the step exceeds 2**63 - 1 ps (106 days): it cannot be simulated"


def task_list_times(task_list: TaskList, task_ps: Callable[[Task], int]) -> TaskListTimes:
    """Earliest times of a task list's tasks; `task_ps` says how long each takes.

    Raises SimulationError when the times do not fit 64 bits.
    """
    try:
        duration_ps = np.array([task_ps(task) for task in task_list.tasks], dtype=np.int64)
        end = ends(task_list.waits, duration_ps)
    except OverflowError:
        raise SimulationError(_TOO_LONG) from None
    return TaskListTimes(start=end - duration_ps, end=end, duration_ps=int(end.max()))


def far_actor(actor: int, stage: int, actors: Actors, plan: ParallelPlan) -> int:
    """The actor at the other end of an actor's messages with a stage."""
    shift = (stage - int(actors.stages[actor])) * plan.stage_ranks
    return actors.of(int(actors.ranks[actor]) + shift)


_Timed = dict[tuple[float, ...], TaskListTimes]
"""Times of task lists that a graph holds, by which it is, the factor on compute, and prices."""


class Runnable(Struct, frozen=True, kw_only=True):
    """What the engine runs: the program of each actor, and its transfers on shared links."""

    programs: list[LaidOut]
    transfers: "list[dict[Use, Transfer]]"


def lay_out(
    graph: TaskGraph,
    actors: Actors,
    prices: Prices,
    slow: Floats | None = None,
    contention: "Contention | None" = None,
    *,
    by_look: bool = False,
    coalesce: bool = True,
) -> Runnable:
    """The laid-out program of every actor; actors that run the same at the same prices share one.

    With `by_look` only actors whose groups also lie alike do, and are on links alike, so that they
    share it at all prices.

    `slow` are factors on the ranks' compute times. A task list is coalesced when every group of its
    collectives holds this actor alone and, with `contention`, nothing else crosses their links;
    none is without `coalesce`.
    """
    known: dict[tuple[object, ...], LaidOut] = {}
    layouts: dict[tuple[object, ...], ProgramLayout] = {}
    timed: _Timed = {}
    runnable = Runnable(programs=[], transfers=[])
    for actor in range(len(actors)):
        program = graph.programs[int(actors.stages[actor])]
        rank, uses = int(actors.ranks[actor]), program.uses
        costs = [_cost(use, rank, prices, contention) for use in uses]
        paid = tuple(cost if isinstance(cost, int) else cost.duration_ps for cost in costs)
        transfers = {
            u: each for u, each in zip(uses, costs, strict=True) if not isinstance(each, int)
        }
        runnable.transfers.append(transfers)
        alone = {kind for kind, of in actors.groups.items() if actors.sizes[kind][of[actor]] == 1}
        groups = (graph.comms[use.comm].group for use in uses)
        met = tuple(
            Met(group, group in alone, use in transfers)
            for use, group in zip(uses, groups, strict=True)
        )
        factor = 1.0 if slow is None else float(slow[rank])
        looks = [prices.patterns(use).look(rank) for use in uses] if by_look else []
        key = id(program), factor, met, paid, *looks
        if key not in known:
            form = id(program), met
            if form not in layouts:
                layouts[form] = layout_of(program, met, coalesce)
            known[key] = _laid_out(program, layouts[form], factor, paid, timed)
        runnable.programs.append(known[key])
    return runnable


def _cost(use: Use, rank: int, prices: Prices, contention: "Contention | None") -> "int | Transfer":
    patterns = prices.patterns(use)
    group = patterns.row(rank)
    if contention is None:
        return prices.duration_ps(use.comm, patterns, group)
    return contention.cost(use, group)


def _laid_out(
    program: Program,
    layout: ProgramLayout,
    factor: float,
    paid: tuple[int, ...],
    timed: _Timed,
) -> LaidOut:
    """A program at such a factor on compute, whose uses take what is `paid`.

    Task lists are `timed` once for all programs that run them at the same prices.
    """
    every = zip(program.uses, paid, strict=True)
    prices = {use.comm: each for use, each in every if use.peer_stage < 0}
    times: dict[int, TaskListTimes] = {}
    row_ps = []
    for (look, inner), use in zip(layout.rows, layout.use_of_row, strict=True):
        number = look.task_list
        if use >= 0:
            row_ps.append(paid[use])
        elif inner >= 0:
            row_ps.append(_own_ps(program.lists[number].tasks[inner], factor))
        else:
            if number not in times:
                times[number] = _times_of(program.lists[number], factor, prices, timed)
            row_ps.append(times[number].duration_ps)
    if any(each > MAX_INT64 for each in row_ps):
        raise SimulationError(_TOO_LONG)
    return layout.make(program=program, row_ps=np.array(row_ps, dtype=np.int64), times=times)


def _times_of(
    task_list: TaskList, factor: float, prices: Mapping[int, int], timed: _Timed
) -> TaskListTimes:
    """The times of a task list at a factor on compute, and at prices (ps) of communications."""
    key = id(task_list), factor, *(prices[comm] for comm in task_list.comms)
    if key not in timed:
        timed[key] = task_list_times(
            task_list,
            lambda task: prices[task.comm] if task.comm >= 0 else _own_ps(task, factor),
        )
    return timed[key]


def _own_ps(task: Task, factor: float) -> int:
    """How long a task takes that is no communication."""
    slows = task.kind is TaskKind.COMPUTE and factor != 1
    return round(task.duration_ps * factor) if slows else task.duration_ps
