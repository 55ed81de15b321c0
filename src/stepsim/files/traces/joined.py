"""Operations of several ranks, read one by one, joined in one profile by their collectives."""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from msgspec import convert

from stepsim.base.arrays import Ints, bins, distinct, ints, places_by, rows_of
from stepsim.base.errors import TraceError
from stepsim.base.structs import Values, replace
from stepsim.base.units import PS_PER_S, format_time_ps
from stepsim.measured.profile.events import (
    Events,
    Following,
    ProcessGroup,
    Profile,
    RankPlace,
    counted,
    same,
    unknown,
)
from stepsim.measured.profile.marks import Mark, marked
from stepsim.run.spans import UNKNOWN, TaskKind, earliest, extents

_DAY_PS = 86_400 * PS_PER_S
_HOURS_APART_PS = 3600 * PS_PER_S
# Clocks that count from 1970 are past it, those that count from the start of a machine are not.
_TIME_OF_DAY_PS = 30 * 365 * _DAY_PS
# What ranks meet in ends at the same time, give or take this.
_CLOCK_STEP_PS = PS_PER_S // 20


class RankOperations(RankPlace, eq=False):
    """One rank's operations: columns of `Events`, of which some are lists of values.

    Values get a number among those of all ranks: names; groups, each a name and its ranks; the
    operator that launched an operation and how, in tuples that tell forms apart; and the `Mark` of
    the program that holds it. A value is None for operations without, and a column is missing where
    the format does not say it. Times are from `base_ps`, on the rank's clock. A column `step` holds
    numbers of steps, one of `peer` ranks, and one of `meeting` tells communications between the
    same ranks apart. `follows` are pairs of these operations that wait for each other, where the
    format tells them; the allocator held `peak_bytes`. Without `has_steps` nothing told steps, and
    the whole recording counts as one.
    """

    columns: Values
    base_ps: int
    world: int | None = None
    left_out: int = 0
    follows: Following | None = None
    peak_bytes: int | None = None
    has_steps: bool = True


def inside_steps(
    read: RankOperations, numbers: Sequence[int], bounds: Ints, ranges: Sequence[Mark] = ()
) -> RankOperations:
    """The operations that were launched inside of steps, by their start, in the ranges held by.

    `bounds` are begin and end of every step in ps, of the clock of the operations. A recording
    without steps is one step, number 0. Raises TraceError where no operation is left.
    """
    launch, start = read.columns["launch_ps"], read.columns["start_ps"]
    times = np.where(launch == UNKNOWN, start, launch)
    step = unknown(len(start)) if numbers else np.zeros(len(start), np.int64)
    for number, (begin, end) in zip(numbers, bounds, strict=True):
        step[(times >= begin) & (times < end)] = number
    kept = np.flatnonzero(step != UNKNOWN)
    kept = kept[np.argsort(start[kept], kind="stable")]
    if not len(kept):
        raise TraceError(
            f"{read.file}: rank {read.rank}: no kernel was launched inside of the recorded steps"
        )
    mark, places = marked(ranges, launch, start, read.columns["stream"]), kept.tolist()
    columns = read.columns | {"step": step, "mark": mark}
    return replace(
        read,
        has_steps=bool(numbers),
        left_out=len(start) - len(kept),
        columns={
            name: column[kept] if isinstance(column, np.ndarray) else [column[i] for i in places]
            for name, column in columns.items()
        },
    )


def join_ranks(
    source: str, read: Sequence[RankOperations], form: str, *, one_clock: bool = False
) -> Profile:
    """All ranks in one profile: names, steps, groups and meetings in common.

    Their clocks are put on one axis by the ends of collectives, unless they are `one_clock`. Steps
    that overlap on the device are cut there. Raises TraceError for a rank that is there twice.
    """
    parts = sorted(read, key=lambda part: part.rank)
    _check_one_run(parts)
    told, tables = dict[str, list[Any]](), [dict(part.columns) for part in parts]
    for column in ("name", "group", "operator", "form", "mark"):
        values = [table.pop(column, ()) for table in tables]
        distinct = dict.fromkeys(chain.from_iterable(values))
        distinct.pop(None, None)
        told[column] = [*distinct] if column in ("form", "mark") else sorted(distinct)
        number = {each: i for i, each in enumerate(told[column])}
        for table, own in zip(tables, values, strict=True):
            if own:
                table[column] = ints([number.get(each, UNKNOWN) for each in own])
    events = Events.joined(*(Events.of(len(table["name"]), **table) for table in tables))
    steps, step = np.unique(events.step, return_inverse=True)
    traced = ints([part.rank for part in parts])
    near = np.minimum(np.searchsorted(traced, events.peer), len(traced) - 1)
    events = replace(
        events,
        step=step,
        rank=np.repeat(np.arange(len(parts)), [len(table["name"]) for table in tables]),
        peer=np.where(traced[near] == events.peer, near, UNKNOWN),
        group=np.where(events.of_kind(TaskKind.COLLECTIVE), events.group, UNKNOWN),
    )
    profile = Profile(
        source=source,
        format=form,
        ranks=tuple(convert(part, RankPlace, from_attributes=True) for part in parts),
        steps=tuple(steps.tolist()),
        names=tuple(told["name"]),
        groups=tuple(ProcessGroup(name=n or "unknown", ranks=ranks) for n, ranks in told["group"]),
        events=replace(events, meeting=_meetings(events)),
        follows=_follows(parts),
        marks=tuple(told["mark"]),
        operators=tuple(told["operator"]),
        world=max(part.world or 0 for part in parts) or None,
        peak_bytes=max(part.peak_bytes or 0 for part in parts) or None,
        has_steps=any(part.has_steps for part in parts),
    )
    return _cut_on_device(_aligned(profile, parts, one_clock=one_clock))


