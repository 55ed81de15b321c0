"""Where the time of a rank's step goes.

The breakdown walks along a rank's compute stream. What runs there is compute (or host time); a
gap belongs to the transfers the next task waits for: exposed while one is in flight, skew before a
collective's slowest member arrives, idle before a pipeline neighbour has sent. So its parts sum
to the step time by construction.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from stepsim.base.arrays import Bools, Ints, Lists, distinct, ints, rows_of, spans
from stepsim.base.axes import Part, Stream
from stepsim.base.structs import Noun
from stepsim.core.actions import TaskList
from stepsim.core.flat import CONTRACTED, ListTimes, Tasks
from stepsim.core.path import PathRuns
from stepsim.core.timeline import Timeline
from stepsim.core.write import SegmentKind

_WORK = (Part.COMPUTE, Part.HOST)
# Parts of the compute stream.
_BUSY = (*_WORK, CONTRACTED)
_NO_LISTS = np.zeros(0, np.int64), np.zeros(0, np.int64)


class Gaps(Noun):
    """Which transfers the compute stream of a program waits for, whatever the times are.

    A gap lies before each busy row and after the last. Busy row i is a task, or, where `closing`
    says so, the end of the task list that was laid out as the tasks from `lists[0]` to before
    `lists[1]`; `tasks` are those of the others. Transfer `awaited[k]`, of a `part`, is waited for
    in gap `gap[k]`, ascending. `left` are awaited after the last row. `work` are tasks by what they
    are; contracted ones are not among them.
    """

    closing: Bools
    tasks: Ints
    lists: Sequence[Ints]
    work: dict[Part, Ints]
    awaited: Ints
    part: Ints
    gap: Ints
    left: Ints


def find_gaps(part: Ints, after: Lists, detached: Bools, lists: Sequence[Ints] = _NO_LISTS) -> Gaps:
    """The gaps of tasks of a `part` each, which wait for others.

    Nobody waits for a `detached` transfer at its own end. Task lists laid out, from `lists[0]` to
    before `lists[1]`, end when all of them has ended, as contracted ones do.
    """
    count, is_busy = len(part), np.isin(part, _BUSY)
    tasks = np.flatnonzero(is_busy)
    claimer = _claimers(is_busy, after, lists)
    busy = np.sort(np.concatenate((2 * tasks, 2 * lists[1] - 1)))
    transfers = np.flatnonzero(~is_busy & ~((claimer == 2 * count) & detached))
    gap = np.searchsorted(busy, claimer[transfers])
    order = np.argsort(gap, kind="stable")
    awaited, gap = transfers[order], gap[order]
    return Gaps(
        closing=busy % 2 == 1,
        tasks=tasks,
        lists=lists,
        work={each: np.flatnonzero(part == each) for each in _WORK},
        awaited=awaited,
        part=part[awaited],
        gap=gap,
        left=awaited[gap == len(busy)],
    )


def _claimers(is_busy: Bools, after: Lists, lists: Sequence[Ints]) -> Ints:
    """Twice the busy task that is the first to wait for each transfer, twice the count if none is.

    A transfer is waited for directly, or by another that is waited for; and by the end of its task
    list, which is one less than twice what follows it.
    """
    claimer = np.full(len(is_busy), 2 * len(is_busy), np.int64)
    flies = ~is_busy.take(after.values)
    owner, before = after.owners.compress(flies), after.values.compress(flies)
    direct = is_busy.take(owner)
    # the first owner is written last
    claimer[before.compress(direct)[::-1]] = 2 * owner.compress(direct)[::-1].astype(np.int64)
    sizes = lists[1] - lists[0]
    mine = spans(lists[0], sizes)
    claimer[mine] = np.minimum(claimer[mine], (2 * lists[1] - 1).repeat(sizes))
    first = claimer.tolist()
    # who waits stands behind what it waits for, and is itself waited for still later: the last ones
    # know first, and what is claimed before them stays
    late = ~direct & (claimer.take(before) > 2 * owner)
    for waiting, awaited in rows_of(owner.compress(late)[::-1], before.compress(late)[::-1]):
        first[awaited] = min(first[awaited], first[waiting])
    return ints(first)


def breakdown(gaps: Gaps, start: Ints, end: Ints, contracted: Ints) -> Ints:
    """Parts of a program up to the last task anyone waits for: (parts, columns), in ps.

    `start` and `end` have shape (tasks, columns): a column is an actor, or a scenario.
    `contracted`, of shape (parts, columns), is what contracted tasks consist of.

    Awaited transfers share a gap in order of their start, then of their end, then of their part: of
    nothing but times, whatever else the run was made of. Columns in which they have other orders
    are taken apart.
    """
    gap, awaited = gaps.gap, gaps.awaited
    order = np.lexsort((gaps.part, end[awaited, 0], start[awaited, 0], gap))
    part, awaited = gaps.part[order], awaited[order]
    flights = start[awaited], end[awaited]
    if not _in_turn(gap, (*flights, part[:, None])):
        halves = (np.array_split(each, 2, axis=1) for each in (start, end, contracted))
        parts = [breakdown(gaps, *half) for half in zip(*halves, strict=True)]
        return np.concatenate(parts, axis=1)
    total = contracted.copy()
    for each, tasks in gaps.work.items():
        total[each] += (end[tasks] - start[tasks]).sum(axis=0)
    begin, until = _bounds(gaps, start, end)
    waited, flown = _shared(gap, *flights, begin, until)
    for number in {*part.tolist()}:
        total[number] += flown[part == number].sum(axis=0)
    waited[part == Part.EXPOSED_PP] = 0
    total[Part.SKEW] += waited.sum(axis=0)
    whole, inner = np.maximum(until - begin, 0), np.searchsorted(gap, 1)
    flown += waited
    total[Part.HEAD] += whole[0] - flown[:inner].sum(axis=0)
    total[Part.INNER] += whole[1:].sum(axis=0) - flown[inner:].sum(axis=0)
    return total


def _in_turn(gap: Ints, keys: tuple[Ints, ...]) -> bool:
    """Whether transfers stand in the order of their keys within each gap, in all columns."""
    wrong = np.zeros(1, bool)
    for key in reversed(keys):
        below, above = key[:-1], key[1:]
        wrong = (above < below) | ((above == below) & wrong)
    return not wrong[np.diff(gap) == 0].any()


def _bounds(gaps: Gaps, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """When gaps begin and end, in ps, both of shape (gaps, columns)."""
    begin, until = np.zeros((2, len(gaps.closing) + 1, *end.shape[1:]), np.int64)
    begins, stops = begin[1:], until[:-1]
    begins[~gaps.closing], stops[~gaps.closing] = end[gaps.tasks], start[gaps.tasks]
    if gaps.closing.any():
        first, last = gaps.lists
        sizes = last - first
        inside = end[spans(first, sizes)]
        closed = np.maximum.reduceat(inside, np.cumsum(sizes) - sizes, axis=0)
        begins[gaps.closing] = stops[gaps.closing] = closed
    until[-1] = np.maximum(begin[-1], end[gaps.left].max(axis=0, initial=0))
    return begin, until


def _shared(gap: Ints, start: Ints, end: Ints, begin: Ints, until: Ints) -> tuple[Ints, Ints]:
    """How long transfers are waited for in their gaps before they start, and while they fly, in ps.

    They share a gap in turn. Of a gap from 0 to 9 with flights from 2 to 4, 3 to 6 and 7 to 12
    these are waited for 2, 0 and 1, and fly for 2, 2 and 2.
    """
    before, close = begin[gap], until[gap]
    over = np.minimum(end, close)
    place = np.arange(len(gap)) - np.searchsorted(gap, gap)
    for turn in distinct(place)[1:].tolist():
        mine = np.flatnonzero(place == turn)
        before[mine] = np.maximum(before[mine], over[mine - 1])
        over[mine] = np.maximum(over[mine], over[mine - 1])
    here = np.minimum(np.maximum(start, before), close)
    return here - before, np.maximum(before, over) - here


def step_breakdown(timeline: Timeline) -> Ints:
    """Parts of the step of every actor, of shape (actors, parts), in ps."""
    found = np.zeros((len(timeline.actors), len(Part)), np.int64)
    known: dict[ListTimes, Ints] = {}
    for cohort in timeline.cohorts:
        tasks = cohort.tasks
        contracted = np.zeros((len(Part), len(cohort.actors)), np.int64)
        for row in tasks.rows:
            if row.inner < 0 and row.use is None:
                times, rows = tasks.times[row.look.task_list], tasks.program.lists
                if times not in known:
                    known[times] = _parts_of_list(rows[row.look.task_list], times)
                contracted += row.look.runs * known[times]
        gaps = program_gaps(tasks)
        total = breakdown(gaps, cohort.start, cohort.end, contracted)
        slowed = cohort.longer_ps.sum(axis=0)
        total[Part.COMPUTE] -= slowed
        total[Part.SLOWED] += slowed
        total[Part.TAIL] += timeline.step_time_ps - total.sum(axis=0)
        found[cohort.actors] = total.T
    return found


def path_parts(path: Iterable[PathRuns]) -> Ints:
    """The path's time by what it is spent on, in ps; the sum is the step time."""
    total = np.zeros(len(Part), np.int64)
    for runs in path:
        np.add.at(total, runs.parts, (runs.end_ps - runs.start_ps).sum(axis=0))
    return total


def _parts_of_list(task_list: TaskList, times: ListTimes) -> Ints:
    """Parts of a task list that runs without interruption, of shape (parts, 1), in ps."""
    nothing = np.zeros((len(Part), 1), np.int64)
    return breakdown(list_gaps(task_list), times.start[:, None], times.end[:, None], nothing)


def list_gaps(task_list: TaskList) -> Gaps:
    """The gaps of the tasks of a list."""
    part = task_list.parts
    return find_gaps(part, task_list.waits.after, np.zeros(len(part), bool))


def program_gaps(tasks: Tasks) -> Gaps:
    """The gaps of the tasks of an actor."""
    segment, program = tasks.segment, tasks.program
    closes = (tasks.inner >= 0) & (np.diff(segment, append=-1) != 0)
    closed = np.flatnonzero(closes & (program.kind.take(segment) != SegmentKind.REDUCTION))
    first = tasks.first[segment[closed]].astype(np.int64)
    detached = program.stream.take(segment) == Stream.EAGER
    return find_gaps(tasks.parts.take(tasks.row), tasks.after, detached, (first, closed + 1))
