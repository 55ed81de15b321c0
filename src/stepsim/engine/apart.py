"""Runs with shared links in which no two transfers are on a link at the same time: no events.

Then each transfer takes as long as by itself, so columns find when everything runs, level by level.
That nobody met anybody is seen in these times afterwards: if two transfers had met, one pair would
have been the first to, and until then the events give the same times.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stepsim.base.arrays import Ints, bounds, spans
from stepsim.engine.fold import Actors
from stepsim.engine.lay_out import Runnable
from stepsim.engine.layouts import Times
from stepsim.engine.nodes import NodeTimes, run_levels
from stepsim.network.flights import Transfer
from stepsim.parallel.ranks import ParallelPlan

_NEAR = 1e-11
"""Levels that are as near to each other may be found together as one: `fair_rates` rounds them."""


class _Flights(NamedTuple):
    """Transfers that run, as columns: the number of each in a list, and when it starts in ps."""

    transfer: Ints
    start: Times


def run_apart(runnable: Runnable, actors: Actors, plan: ParallelPlan) -> NodeTimes | None:
    """When every task runs, if no transfer meets another on a link; else None: events tell."""
    every = {id(each): each for several in runnable.transfers for each in several.values()}
    transfers = list(every.values())
    if _are_near(transfers):
        return None
    times = run_levels(runnable.programs, actors, plan)
    if times is None:
        return None
    number = {key: i for i, key in enumerate(every)}
    return None if _meet(transfers, _flights(runnable, times, number)) else times


def _are_near(transfers: Sequence[Transfer]) -> bool:
    """Whether flights that share nothing may change each other's speed by a rounding."""
    found = {phase.level for each in transfers for phase in each.phases}
    levels = np.sort([each for each in found if np.isfinite(each)])
    return bool((np.diff(levels) <= _NEAR * levels[:-1]).any())


def _flights(runnable: Runnable, times: NodeTimes, number: dict[int, int]) -> _Flights:
    """Every transfer once, of the first of its members."""
    is_new = np.ones(len(times.graph), dtype=bool)
    numbers, starts = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    columns = zip(runnable.programs, runnable.transfers, times.graph.node_of, strict=True)
    for laid, transfers, nodes in columns:
        flies = np.flatnonzero(laid.slowed >= 0)
        flies = flies[is_new[nodes[flies]]]
        is_new[nodes[flies]] = False
        of_use = [number[id(transfers[use])] if use in transfers else -1 for use in laid.uses]
        numbers.append(np.array(of_use, dtype=np.int64)[laid.slowed[flies]])
        starts.append(times.end[nodes[flies]] - laid.duration_ps[flies])
    return _Flights(np.concatenate(numbers), np.concatenate(starts))


def _meet(transfers: Sequence[Transfer], flights: _Flights) -> bool:
    """Whether two flights are on a link at the same time; one may begin when another ends."""
    rows = [[*_uses_of_links(each)] for each in transfers]
    table = np.array([row for several in rows for row in several], dtype=np.int64).reshape(-1, 3)
    counts = np.array([len(several) for several in rows], dtype=np.int64)
    mine = counts[flights.transfer]
    link, begin, end = table[spans(bounds(counts)[flights.transfer], mine)].T
    start = np.repeat(flights.start, mine)
    order = np.lexsort((start + end, start + begin, link))
    link, begin, end = link[order], (start + begin)[order], (start + end)[order]
    return bool(((link[1:] == link[:-1]) & (begin[1:] < end[:-1])).any())


def _uses_of_links(transfer: Transfer) -> list[tuple[int, int, int]]:
    """The links that carry its bytes, and from when to when, in ps from its start."""
    found, now = [], 0
    for phase in transfer.phases:
        begin = now + phase.latency_ps
        now += phase.duration_ps
        found += [(link, begin, now) for link in phase.link.tolist()]
    return found