def _cut_on_device(profile: Profile) -> Profile:
    """Steps that overlap on the device, from one begin of main compute to the next.

    A host that is ahead launches a step, and copies its batch, while the device still runs the one
    before. So an operation belongs to the step whose compute began last before it, a meeting to
    that of its first member; what ran before the first step is left out. The main stream is that
    which computes longest.
    """
    events, count = profile.events, len(profile.steps)
    begins = [_main_begins(events.taken(own), count) for own in profile.places_of_ranks()]
    is_known = count > 1 and all(len(begin) for begin, _ in begins)
    if not (is_known and any(overlaps for _, overlaps in begins)):
        return profile
    step = unknown(len(events))
    for places, (begin, _) in zip(profile.places_of_ranks(), begins, strict=True):
        step[places] = np.searchsorted(begin, events.start_ps[places], side="right") - 1
    met = np.flatnonzero(events.meeting != UNKNOWN)
    meeting = events.meeting[met]
    step[met] = earliest(meeting, step[met], bins(meeting))[meeting]
    cut = replace(profile, events=replace(events, step=step))
    return cut.of_steps(*profile.steps)


def _main_begins(own: Events, steps: int) -> tuple[Ints, bool]:
    """When a rank's main stream begins to compute each step, and whether steps overlap on the rank.

    Nothing begins where a step computes nothing there.
    """
    computes = own.taken(own.of_kind(TaskKind.COMPUTE))
    _, stream = np.unique(computes.stream, return_inverse=True)
    took = np.bincount(stream, weights=computes.duration_ps, minlength=1)
    main = computes.taken(stream == took.argmax())
    begin = earliest(main.step, main.start_ps, steps)
    first, last = extents(own.step, steps, own.start_ps, own.end_ps)
    is_known = len(np.unique(main.step)) == steps and bool((np.diff(begin) > 0).all())
    return begin[: steps * is_known], bool((first[1:] < last[:-1]).any())


def _check_one_run(parts: Sequence[RankOperations]) -> None:
    """Refuse a rank that is there twice, and traces of jobs of other sizes or hours apart."""
    for part, again in pairwise(parts):
        if part.rank == again.rank:
            raise TraceError(
                f"{again.file}: rank {part.rank} is also in {part.file}: expected one run per "
                "folder"
            )
    worlds = {part.world: part for part in parts if part.world}
    if len(worlds) > 1:
        (one, first), (other, second) = sorted(worlds.items())[:2]
        raise TraceError(
            f"{second.file}: a job of {other} ranks, {first.file} of {one}: expected one run per "
            "folder"
        )
    by_time = sorted(parts, key=lambda part: part.base_ps)
    early, late = by_time[0], by_time[-1]
    apart = late.base_ps - early.base_ps
    if early.base_ps > _TIME_OF_DAY_PS and apart > _HOURS_APART_PS:
        raise TraceError(
            f"{late.file}: recorded {apart / _HOURS_APART_PS:.1f} hours after {early.file}: "
            "expected one run per folder"
        )


def _follows(parts: Sequence[RankOperations]) -> Following | None:
    """Pairs of operations of all ranks, None where no rank tells any."""
    begins = np.cumsum([0, *(len(part.columns["name"]) for part in parts)])
    told = [
        np.stack(part.follows) + begin
        for part, begin in zip(parts, begins, strict=False)
        if part.follows
    ]
    if not told:
        return None
    before, after = np.concatenate(told, axis=1)
    return before, after


