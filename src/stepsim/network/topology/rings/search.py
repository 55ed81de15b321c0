"""Rings through NPUs that are cabled to some others only, by a short search."""

import numpy as np

from stepsim.base.arrays import Ints

_MOST_NPUS = 32
_MOST_STEPS = 20_000


def disjoint_rings(cables: Ints) -> tuple[Ints, ...]:
    """Rings through all NPUs that share no cable, as many as are found; none if there is none.

    `cables[a, b]` is the number of cables from a to b. The search is greedy and bounded: it prefers
    pairs with the most cables left, then low numbers, and gives up a ring after 20,000 steps.
    """
    left = np.minimum(cables, cables.T)
    rings: list[Ints] = []
    if not 3 <= len(left) <= _MOST_NPUS:
        return ()
    while ring := _ring(left):
        rings.append(np.array(ring, dtype=np.int64))
        for here, there in zip(ring, ring[1:] + ring[:1], strict=True):
            left[here, there] -= 1
            left[there, here] -= 1
    return tuple(rings)


def _ring(cables: Ints) -> list[int]:
    """One ring through all NPUs over cables that are left; empty if none is found soon."""
    npus = len(cables)
    options = [
        [other for other in np.argsort(-row, kind="stable").tolist() if row[other]]
        for row in cables
    ]
    path, tried = [0], [0]
    for _ in range(_MOST_STEPS):
        here = path[-1]
        if len(path) == npus and cables[here, 0]:
            return path
        while tried[-1] < len(options[here]) and options[here][tried[-1]] in path:
            tried[-1] += 1
        if len(path) < npus and tried[-1] < len(options[here]):
            path.append(options[here][tried[-1]])
            tried[-1] += 1
            tried.append(0)
        else:
            path.pop()
            tried.pop()
            if not path:
                return []
    return []
