"""Collectives of a profile as measured curves: how long each took once its last rank was there."""

from collections.abc import Sequence

import numpy as np

from stepsim.measured.clocks import DEFAULT_NODE_SIZE
from stepsim.measured.profile.events import Profile
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.tables.spans import TaskKind
from stepsim.workload.rows import CollectiveKind

_TIMED = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.BROADCAST,
)
_Group = tuple[CollectiveKind, int, int]


def recorded_collectives(profile: Profile, node_size: int | None = None) -> CommTable | None:
    """Median times by collective, ranks, nodes and size; None where no time is without waits.

    Those alone count of which every rank was recorded: the time of others holds what they wait for
    the ranks that were not. A node has `node_size` ranks where the profile does not tell it, 8
    without it. Recorded steps share their links with whatever else ran.
    """
    events, found = profile.events, dict[_Group, dict[int, list[int]]]()
    kinds = [_kind_of(name) for name in profile.names]
    chosen = events.of_kind(TaskKind.COLLECTIVE) & (events.meeting >= 0) & (events.size_bytes > 0)
    places = np.flatnonzero(chosen)
    places = places[np.argsort(events.meeting[places], kind="stable")]
    cuts = np.flatnonzero(np.diff(events.meeting[places])) + 1
    for members in np.split(places, cuts) if len(places) else []:
        group, kind = int(events.group[members[0]]), kinds[int(events.name[members[0]])]
        ranks = profile.groups[group].ranks if group >= 0 else ()
        expected = len(ranks) or (profile.world or len(profile.ranks))
        if kind is None or expected < 2 or len(members) != expected:
            continue
        lasts = int(events.end_ps[members].max() - events.start_ps[members].max())
        nodes = _nodes(profile, events.rank[members].tolist(), node_size or DEFAULT_NODE_SIZE)
        size = int(events.size_bytes[members].max())
        if lasts > 0:
            found.setdefault((kind, expected, nodes), {}).setdefault(size, []).append(lasts)
    curves = [_curve(profile.source, group, times) for group, times in sorted(found.items())]
    return CommTable(source=profile.source, curves=tuple(curves)) if curves else None


def _kind_of(name: str) -> CollectiveKind | None:
    """The collective that a kernel's name tells, e.g. of `nccl _allgather_base`."""
    plain = name.lower().replace("_", "")
    return next((kind for kind in _TIMED if kind.value.replace("_", "") in plain), None)


def _nodes(profile: Profile, places: Sequence[int], node_size: int) -> int:
    """How many nodes some ranks lie on."""
    ranks = [profile.ranks[place] for place in places]
    return len({rank.rank // node_size if rank.node is None else rank.node for rank in ranks})


def _curve(source: str, group: _Group, times: dict[int, list[int]]) -> MeasuredCurve:
    """The median of each size."""
    kind, ranks, nodes = group
    sizes = sorted(times)
    return MeasuredCurve(
        machine="",
        source=source,
        kind=kind,
        ranks=ranks,
        nodes=nodes,
        size_bytes=np.array(sizes, dtype=np.int64),
        time_ps=np.array([round(float(np.median(times[size]))) for size in sizes], dtype=np.int64),
    )
