"""When everything ends: a node ends its duration after the last node that it waits for.

This module and the SimPy engine alone know that rule. The engine says it in events and is the
reference; here it is said in numbers, for one case or for many at once.
"""

from collections.abc import Iterable, Iterator
from typing import overload

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.tables.waits import EndView, NodeWaits

_FEW_NODES = 1 << 14
"""Nodes up to which Python's numbers, node by node, are as fast as columns, level by level."""


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
    element where all cases agree. The longest path must fit 64 bits (of a few nodes an
    OverflowError says that it does not), and all nodes must be able to run (`NodeWaits.runnable`).

    For example nodes that take 3, 5 and 2, of which the last waits for the others, end at 3, 5, 7.
    """
    if not isinstance(duration_ps, np.ndarray):
        return _of_cases(waits, duration_ps)
    end_ps = np.empty_like(duration_ps) if out is None else out
    if waits.levels is None or (duration_ps.ndim == 1 and len(waits) <= _FEW_NODES):
        end_ps[:] = _of_numbers(waits, duration_ps.tolist())
    else:
        end_ps[:] = duration_ps
        _add_levels(waits, end_ps)
    return end_ps


def _of_numbers(waits: NodeWaits, duration_ps: list[int]) -> list[int]:
    """One case, node by node."""
    end_ps: list[int] = []
    for before, duration in zip(waits.lists, duration_ps, strict=True):
        end_ps.append(max([end_ps[node] for node in before], default=0) + duration)
    return end_ps


def _add_levels(waits: NodeWaits, end_ps: Ints) -> None:
    """Make durations ends, all nodes of a level at a time."""
    for low, high, before, begins in waits.waiting_levels():
        end_ps[low:high] += np.maximum.reduceat(end_ps.take(before, axis=0), begins, axis=0)


def _of_cases(waits: NodeWaits, duration_ps: Iterable[Ints]) -> list[Ints]:
    """Many cases, node by node; ends are forgotten when nothing needs them any more."""
    known: list[Ints] = []
    forgotten: Ints = np.zeros(0, dtype=np.int64)
    views: Iterable[tuple[EndView | None, ...]] = waits.views or [()] * len(waits)
    columns = zip(waits.lists, views, duration_ps, waits.over_after, strict=True)
    for before, seen, duration, over in columns:
        awaited = [known[node] for node in before]
        if seen:
            awaited = [see(end) if see else end for see, end in zip(seen, awaited, strict=True)]
        known.append(_latest(awaited) + duration if awaited else duration)
        for node in over:
            known[node] = forgotten
    return known if waits.results is None else [known[node] for node in waits.results]


def _latest(ends_ps: list[Ints]) -> Ints:
    """The last of some ends, case by case."""
    latest = ends_ps[0]
    for end in ends_ps[1:]:
        latest = np.maximum(latest, end)
    return latest
