"""Where the time of a rank's step goes.

The breakdown walks along a rank's compute stream. What runs there is compute (or host time); a
gap belongs to the transfers the next task waits for: exposed while one is in flight, skew before a
collective's slowest member arrives, idle before a pipeline neighbour has sent. So its parts sum
to the step time by construction.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from stepsim.base.arrays import Bools, Ints, Lists, Small, bounds, distinct, numbers_of, spans
from stepsim.core.actions import Task, TaskList
from stepsim.core.flat import ListTimes, Tasks
from stepsim.core.timeline import Cohort
from stepsim.core.write import SegmentKind, TaskGraph
from stepsim.run.spans import TaskKind
from stepsim.workload.rows import Part, Stream

_FEW = 6
_PARTS = tuple(Part)
_WORK = {TaskKind.COMPUTE: Part.COMPUTE, TaskKind.HOST: Part.HOST}


class _Alike(Struct, frozen=True, kw_only=True):
    """Gaps that are shared out together: `transfers[:, i]` are awaited in gap number `gaps[i]`.

    What is left of them is `idle`. `flight` is what all transfers are, None where they differ.
    """

    gaps: NDArray[np.int64]
    transfers: NDArray[np.int64]
    idle: Part
    flight: Part | None


class Gaps(Struct, frozen=True, kw_only=True):
    """Which transfers the compute stream of a program waits for, whatever the times are.

    `busy` are the tasks of the compute stream in order, and a gap lies before each of them and
    after the last, until the transfers `left` have ended. `work` are the tasks by what they are;
    coalesced ones are not among them. `exposed[i]` is what transfer i is when it is waited for.
    """

    busy: NDArray[np.int64]
    left: NDArray[np.int64]
    work: dict[Part, NDArray[np.int64]]
    exposed: NDArray[np.int64]
    alike: tuple[_Alike, ...]


def breakdown(gaps: Gaps, start: Ints, end: Ints, coalesced: Ints) -> Ints:
    """Parts of a program up to the last task anyone waits for: (parts, columns), in ps.

    `start` and `end` have shape (tasks, columns): a column is an actor, or a scenario. `coalesced`,
    of shape (parts, columns), is what coalesced tasks consist of.
    """
    total = coalesced.copy()
    for part, tasks in gaps.work.items():
        total[part] += (end[tasks] - start[tasks]).sum(axis=0)
    begin = np.concatenate((np.zeros_like(end[:1]), end[gaps.busy]))
    last = end[gaps.left].max(axis=0, initial=0)
    until = np.concatenate((start[gaps.busy], np.maximum(begin[-1], last)[None]))
    for alike in gaps.alike:
        share = _share_gaps if alike.flight is None else _share_even_gaps
        share(total, alike, gaps, start, end, begin[alike.gaps], until[alike.gaps])
    return total


_COALESCED = -1
"""The part of a coalesced task of the compute stream: it has several."""
_IS_BUSY = np.isin([*Part, _COALESCED], [*_WORK.values(), _COALESCED])
"""Whether a part is of the compute stream."""


class _TaskRows(Struct, frozen=True, kw_only=True, eq=False):
    """Tasks as columns for `find_gaps`: the part that each is, and earlier ones it waits for.

    Nobody waits for a `detached` transfer at its own end.
    """

    part: NDArray[np.int8]
    after: Lists
    detached: Bools


def task_rows(tasks: Sequence[tuple[Part, tuple[int, ...]]]) -> _TaskRows:
    """Rows of tasks given by their part and what they wait for."""
    return _TaskRows(
        part=np.array([part for part, _ in tasks], dtype=np.int8),
        after=Lists.of([after for _, after in tasks]),
        detached=np.zeros(len(tasks), dtype=bool),
    )


def find_gaps(rows: _TaskRows) -> Gaps:
    """The gaps of a program; those with equally many and like transfers are shared out together."""
    is_busy = _IS_BUSY.take(rows.part)
    busy = np.flatnonzero(is_busy)
    claimer = _claimers(rows, is_busy)
    left = np.flatnonzero((claimer == len(is_busy)) & ~is_busy & ~rows.detached)
    claimed = np.flatnonzero(~is_busy & (claimer < len(is_busy)))
    before = np.zeros(len(is_busy), dtype=np.int64)
    before[busy] = np.arange(len(busy))
    gap = np.append(before.take(claimer.take(claimed)), np.full(len(left), len(busy)))
    order = np.argsort(gap, kind="stable")
    awaited = Lists(
        bounds(np.bincount(gap, minlength=len(busy) + 1)),
        np.append(claimed, left).take(order).astype(np.int32),
    )
    return Gaps(
        busy=busy,
        left=left,
        work={part: np.flatnonzero(rows.part == part) for part in _WORK.values()},
        exposed=np.where(rows.part == _COALESCED, Part.COMPUTE, rows.part).astype(np.int64),
        alike=tuple(_alike(awaited, rows.part)),
    )


def _claimers(rows: _TaskRows, is_busy: Bools) -> Ints:
    """The busy task that is the first to wait for each transfer; as many as tasks where none is.

    A transfer is waited for directly, or by another that is waited for.
    """
    nobody = len(is_busy)
    claimer = np.full(nobody, nobody, dtype=np.int64)
    flies = ~is_busy.take(rows.after.values)
    owner, before = rows.after.owners.compress(flies), rows.after.values.compress(flies)
    direct = is_busy.take(owner)
    # the first owner is written last
    claimer[before.compress(direct)[::-1]] = owner.compress(direct)[::-1]
    first = claimer.tolist()
    # who waits stands behind what it waits for: the last ones know first
    chains = zip(owner.compress(~direct)[::-1], before.compress(~direct)[::-1], strict=True)
    for waiting, awaited in chains:
        first[awaited] = min(first[awaited], first[waiting])
    return np.array(first)


def _alike(awaited: Lists, part: NDArray[np.int8]) -> Iterator[_Alike]:
    """Gaps by how many transfers are awaited in each, and by what these are if all are the same."""
    parts, starts = part.take(awaited.values), awaited.starts
    counts = awaited.counts.astype(np.int64)
    some = np.flatnonzero(counts)
    flight = np.full(len(counts), _COALESCED, dtype=np.int8)
    flight[some] = parts.take(starts.take(some))
    changes = np.flatnonzero(parts[1:] != parts[:-1]) + 1
    inside = np.searchsorted(starts, changes, side="right") - 1
    flight[inside[starts[inside] < changes]] = _COALESCED
    looks = flight + 1 + len(_IS_BUSY) * ((np.arange(len(counts)) > 0) + 2 * counts)
    first, look = numbers_of(looks)
    for number in np.argsort(first).tolist():
        mine = np.flatnonzero(look == number)
        several = spans(starts.take(mine), counts.take(mine)).reshape(len(mine), -1)
        kind = int(flight[mine[0]])
        yield _Alike(
            gaps=mine,
            transfers=awaited.values.take(several).astype(np.int64).T,
            idle=Part.INNER if mine[0] else Part.HEAD,
            flight=None if kind == _COALESCED else _PARTS[kind],
        )


def _share_even_gaps(
    total: Ints, alike: _Alike, gaps: Gaps, start: Ints, end: Ints, begin: Ints, until: Ints
) -> None:
    """Add idle gaps, `begin` and `until` of shape (gaps, columns), whose transfers are all alike.

    Then only the union of the flights matters: starts and ends may be sorted each by itself. Of a
    gap from 0 to 9 with flights from 2 to 4, 3 to 6 and 7 to 12, what has been flown ends at 0, 4,
    6 and 9, and the flights add 2 to 4, 4 to 6 and 7 to 9.
    """
    starts, ends = (_sorted(times.take(alike.transfers, axis=0)) for times in (start, end))
    flight = alike.flight or Part.COMPUTE
    waiting = alike.idle if flight is Part.EXPOSED_PP else Part.SKEW
    np.minimum(np.maximum(ends, begin, out=ends), until, out=ends)
    for times, before in ((starts[:1], begin), (starts[1:], ends[:-1])):
        np.minimum(np.maximum(times, before, out=times), until, out=times)
    flown = (ends - starts).sum(axis=(0, 1))
    total[flight] += flown
    total[waiting] += (ends[-1] - begin).sum(axis=0) - flown
    total[alike.idle] += (until - ends[-1]).sum(axis=0)


def _sorted(rows: Ints) -> Ints:
    """Rows sorted element by element; exchanges are faster for the few that a gap mostly has."""
    if len(rows) > _FEW:
        return np.sort(rows, axis=0)
    for last in range(len(rows) - 1, 0, -1):
        for i in range(last):
            larger = np.maximum(rows[i], rows[i + 1])
            np.minimum(rows[i], rows[i + 1], out=rows[i])
            rows[i + 1] = larger
    return rows


def _share_gaps(
    total: Ints, alike: _Alike, gaps: Gaps, start: Ints, end: Ints, begin: Ints, until: Ints
) -> None:
    """Add idle gaps whose transfers differ, or that have none.

    In flight a transfer is exposed, before it there is skew or idle time, after it idle time.
    Overlapping transfers share a gap in order of their start, then of their end, then of their
    part: of nothing but times, whatever else the run was made of.
    """
    if not len(alike.transfers):
        total[alike.idle] += np.maximum(until - begin, 0).sum(axis=0)
        return
    starts, ends = start[alike.transfers], end[alike.transfers]
    flight = np.broadcast_to(gaps.exposed[alike.transfers][:, :, None], starts.shape)
    order = np.lexsort((flight, ends, starts), axis=0)
    starts, ends, flight = (
        np.take_along_axis(column, order, axis=0) for column in (starts, ends, flight)
    )
    cursor = np.minimum(np.maximum.accumulate(np.concatenate((begin[None], ends))), until)
    arrived = np.clip(starts, cursor[:-1], until)
    _add(total, np.where(flight == Part.EXPOSED_PP, alike.idle, Part.SKEW), arrived - cursor[:-1])
    _add(total, flight, cursor[1:] - arrived)
    total[alike.idle] += (until - cursor[-1]).sum(axis=0)


def _add(total: Ints, part: NDArray[np.int64], amount: Ints) -> None:
    """Add amounts of shape (transfers, gaps, columns) to the parts they belong to."""
    for kind in distinct(part).tolist():
        total[kind] += np.where(part == kind, amount, 0).sum(axis=(0, 1))


def cohorts_breakdown(cohorts: Sequence[Cohort], graph: TaskGraph, step_time_ps: int) -> list[Ints]:
    """Parts of the step of every actor, by cohort, each of shape (parts, actors), in ps."""
    lists = {
        times: graph.task_lists[number]
        for cohort in cohorts
        for number, times in cohort.tasks.times.items()
    }
    known = _parts_of_lists(lists, graph)
    return [
        _cohort_breakdown(cohort, program_gaps(cohort.tasks, graph), step_time_ps, known)
        for cohort in cohorts
    ]


def _cohort_breakdown(
    cohort: Cohort, found: "ProgramGaps", step_time_ps: int, known: dict[ListTimes, Ints]
) -> Ints:
    """Parts of the step of every actor of a cohort, of shape (parts, actors), in ps."""
    coalesced = np.zeros((len(Part), len(cohort.actors)), dtype=np.int64)
    for number, count in found.coalesced.items():
        coalesced += count * known[cohort.tasks.times[number]][:, None]
    total = breakdown(found.gaps, *found.times(cohort.start, cohort.end), coalesced)
    slowed = cohort.longer_ps.sum(axis=0)
    total[Part.COMPUTE] -= slowed
    total[Part.SLOWED] += slowed
    total[Part.TAIL] += step_time_ps - total.sum(axis=0)
    return total


def _parts_of_lists(lists: dict[ListTimes, TaskList], graph: TaskGraph) -> dict[ListTimes, Ints]:
    """Parts of task lists that run without interruption, each of shape (parts,), in ps.

    Those whose tasks are of the same parts and wait alike are columns of one breakdown.
    """
    alike: dict[tuple[tuple[Part, tuple[int, ...]], ...], list[ListTimes]] = {}
    for times, task_list in lists.items():
        tasks = tuple((part_of(task, graph), task.after) for task in task_list.tasks)
        alike.setdefault(tasks, []).append(times)
    parts: dict[ListTimes, Ints] = {}
    for tasks, several in alike.items():
        start, end = (
            np.stack([getattr(times, name) for times in several], axis=1)
            for name in ("start", "end")
        )
        nothing = np.zeros((len(Part), len(several)), dtype=np.int64)
        total = breakdown(find_gaps(task_rows(tasks)), start, end, nothing)
        parts |= zip(several, total.T, strict=True)
    return parts


class ProgramGaps(Struct, frozen=True, kw_only=True):
    """The gaps of a laid-out program.

    Row i is task `source[i]`, or the end of a task list that was laid out: then `closing` names the
    row and the task list's tasks. `coalesced` counts how often each coalesced task list runs.
    """

    gaps: Gaps
    source: NDArray[np.int64]
    closing: tuple[tuple[int, slice], ...]
    coalesced: dict[int, int]

    def times(
        self, start: Ints, end: Ints, place: NDArray[np.integer] | None = None
    ) -> tuple[Ints, Ints]:
        """Starts and ends of the rows from those of the tasks, ps, both of shape (tasks, columns).

        `place[i]` is where task i lies in them, if not at i.
        """
        if place is None and not self.closing:
            return start, end
        source = self.source if place is None else place[self.source]
        starts, ends = start[source], end[source]
        for row, mine in self.closing:
            starts[row] = ends[row] = end[mine if place is None else place[mine]].max(axis=0)
        return starts, ends


def program_gaps(laid: Tasks, graph: TaskGraph) -> ProgramGaps:
    """Gaps of a program. A task list laid out ends when all of it has ended, as a coalesced one."""
    part, closes = np.zeros((2, len(laid.rows)), dtype=np.int8)
    coalesced: dict[int, int] = {}
    runs = np.bincount(laid.row, minlength=len(laid.rows)).tolist()
    for number, row in enumerate(laid.rows):
        look, task = row.look, row.task(laid.program)
        if task:
            part[number] = part_of(task, graph)
            last = row.inner == len(graph.task_lists[look.task_list].tasks) - 1
            closes[number] = last and look.kind is not SegmentKind.REDUCTION
        elif row.use:
            part[number] = Part.EXPOSED_PP
        else:
            part[number] = _COALESCED
            coalesced[look.task_list] = runs[number]
    rows = _TaskRows(
        part=part.take(laid.row),
        after=laid.after,
        detached=laid.program.stream.take(laid.segment) == Stream.EAGER,
    )
    closed = np.flatnonzero(closes.take(laid.row))
    first = laid.first[laid.segment[closed]]
    source, ending = np.arange(len(laid)), closed
    if len(closed):
        rows, source, ending = _with_ends(rows, first, closed)
    return ProgramGaps(
        gaps=find_gaps(rows),
        source=source,
        closing=tuple(
            (row, slice(begin, task + 1))
            for row, begin, task in zip(
                ending.tolist(), first.tolist(), closed.tolist(), strict=True
            )
        ),
        coalesced=coalesced,
    )


def _with_ends(rows: _TaskRows, first: Small, closed: Ints) -> tuple[_TaskRows, Ints, Ints]:
    """Rows with one more after each that is `closed`, for the end of all from its `first` on.

    With them the rows that each was, and which are the ends.
    """
    every, before = np.arange(len(rows.part)), rows.after.counts
    closes = np.zeros(len(every), dtype=bool)
    closes[closed] = True
    place = every + np.cumsum(closes) - closes
    source = np.repeat(every, 1 + closes)
    ending = place[closed] + 1
    counts = np.zeros(len(source), dtype=np.int64)
    counts[place] = before
    counts[ending] = closed + 1 - first
    after = Lists(bounds(counts), np.empty(int(counts.sum()), dtype=np.int32))
    after.values[spans(after.starts[place], before)] = place[rows.after.values]
    own = spans(first, counts[ending])
    after.values[spans(after.starts[ending], counts[ending])] = place[own]
    parts = rows.part[source]
    parts[ending] = _COALESCED
    return _TaskRows(part=parts, after=after, detached=rows.detached[source]), source, ending


def part_of(task: Task, graph: TaskGraph) -> Part:
    """The part that a task of a task list is; of a transfer or a launch, when it is waited for."""
    if task.comm >= 0:
        return graph.comms[task.comm].axis.exposed
    return Part.EXPOSED_HOST if task.stream is Stream.HOST else _WORK[task.kind]
