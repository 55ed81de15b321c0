"""Programs made ready to run: flat lists of tasks with durations, per actor.

A task list that nothing outside its rank's class can delay is one task whose inner times are known
(coalesced); any other is laid out task by task.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Floats, Ints, Lists, Small, bounds, distinct, narrowed, spans
from stepsim.base.errors import SimulationError
from stepsim.base.kept import kept
from stepsim.base.records import dataclass
from stepsim.base.units import MAX_INT64
from stepsim.engine.fold import Actors
from stepsim.engine.prices import Prices
from stepsim.graph.actions import Task, TaskKind, TaskList
from stepsim.graph.build import TaskGraph
from stepsim.graph.programs import Look, Program, SegmentKind, Use
from stepsim.parallel.ranks import ParallelPlan
from stepsim.workload.rows import Group

if TYPE_CHECKING:
    from stepsim.engine.contention import Contention
    from stepsim.network.flights import Transfer

Times = NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.integer)

GROUPS = tuple(Group)
"""Kinds of groups by the numbers that columns have for them."""
MESSAGES = GROUPS.index(Group.PP)

_TOO_LONG = "the step exceeds 2**63 - 1 ps (106 days): it cannot be simulated"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskListTimes:
    """A task list run without interruption: start and end of its tasks from its start, in ps."""

    start: Times
    end: Times
    duration_ps: int


def task_list_times(task_list: TaskList, task_ps: Callable[[Task], int]) -> TaskListTimes:
    """Earliest times of a task list's tasks; `task_ps` says how long each takes.

    Raises SimulationError when the times do not fit 64 bits.
    """
    start: list[int] = []
    end: list[int] = []
    for task in task_list.tasks:
        begin = max((end[i] for i in task.after), default=0)
        start.append(begin)
        end.append(begin + task_ps(task))
    if max(end) > MAX_INT64:
        raise SimulationError(_TOO_LONG)
    return TaskListTimes(
        start=np.array(start, np.int64), end=np.array(end, np.int64), duration_ps=max(end)
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class LaidOut:
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

    def alike(self) -> Iterator[tuple[Look, int, Ints]]:
        """Tasks that do the same: the look of their segment, their place in it, and which they are.

        What appears first comes first; tasks are ascending.
        """
        counts = np.bincount(self.row, minlength=len(self.rows))
        tasks = np.split(np.argsort(self.row, kind="stable"), np.cumsum(counts)[:-1])
        for (look, inner), each in zip(self.rows, tasks, strict=True):
            yield look, inner, each


def far_actor(actor: int, stage: int, actors: Actors, plan: ParallelPlan) -> int:
    """The actor at the other end of an actor's messages with a stage."""
    shift = (stage - int(actors.stages[actor])) * plan.stage_ranks
    return actors.of(int(actors.ranks[actor]) + shift)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
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

    With `by_look` only actors whose groups also lie alike do, so that they share it at all prices.

    `slow` are factors on the ranks' compute times. A task list is coalesced when every group of its
    collectives holds this actor alone and, with `contention`, nothing else crosses their links;
    none is without `coalesce`.
    """
    known: dict[tuple[object, ...], LaidOut] = {}
    used = [graph.uses(stage) for stage in range(len(graph.programs))]
    runnable = Runnable(programs=[], transfers=[])
    for actor in range(len(actors)):
        stage = int(actors.stages[actor])
        rank = int(actors.ranks[actor])
        alone = frozenset(
            kind for kind, group in actors.groups.items() if actors.sizes[kind][group[actor]] == 1
        )
        costs = {use: _cost(use, rank, prices, contention) for use in used[stage]}
        transfers = {u: cost for u, cost in costs.items() if not isinstance(cost, int)}
        paid = {u: cost if isinstance(cost, int) else cost.duration_ps for u, cost in costs.items()}
        factor = 1.0 if slow is None else float(slow[rank])
        looks = [_look(use, rank, prices) for use in used[stage]] if by_look else []
        key = stage, factor, alone, *paid.values(), *transfers, *looks
        if key not in known:
            laying_out = _LayingOut(
                graph=graph,
                factor=factor,
                paid=paid,
                slowed={use: i for i, use in enumerate(paid) if use in transfers},
                alone=alone,
                coalesce=coalesce,
            )
            known[key] = laying_out.run(stage)
        runnable.programs.append(known[key])
        runnable.transfers.append(transfers)
    return runnable


def _look(use: Use, rank: int, prices: Prices) -> int:
    return prices.patterns(use).look(rank)


def _cost(use: Use, rank: int, prices: Prices, contention: "Contention | None") -> "int | Transfer":
    patterns = prices.patterns(use)
    group = patterns.row(rank)
    if contention is None:
        return prices.duration_ps(use.comm, patterns, group)
    return contention.cost(use, group)


@dataclass(slots=True, kw_only=True)
class _LayingOut:
    """Lays one program out; `paid` are the prices, `alone` the groups with nobody to wait for.

    `factor` slows compute, `slowed` numbers the communications that others may slow.
    """

    graph: TaskGraph
    factor: float
    paid: dict[Use, int]
    slowed: dict[Use, int]
    alone: frozenset[Group]
    coalesce: bool
    collectives: dict[int, Use] = field(init=False)
    messages: dict[tuple[int, bool], tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.collectives = {use.comm: use for use in self.paid if use.peer_stage < 0}
        self.messages = {
            (use.peer_stage, use.sends): (paid, self.slowed.get(use, -1))
            for use, paid in self.paid.items()
            if use.peer_stage >= 0
        }

    def run(self, stage: int) -> LaidOut:
        program = self.graph.programs[stage]
        times: dict[int, TaskListTimes] = {}
        pieces = [self._piece(each, times) for each in program.looks]
        if any(each > MAX_INT64 for piece in pieces for each in piece.duration_ps):
            raise SimulationError(_TOO_LONG)
        inner, duration, group, slowed = (
            np.array([each for piece in pieces for each in getattr(piece, name)])
            for name in ("inner", "duration_ps", "group", "slowed")
        )
        look, after = program.look, program.after
        segment = first = program.shape.numbers
        row = look
        if len(inner) > len(pieces):
            sizes = np.array([len(piece.inner) for piece in pieces], dtype=np.int64)
            row = narrowed(spans(bounds(sizes)[look], sizes[look]), len(inner))
            first = bounds(sizes[look])[:-1]
            segment = np.repeat(segment, sizes[look])
            after = _after(after, first, look, pieces, row)
        return LaidOut(
            program=program,
            uses=tuple(self.paid),
            segment=segment,
            inner=_column(inner.astype(np.int32), row),
            row=row,
            rows=tuple(
                (each, number)
                for each, piece in zip(program.looks, pieces, strict=True)
                for number in piece.inner
            ),
            row_ps=duration.astype(np.int64),
            group=group.astype(np.int8)[row],
            slowed=_column(slowed.astype(np.int16), row),
            after=after,
            first=first,
            meets=tuple(distinct(group[(group >= 0) & (group != MESSAGES)]).tolist()),
            times=times,
        )

    def _piece(self, look: Look, times: dict[int, TaskListTimes]) -> "_Piece":
        """What a segment is laid out as; a task list that is one task gets its `times`."""
        number = look.task_list
        if number < 0:
            sends = look.kind is SegmentKind.SEND
            return _Piece.one(-1, *self.messages[look.peer_stage, sends], Group.PP)
        if number in times or self._is_private(look):
            times[number] = self._times(number)
            return _Piece.one(-1, times[number].duration_ps, -1, None)
        tasks = self.graph.task_lists[number].tasks
        uses = [self.collectives[task.comm] if task.comm >= 0 else None for task in tasks]
        waited_for = {i for task in tasks for i in task.after}
        return _Piece(
            inner=range(len(tasks)),
            duration_ps=[self._task_ps(task) for task in tasks],
            group=[
                -1 if task.comm < 0 else GROUPS.index(self.graph.comms[task.comm].group)
                for task in tasks
            ],
            slowed=[-1 if use is None else self.slowed.get(use, -1) for use in uses],
            after=[task.after for task in tasks],
            ends=[i for i in range(len(tasks)) if i not in waited_for],
        )

    def _times(self, task_list: int) -> TaskListTimes:
        mine = self.graph.task_lists[task_list]
        paid = tuple(self.paid[self.collectives[comm]] for comm in mine.comms)
        return _times_at(mine, self.factor, paid)

    def _task_ps(self, task: Task) -> int:
        if task.comm >= 0:
            return self.paid[self.collectives[task.comm]]
        return _own_ps(task, self.factor)

    def _is_private(self, look: Look) -> bool:
        """Whether nobody outside the actor can delay or slow the task list's collectives.

        Reductions stay apart: each of them may be waited for beside transfers of other kinds.
        """
        if not self.coalesce or look.kind is SegmentKind.REDUCTION:
            return False
        return all(
            self.graph.comms[comm].group in self.alone and self.collectives[comm] not in self.slowed
            for comm in self.graph.task_lists[look.task_list].comms
        )


def _column(values: NDArray[_Number], rows: NDArray[np.integer]) -> NDArray[_Number]:
    """A value for every row; one that all have is held once."""
    if (values == values[:1]).all():
        return np.broadcast_to(values[:1], len(rows)) if len(values) else values
    found: NDArray[_Number] = values[rows]
    return found


def _own_ps(task: Task, factor: float) -> int:
    """How long a task takes that is no communication."""
    slows = task.kind is TaskKind.COMPUTE and factor != 1
    return round(task.duration_ps * factor) if slows else task.duration_ps


@kept(256)
def _times_at(task_list: TaskList, factor: float, paid: tuple[int, ...]) -> TaskListTimes:
    """Times of a task list at such a factor, whose communications take what is `paid`."""
    prices = dict(zip(task_list.comms, paid, strict=True))
    return task_list_times(
        task_list, lambda task: prices[task.comm] if task.comm >= 0 else _own_ps(task, factor)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """The tasks that a segment is laid out as; nothing in it waits for those at its `ends`."""

    inner: Sequence[int]
    duration_ps: Sequence[int]
    group: Sequence[int]
    slowed: Sequence[int]
    after: Sequence[tuple[int, ...]]
    ends: Sequence[int]

    @classmethod
    def one(cls, inner: int, duration_ps: int, slowed: int, group: Group | None) -> "_Piece":
        """A segment that is one task."""
        return cls(
            inner=(inner,),
            duration_ps=(duration_ps,),
            group=(-1 if group is None else GROUPS.index(group),),
            slowed=(slowed,),
            after=((),),
            ends=(0,),
        )


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
