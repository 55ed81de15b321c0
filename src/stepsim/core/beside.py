"""Compute beside communications: how much longer it takes, from when both run by themselves.

A communication takes multiprocessors and memory bandwidth while it moves bytes, and so a share of
the speed of the compute beside it, which `stepsim.workload.overlap` gives. How much of a
communication runs beside which compute is taken from a run before. Rows of a
model say which kernels they run; others count as products with many blocks, without the delay of
short kernels.
"""

from typing import NamedTuple

import numpy as np

from stepsim.base.arrays import Floats, Ints, distinct, row_numbers, spans, totals
from stepsim.base.structs import Noun
from stepsim.base.units import PS_PER_S
from stepsim.core.actions import Task
from stepsim.core.flat import Flat, Tasks
from stepsim.network.collectives import Algorithm
from stepsim.network.prices import Prices, Use
from stepsim.run.spans import TaskKind
from stepsim.workload.overlap import (
    ACROSS_NODES_SMS,
    MOST_TAKEN,
    CommDemand,
    CommEngine,
    Demands,
    GpuLimits,
    row_slowdown,
)
from stepsim.workload.rows import CollectiveKind, CommOp

_ENGINES = {
    CollectiveKind.ALL_REDUCE: CommEngine.RING_IN_PLACE,
    CollectiveKind.SEND_RECV: CommEngine.POINT_TO_POINT,
}
_UNKNOWN = Demands()


