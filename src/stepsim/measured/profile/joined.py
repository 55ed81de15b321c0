"""Operations of several ranks, read one by one, joined in one profile by their collectives."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.errors import TraceError
from stepsim.base.records import dataclass
from stepsim.base.units import PS_PER_S
from stepsim.measured.profile.events import (
    UNKNOWN,
    EventKind,
    Events,
    ProcessGroup,
    Profile,
    RankPlace,
    counted,
    same,
)

_DAY_PS = 86_400 * PS_PER_S


@dataclass(frozen=True, kw_only=True, eq=False)
class RankOperations:
    """One rank's operations: columns of `Events` but for name and group, which are texts.

    Times are from `base_ps`, on the rank's clock.
    """

    rank: int
    world: int | None
    file: str
    steps: tuple[int, ...]
    names: list[str]
    groups: list[tuple[str, tuple[int, ...]]]
    columns: dict[str, Ints]
    left_out: int
    base_ps: int


def join_ranks(
    source: str, read: Sequence[RankOperations], form: str, *, one_clock: bool = False
) -> Profile:
    """All ranks in one profile: names, steps, groups and meetings in common.

    Their clocks are put on one axis by the ends of collectives, unless they are `one_clock`. Raises
    TraceError for a rank that is there twice.
    """
    parts = sorted(read, key=lambda part: part.rank)
    for one, other in pairwise(parts):
        if one.rank == other.rank:
            raise TraceError(
                f"{other.file}: rank {one.rank} is also in {one.file}: expected one run per folder"
            )
    steps = sorted({step for part in parts for step in part.steps})
    names = sorted({name for part in parts for name in part.names})
    groups = sorted({group for part in parts for group in part.groups})
    of_name, of_group, of_step = (
        {each: i for i, each in enumerate(every)} for every in (names, groups, steps)
    )
    columns: dict[str, list[Ints]] = {}
    for place, part in enumerate(parts):
        numbers = np.array([of_step[each] for each in part.steps], dtype=np.int64)
        more = {
            "rank": np.full(len(part.names), place, dtype=np.int64),
            "step": numbers[part.columns["step"]],
            "name": np.array([of_name[each] for each in part.names], dtype=np.int64),
            "group": np.array([of_group[each] for each in part.groups], dtype=np.int64),
        }
        for key, column in (part.columns | more).items():
            columns.setdefault(key, []).append(column)
    whole = {key: np.concatenate(several) for key, several in columns.items()}
    events = Events.of(len(whole["rank"]), **whole)
    collective = events.of_kind(EventKind.COLLECTIVE)
    events = replace(events, group=np.where(collective, events.group, UNKNOWN))
    profile = Profile(
        source=source,
        format=form,
        ranks=tuple(RankPlace(rank=part.rank, file=part.file) for part in parts),
        steps=tuple(steps),
        names=tuple(names),
        groups=tuple(ProcessGroup(name=name or "unknown", ranks=ranks) for name, ranks in groups),
        events=replace(events, meeting=_meetings(events)),
    )
    return _aligned(profile, parts, one_clock=one_clock)


def _meetings(events: Events) -> Ints:
    """The n-th collective of a name and a group in a step is the same on all ranks."""
    number = counted(events.rank, events.step, events.group, events.name)
    joined = same(events.step, events.group, events.name, number)
    return np.where(events.of_kind(EventKind.COLLECTIVE), joined, UNKNOWN)


def _aligned(profile: Profile, parts: Sequence[RankOperations], *, one_clock: bool) -> Profile:
    """One axis of time from 0: a collective ends at the same moment on all its ranks."""
    events, warnings = profile.events, list(_warnings(profile, parts))
    shift = np.array([_start_of(part, parts[0]) for part in parts], dtype=np.int64)
    met = np.flatnonzero(events.meeting != UNKNOWN)
    first: dict[int, int] = {}
    for place in met[events.rank[met] == 0].tolist():
        first[int(events.meeting[place])] = int(events.end_ps[place])
    for rank in () if one_clock else range(1, len(parts)):
        apart = [
            first[int(events.meeting[place])] - int(events.end_ps[place])
            for place in met[events.rank[met] == rank].tolist()
            if int(events.meeting[place]) in first
        ]
        if apart:
            shift[rank] = int(np.median(apart))
        else:
            warnings.append(
                f"{parts[rank].file}: no collective in common with rank {parts[0].rank}: its clock "
                "is taken as the same"
            )
    moved = shift[events.rank]
    begin = int((events.start_ps + moved).min())
    told = events.launch_ps >= 0
    events = replace(
        events,
        start_ps=events.start_ps + moved - begin,
        end_ps=events.end_ps + moved - begin,
        launch_ps=np.where(told, events.launch_ps + moved - begin, UNKNOWN),
    )
    return replace(profile, events=events, warnings=tuple(warnings))


def _start_of(part: RankOperations, first: RankOperations) -> int:
    """From the begin of the first rank's trace to that of another; 0 where they are days apart."""
    apart = part.base_ps - first.base_ps
    return apart if abs(apart) < _DAY_PS else 0


def _warnings(profile: Profile, parts: Sequence[RankOperations]) -> Iterator[str]:
    left = sum(part.left_out for part in parts)
    if left:
        yield f"{profile.source}: {left} operations launched outside of the steps are left out"
    world = max((part.world or 0 for part in parts), default=0)
    if len(parts) < world:
        yield (
            f"{profile.source}: {len(parts)} of {world} ranks: what they wait for in the others "
            "cannot be told from what their collectives take"
        )
    met = profile.events.meeting[profile.events.meeting != UNKNOWN]
    lone = int((np.bincount(met) % len(parts) > 0).sum()) if len(met) and len(parts) > 1 else 0
    if lone:
        yield f"{profile.source}: {lone} collectives are not on all traced ranks"
