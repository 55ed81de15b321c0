"""What a profile without times holds: communications by group, and operators by name."""

from typing import Self

import numpy as np
from msgspec import Struct

from stepsim.base.structs import Bytes, Count, Document, Entry, Names
from stepsim.measured.profile.events import Profile, same
from stepsim.tables.spans import COMMUNICATIONS, UNKNOWN


class _OperationCount(Struct, frozen=True, kw_only=True):
    """Operations of one name, and of one process group where they communicate.

    `calls` and `size_bytes` are of all ranks together; None where no size is told. `on_ranks` are
    the ranks that ran some, `members` those of the group, 0 where they are not told.
    """

    name: str
    group: str
    members: int
    on_ranks: int
    calls: int
    size_bytes: int | None


class _CountEntry(Entry, frozen=True, kw_only=True):
    """Operations of a name and a group, over all ranks; no size where none is told."""

    name: str
    group: str
    members: Count
    on_ranks: Count
    calls: Count
    size_bytes: Bytes | None


class ContentsDocument(Document, frozen=True, kw_only=True):
    """`inspect --json` of a profile without times."""

    source: str
    format: str
    ranks: tuple[int, ...]
    operations: Count
    communications: tuple[_CountEntry, ...]
    operators: tuple[_CountEntry, ...]
    warnings: Names

    @classmethod
    def of(cls, profile: Profile) -> Self:
        """The document of what a profile holds."""
        communications, operators = counted_operations(profile)
        return cls.taken_from(
            profile,
            ranks=[each.rank for each in profile.ranks],
            operations=len(profile.events),
            communications=[*map(_CountEntry.taken_from, communications)],
            operators=[*map(_CountEntry.taken_from, operators)],
        )


def counted_operations(
    profile: Profile,
) -> tuple[tuple[_OperationCount, ...], tuple[_OperationCount, ...]]:
    """Communications and all else, the most calls first."""
    events = profile.events
    communicates = events.of_kind(*COMMUNICATIONS)
    key = same(events.name, np.where(communicates, events.group, UNKNOWN), events.kind)
    found: tuple[list[_OperationCount], list[_OperationCount]] = ([], [])
    for number in range(int(key.max()) + 1):
        mine = np.flatnonzero(key == number)
        sizes, group = events.size_bytes[mine], int(events.group[mine[0]])
        told = profile.groups[group] if group >= 0 else None
        found[0 if communicates[mine[0]] else 1].append(
            _OperationCount(
                name=profile.names[events.name[mine[0]]],
                group=told.name if told else "",
                members=len(told.ranks) if told else 0,
                on_ranks=len(np.unique(events.rank[mine])),
                calls=len(mine),
                size_bytes=int(sizes[sizes > 0].sum()) if (sizes > 0).any() else None,
            )
        )
    communications, operators = (sorted(each, key=lambda c: (-c.calls, c.name)) for each in found)
    return tuple(communications), tuple(operators)