def _meetings(events: Events) -> Ints:
    """The n-th collective of a name and a group in a step is the same on all ranks.

    So is the n-th message from one rank to another on both. What has another number in the column
    `meeting` of what was read is another.
    """
    sends = events.of_kind(TaskKind.SEND)
    message = (sends | events.of_kind(TaskKind.RECV)) & (events.peer != UNKNOWN)
    first, second = (
        np.where(message, np.where(sends, ours, theirs), collective)
        for ours, theirs, collective in (
            (events.rank, events.peer, events.group),
            (events.peer, events.rank, events.name),
        )
    )
    key = (events.step, message.astype(np.int64), first, second, events.meeting)
    joined = same(*key, counted(events.rank, *key))
    return np.where(message | events.of_kind(TaskKind.COLLECTIVE), joined, UNKNOWN)


def _aligned(profile: Profile, parts: Sequence[RankOperations], *, one_clock: bool) -> Profile:
    """One axis of time from 0: a collective ends at the same moment on all its ranks."""
    events, warnings = profile.events, list(_warnings(profile, parts))
    apart = ints([part.base_ps - parts[0].base_ps for part in parts])
    shift = np.where(np.abs(apart) < _DAY_PS, apart, 0)  # clocks days apart tell nothing
    lost = _put_on_one_axis(events, shift) if not one_clock else []
    warnings += [
        f"{parts[rank].file}: the clock of rank {parts[rank].rank} steps by about "
        f"{format_time_ps(step)}: times after it are as far off"
        for rank, step in _clock_steps(events, shift)
    ]
    warnings += [
        f"{parts[rank].file}: rank {parts[rank].rank} shares no collective with rank "
        f"{parts[0].rank}, nor through other ranks: both clocks are taken as equal"
        for rank in lost
    ]
    moved = shift[events.rank]
    moved -= (events.start_ps + moved).min()
    # what was launched before the clock of its rank begins is launched as it does
    told = replace(events, launch_ps=np.where(events.launch_ps < UNKNOWN, 0, events.launch_ps))
    return replace(profile, events=told.later(moved), warnings=tuple(warnings))


def _put_on_one_axis(events: Events, shift: Ints) -> list[int]:
    """Set the shift of every rank by what it meets in with ranks whose shift is known.

    `shift` begins with what is assumed. Returns the ranks that nothing connects with the first.
    """
    every = places_by(events.rank, len(shift))
    met = [places[events.meeting[places] != UNKNOWN] for places in every]
    known: dict[int, int] = {}
    waiting, progress = list(range(len(shift))), True
    while waiting and progress:
        progress = False
        for rank in list(waiting):
            pairs = [*rows_of(events.meeting[met[rank]], events.end_ps[met[rank]])]
            apart = [known[meeting] - end for meeting, end in pairs if meeting in known]
            if rank and not apart:
                continue
            shift[rank] = int(np.median(apart)) if apart else 0
            for meeting, end in pairs:
                known.setdefault(meeting, end + int(shift[rank]))
            waiting.remove(rank)
            progress = True
    return waiting


def _clock_steps(events: Events, shift: Ints) -> Iterator[tuple[int, int]]:
    """Ranks, and how far ends that they should have in common with others move against these."""
    met = np.flatnonzero(events.meeting != UNKNOWN)
    ends = events.end_ps[met] + shift[events.rank[met]]
    order = np.lexsort((ends, events.meeting[met]))
    first = np.flatnonzero(np.diff(events.meeting[met][order], prepend=-1))
    count = np.diff(np.append(first, len(met)))
    middle = np.repeat(ends[order][first + (count - 1) // 2], count)
    apart, rank = ends[order] - middle, events.rank[met][order]
    for each in distinct(rank).tolist():
        moved = int(np.ptp(apart[rank == each]))
        if moved > _CLOCK_STEP_PS:
            yield each, moved


def _warnings(profile: Profile, parts: Sequence[RankOperations]) -> Iterator[str]:
    left = sum(part.left_out for part in parts)
    if left:
        yield f"{profile.source}: {left} operations launched outside of the steps are left out"
    if len(parts) < (profile.world or 0):
        yield (
            f"{profile.source}: {len(parts)} of {profile.world} ranks were traced: time of a "
            "collective holds what it waits for the ranks that were not"
        )
    lone = _lone_collectives(profile) if len(parts) > 1 else 0
    if lone:
        yield f"{profile.source}: {lone} collectives are missing on a traced rank of their group"


def _lone_collectives(profile: Profile) -> int:
    """Collectives that a traced rank of their group lacks, or any rank where none are listed."""
    events, traced = profile.events, {each.rank for each in profile.ranks}
    members = [len(traced & set(g.ranks)) or len(traced) for g in profile.groups]
    met = np.flatnonzero((events.meeting != UNKNOWN) & (events.group != UNKNOWN))
    _, first, count = np.unique(events.meeting[met], return_index=True, return_counts=True)
    return int((count % np.array(members)[events.group[met[first]]] > 0).sum())
