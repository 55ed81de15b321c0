"""Passes over the nodes of a run, compiled where numba is installed.

They give what columns give, number by number. Importing numba takes half a second, so they are for
graphs that are large, and for all others once it is there.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from stepsim.base.arrays import Ints, Small

_WORTH = 10_000_000
"""Sums from which on the import of numba is worth it."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


class CompiledPasses(NamedTuple):
    """The passes of `engine.nodes` as machine code."""

    levels: Callable[[Small, Small, Small], tuple[Small, Small]]
    longest_path: Callable[[Small, Small, Ints], None]


def compiled_passes(sums: int) -> CompiledPasses | None:
    """Machine code for a pass of so many sums; None where columns serve as well."""
    return _passes() if sums >= _WORTH or _passes.cache_info().currsize else None


@cache
def _passes() -> CompiledPasses | None:
    if find_spec("numba") is None:
        return None
    try:
        return CompiledPasses(levels=_compiled(_node_levels), longest_path=_compiled(_longest_ends))
    except ImportError:  # a numba that was not made for this numpy says so as it is imported
        return None


def _compiled(function: _Function) -> _Function:
    """Machine code, kept on disk where there is a place for it."""
    from numba import njit

    try:
        made = njit(cache=True)(function)
    except RuntimeError:
        made = njit(function)
    return cast("_Function", made)


def _node_levels(missing: Small, starts: Small, values: Small) -> tuple[Small, Small]:
    """Nodes level by level and where levels start; those that can never run come last.

    `values` from `starts` on are those that wait for a node; `missing` counts down.
    """
    total = len(missing)
    order = np.empty(total, dtype=np.int32)
    levels = np.empty(total + 1, dtype=np.int32)
    past = 0
    for node in range(total):
        if missing[node] == 0:
            order[past] = node
            past += 1
    here, count = 0, 0
    levels[0] = 0
    while here < past:
        count += 1
        levels[count] = past
        for place in range(here, levels[count]):
            node = order[place]
            for at in range(starts[node], starts[node + 1]):
                follower = values[at]
                missing[follower] -= 1
                if missing[follower] == 0:
                    order[past] = follower
                    past += 1
        here = levels[count]
    for node in range(total):
        if missing[node] > 0:
            order[past] = node
            past += 1
    return order, levels[: count + 1].copy()


def _longest_ends(starts: Small, values: Small, time: Ints) -> None:
    """Make how long every node takes its end, in ps: after the last that it waits for."""
    for node in range(len(time)):
        begin = 0
        for at in range(starts[node], starts[node + 1]):
            begin = max(begin, time[values[at]])
        time[node] += begin