class OverlapCost(Noun):
    """What a step's GPUs have to share, and how its communications take it.

    `sms` are those that each communication holds, None: as many as usual, 0: copy engines carry it
    out. All-to-alls are carried out by `exchange`.
    """

    gpu: GpuLimits
    sms: int | None = None
    exchange: CommEngine = CommEngine.POINT_TO_POINT

    def demand(self, use: Use, rank: int, prices: Prices) -> CommDemand | None:
        """What a communication takes of a rank's GPU while it moves bytes; None for no time."""
        op, patterns = prices.comms[use.comm], prices.patterns(use)
        duration_ps = prices.duration_ps(use, rank)
        if not duration_ps:
            return None
        npus = patterns.npus[patterns.row(rank)]
        sent = op.size_bytes * wire_share(op, len(npus))
        engine = self.carrier(use, rank, prices)
        sms, traits = self.sms, engine.traits
        nodes = distinct(npus // prices.topology.node_size)
        if sms is None and op.kind is not CollectiveKind.ALL_TO_ALL and len(nodes) > 1:
            sms = min(traits.sms, ACROSS_NODES_SMS)
        return traits.moving(sent / duration_ps * PS_PER_S, sms)

    def carrier(self, use: Use, rank: int, prices: Prices) -> CommEngine:
        """What carries a communication out in the group of a rank."""
        op, look = prices.comms[use.comm], prices.patterns(use).look(rank)
        if prices.cost(use, look).algorithm.algorithm is Algorithm.NVLS:
            return CommEngine.NVLS
        if self.sms == 0:
            return CommEngine.COPY_ENGINE
        if op.kind is CollectiveKind.ALL_TO_ALL:
            return self.exchange
        return _ENGINES.get(op.kind, CommEngine.RING)


def wire_share(op: CommOp, members: int) -> float:
    """Bytes that a rank sends for each byte of a communication's size."""
    if op.kind in (CollectiveKind.SEND_RECV, CollectiveKind.BROADCAST, CollectiveKind.REDUCE):
        return 1.0
    once = (members - 1) / members
    return 2.0 * once if op.kind is CollectiveKind.ALL_REDUCE else once


class Alongside(NamedTuple):
    """Pairs of tasks that run at the same time: places of both, and a share of the `comm`'s time.

    Of compute from 0 to 10 and 10 to 30, and a communication from 5 to 25, the pairs are (0, 0)
    with a share of 0.25 and (1, 0) with 0.75.
    """

    compute: Ints
    comm: Ints
    share: Floats


def runs_beside(compute: tuple[Ints, Ints], comm: tuple[Ints, Ints]) -> Alongside:
    """Which compute, one task after the other, runs beside which communication.

    Both are starts and ends in ps.
    """
    order = np.argsort(compute[0], kind="stable")
    start, end = compute[0][order], compute[1][order]
    begins, stops = comm
    first = np.searchsorted(end, begins, "right")
    count = np.maximum(np.searchsorted(start, stops, "left") - first, 0)
    count[stops <= begins] = 0
    which, of = spans(first, count), np.arange(len(count)).repeat(count)
    both = np.minimum(end[which], stops[of]) - np.maximum(start[which], begins[of])
    share = np.maximum(both, 0) / (stops - begins)[of]
    return Alongside(compute=order[which], comm=of, share=share)


def slow_compute(flat: Flat, prices: Prices, cost: OverlapCost, start: Ints, end: Ints) -> Ints:
    """What every node takes, with compute as long as it takes beside communications, in ps.

    Every task is by itself; `start` and `end` are those of the nodes in a run before, slowed or
    not. Where compute lost the share b of what it took there, it takes its time alone over 1 - b,
    or if it was slowed there, the mean of the two: that is what it took once runs change no more.
    """
    slowing, slowed_ps = _Slowing(prices=prices, cost=cost), flat.duration_ps
    columns = zip(flat.programs, flat.node_of, flat.actors.ranks.tolist(), strict=True)
    for tasks, nodes, rank in columns:
        lost_ps = slowing.lost_ps(tasks, rank, start[nodes], end[nodes])
        some = np.flatnonzero(lost_ps)
        own, took_ps = nodes[some], (end - start)[nodes[some]]
        alone_ps = slowed_ps[own]
        lost = np.minimum(lost_ps[some] / took_ps, MOST_TAKEN)
        slow_ps = np.rint(alone_ps / (1.0 - lost)).astype(np.int64)
        again = took_ps > alone_ps  # a loss may swing
        slowed_ps[own] = slow_ps + np.where(again, (took_ps - slow_ps) // 2, 0)
    return slowed_ps


class _Slowing(Noun):
    """Finds what compute loses beside communications, once for all pairs that are alike."""

    prices: Prices
    cost: OverlapCost
    _lost: dict[tuple[Demands, int, CommDemand], float] = {}

    def lost_ps(self, tasks: Tasks, rank: int, start: Ints, end: Ints) -> Floats:
        """What tasks of one actor, which start and end then, lose beside its communications."""
        kernels = [_kernels(row.task(tasks.program)) for row in tasks.rows]
        demands = [row.use and self.cost.demand(row.use, rank, self.prices) for row in tasks.rows]
        compute, comm = (
            np.flatnonzero(np.array([each is not None for each in column])[tasks.row])
            for column in (kernels, demands)
        )
        beside = runs_beside((start[compute], end[compute]), (start[comm], end[comm]))
        task, other = compute[beside.compute], comm[beside.comm]
        pairs = np.column_stack((tasks.row[task], tasks.row[other])).astype(np.int64)
        first, number = row_numbers(pairs)
        shares = [
            self.lost(kernels[own], int(tasks.row_ps[own]), demands[use])
            for own, use in pairs[first].tolist()
        ]
        both_ps = beside.share * (end - start)[other]
        lost = both_ps * np.array(shares, np.float64)[number]
        return totals(task, lost, len(tasks))

    def lost(self, kernels: Demands | None, alone_ps: int, beside: CommDemand | None) -> float:
        """Share of its speed that compute of `alone_ps` loses beside a communication."""
        assert kernels
        assert beside
        key = kernels, alone_ps, beside
        if key not in self._lost:
            longer = row_slowdown(kernels, alone_ps / PS_PER_S, [beside], self.cost.gpu)
            self._lost[key] = 1.0 - 1.0 / longer
        return self._lost[key]


def _kernels(task: Task | None) -> Demands | None:
    """The kernels of compute; products of many blocks where nothing is said, else None."""
    computes = task is not None and task.kind is TaskKind.COMPUTE
    return (task.kernels.demands or _UNKNOWN) if task and computes else None
