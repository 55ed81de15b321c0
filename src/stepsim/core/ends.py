"""What waits for what, and when everything ends.

Nodes stand in an order in which each follows those that it waits for. A node ends its duration
after the last of them. This module and the SimPy engine alone know that rule: the engine says it in
events and is the reference; here it is said in numbers, for one case or for many at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from typing import overload

import numpy as np

from stepsim.base.arrays import Ints, Lists, Small, bounds, lists_of, spans
from stepsim.base.errors import SimulationError
from stepsim.base.units import LARGEST_SUM, MAX_INT64
from stepsim.run.spans import EndView, NodeWaits

TOO_LONG = "the step exceeds 2**63 - 1 ps (106 days): it cannot be simulated"
_PAIRS_AT_ONCE = 1 << 18
_LOW_HALF = 0xFFFFFFFF


def listed_waits(after: Iterable[Sequence[int]]) -> NodeWaits:
    """Nodes that stand in order already, and what each waits for: for one case, or vectors."""
    lists = [tuple(before) for before in after]
    waits = NodeWaits(after=Lists.of(lists))
    vars(waits)["lists"] = lists  # as they are, not read back from the columns
    return waits


def ordered_waits(make_pairs: Callable[[], Ints], nodes: int) -> tuple[Small, NodeWaits]:
    """Nodes brought into an order of levels, from pairs `before << 32 | after` of their numbers.

    The place of every node in that order comes first. Pairs are made twice rather than kept: of the
    largest graphs they are what needs most memory.
    """
    pairs = make_pairs()
    missing, one = np.zeros(nodes, np.int32), np.int32(1)
    for part in _parts(pairs):
        np.add.at(missing, part & _LOW_HALF, one)
    followers = lists_of(pairs, nodes)
    del pairs
    order, levels = _levels(missing, followers)
    del missing, followers
    place = np.empty_like(order)
    place[order] = np.arange(nodes, dtype=np.int32)
    del order
    pairs = make_pairs()
    for part in _parts(pairs):
        before, after = place[part >> 32], place[part & _LOW_HALF].astype(np.int64)
        part[:] = after << 32 | before
    return place, NodeWaits(after=lists_of(pairs, nodes), levels=levels)


def _parts(pairs: Ints) -> list[Ints]:
    return np.split(pairs, range(_PAIRS_AT_ONCE, len(pairs), _PAIRS_AT_ONCE))


def _levels(missing: Small, followers: Lists) -> tuple[Small, Small]:
    """Nodes level by level and where levels start; those that can never run come last.

    `missing` says how many each node waits for: it counts down, and tells the last mention of what
    several nodes have freed.
    """
    starts, counts, values = followers.starts, followers.counts, followers.values
    if len(missing) <= _FEW_NODES:
        return _few_levels(missing.tolist(), starts.tolist(), values.tolist())
    level = np.flatnonzero(missing == 0)
    order, sizes = [level.astype(np.int32)], [len(level)]
    one = np.int32(1)  # a number of another kind takes ten times as long
    while len(level):
        freed = values.take(spans(starts.take(level), counts.take(level))).astype(np.intp)
        np.subtract.at(missing, freed, one)
        ready = freed.compress(missing.take(freed) == 0)
        turn = np.arange(-len(ready), 0, dtype=np.int32)
        missing[ready] = turn
        level = ready.compress(missing.take(ready) == turn)
        order.append(level.astype(np.int32))
        sizes.append(len(level))
    left = np.flatnonzero(missing > 0).astype(np.int32)
    return np.concatenate((*order, left)), bounds(np.array(sizes[:-1]))


def _few_levels(missing: list[int], starts: list[int], values: list[int]) -> tuple[Small, Small]:
    """As `_levels`, node by node."""
    order = [node for node, count in enumerate(missing) if not count]
    levels, begin = [0], 0
    while begin < len(order):
        end = len(order)
        levels.append(end)
        for node in order[begin:end]:
            for follower in values[starts[node] : starts[node + 1]]:
                if missing[follower] == 1:
                    order.append(follower)
                else:
                    missing[follower] -= 1
        begin = end
    if begin < len(missing):
        order += sorted({*range(len(missing))}.difference(order))
    return np.array(order, np.int32), np.array(levels, np.int32)


# Nodes up to which levels are found as fast in Python's numbers as in columns.
_FEW_NODES = 1 << 16
# Nodes of a mean level up to which ends are: a level in columns takes as long as four nodes.
_NARROW = 4


@overload
def ends(waits: NodeWaits, duration_ps: Ints, *, out: Ints | None = None) -> Ints: ...


@overload
def ends(waits: NodeWaits, duration_ps: list[Ints] | Iterator[Ints]) -> list[Ints]: ...


def ends(
    waits: NodeWaits, duration_ps: Ints | Iterable[Ints], *, out: Ints | None = None
) -> Ints | list[Ints]:
    """When nodes end, in ps, from how long each takes.

    Of one array of shape (nodes) or (nodes, cases) comes an array of the same shape, whatever
    `waits.results` are; it is `out` where that is given, which may be the durations themselves. Of
    an array per node, in order, come the ends of `waits.results`: arrays of the cases, or of one
    element where all cases agree. All nodes must be able to run (`NodeWaits.runnable`). Raises
    SimulationError where one case takes more than 64 bits; of several, sums must not.

    For example nodes that take 3, 5 and 2, of which the last waits for the others, end at 3, 5, 7.
    """
    if not isinstance(duration_ps, np.ndarray):
        return _of_cases(waits, duration_ps)
    end_ps = np.empty_like(duration_ps) if out is None else out
    # one case comes sooner node by node, in Python's numbers, where levels are narrow, or may need
    # them to fit
    if waits.levels is None or (
        duration_ps.ndim == 1
        and (
            len(waits) <= _NARROW * len(waits.levels)
            or float(duration_ps.sum(dtype=np.float64)) > LARGEST_SUM
        )
    ):
        end_ps[:] = _of_numbers(waits, duration_ps.tolist())
    else:
        if out is not duration_ps:
            end_ps[:] = duration_ps
        _add_levels(waits, end_ps)
    return end_ps


def _of_numbers(waits: NodeWaits, duration_ps: list[int]) -> list[int]:
    """One case, node by node; raises SimulationError where it takes too long."""
    end_ps: list[int] = []
    for before, duration in zip(waits.lists, duration_ps, strict=True):
        if len(before) == 1:
            end_ps.append(end_ps[before[0]] + duration)
        else:
            end_ps.append(max([end_ps[node] for node in before], default=0) + duration)
    if max(end_ps, default=0) > MAX_INT64:
        raise SimulationError(TOO_LONG)
    return end_ps


def _add_levels(waits: NodeWaits, end_ps: Ints) -> None:
    """Make durations ends, all nodes of a level at a time; those of the first wait for nothing."""
    assert waits.levels is not None
    values, first = waits.after.values, waits.after.starts[waits.levels]
    within = waits.after.starts[:-1] - first[:-1].repeat(np.diff(waits.levels)).astype(np.intp)
    nodes, places = pairwise(waits.levels.tolist()), pairwise(first.tolist())
    for (low, high), (begin, end) in list(zip(nodes, places, strict=True))[1:]:
        latest = end_ps.take(values[begin:end], axis=0)
        end_ps[low:high] += np.maximum.reduceat(latest, within[low:high], axis=0)


def _of_cases(waits: NodeWaits, duration_ps: Iterable[Ints]) -> list[Ints]:
    """Many cases, node by node; ends are forgotten when nothing needs them any more."""
    known: list[Ints] = []
    forgotten: Ints = np.zeros(0, np.int64)
    views: Iterable[tuple[EndView | None, ...]] = waits.views or [()] * len(waits)
    columns = zip(waits.lists, views, duration_ps, waits.over_after, strict=True)
    for before, seen, duration, over in columns:
        awaited = [known[node] for node in before]
        if seen:
            awaited = [see(end) if see else end for see, end in zip(seen, awaited, strict=True)]
        if awaited:
            latest = reduce(np.maximum, awaited)
            lasts = duration.size > 1 or duration.any()  # what takes no time adds nothing
            known.append(latest + duration if lasts else latest)
        else:
            known.append(duration)
        for node in over:
            known[node] = forgotten
    return known if waits.results is None else [known[node] for node in waits.results]


def freed_by(after: Lists, start_ps: Ints, end_ps: Ints) -> Ints:
    """Of what each node waits for the last in its list that ends when it starts, -1 if none does.

    For example of nodes that run from 0 to 3, 0 to 5 and 5 to 7, of which the last waits for the
    others, these are -1, -1, 1.
    """
    owners, before = after.owners, after.values
    met = end_ps[before] == start_ps[owners]
    found = np.full(len(after), -1)
    found[owners[met]] = before[met]  # of several the last one stays
    return found
