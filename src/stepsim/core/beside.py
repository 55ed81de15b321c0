"""Compute beside communications: how much longer it takes, from when both run by themselves.

A communication takes multiprocessors and memory bandwidth while it moves bytes, and so a share of
the speed of the compute beside it, which `stepsim.workload.overlap` gives. How much of a
communication runs beside which compute is taken from a run before. Rows of a model say which
kernels they run; others count as products with many blocks, without the delay of short kernels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Bools, Floats, Ints, Small, distinct, row_numbers, spans, totals
from stepsim.base.axes import CollectiveKind
from stepsim.base.structs import Noun
from stepsim.base.units import PS_PER_S
from stepsim.core.ends import ends
from stepsim.core.flat import Flat, Tasks, inside, listed
from stepsim.network.collectives import Algorithm
from stepsim.network.collectives.flows import bus_factor
from stepsim.network.prices import Prices, Use
from stepsim.run.spans import TaskKind
from stepsim.workload.overlap import (
    ACROSS_NODES_SMS,
    MOST_TAKEN,
    CommDemand,
    CommEngine,
    GpuLimits,
    Kernel,
    Kernels,
    row_slowdown,
)

_ENGINES = {
    CollectiveKind.ALL_REDUCE: CommEngine.RING_IN_PLACE,
    CollectiveKind.SEND_RECV: CommEngine.POINT_TO_POINT,
}
_UNKNOWN = (Kernel(name="", operator="", weight=1.0),)


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
        sent = op.size_bytes * bus_factor(op.kind, len(npus))
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


class SlowedCompute(Struct, kw_only=True):
    """A step whose communications slow its compute: what tasks take is found from run to run.

    `apart[a]` are the tasks of actor a of `flat`, each by itself, and `took_ps[a]` what they take.
    """

    flat: Flat
    apart: Sequence[Tasks]
    prices: Prices
    cost: OverlapCost
    took_ps: list[Ints] = []
    _inside: dict[int, tuple[Small, Bools, Ints, Ints]] = {}
    _lost: dict[tuple[Kernels, int, CommDemand], float] = {}

    def durations(self, start: Ints, end: Ints) -> Ints:
        """What every node takes, in ps, after a run in which nodes started and ended then."""
        found, self.took_ps = self.flat.duration_ps, []
        for actor, nodes in enumerate(self.flat.node_of):
            tasks, apart = self.flat.programs[actor], self.apart[actor]
            if actor not in self._inside:
                self._inside[actor] = inside(tasks, apart)
            place, is_inside, after, until = self._inside[actor]
            node = nodes[place]
            begin = start[node]
            finish = np.where(is_inside, begin + until, end[node])
            took_ps = self._slowed(actor, begin + after, finish)
            alone = np.flatnonzero((took_ps != apart.duration_ps) & ~is_inside)
            found[node[alone]] = took_ps[alone]
            for number, each in listed(tasks, apart):
                waits = tasks.program.lists[number].waits
                ended = np.stack(ends(waits, iter(took_ps[each].T)))
                after[each], until[each] = (ended - took_ps[each].T).T, ended.T
                found[node[each[:, 0]]] = ended.max(axis=0)
            self.took_ps.append(took_ps)
        return found

    def _slowed(self, actor: int, start: Ints, end: Ints) -> Ints:
        """What an actor's tasks take, in ps, from a run before, slowed or not.

        Where compute lost the share b of what it took there, it takes its time alone over 1 - b, or
        if it was slowed there, the mean of the two: that is what it took once runs change no more.
        """
        took_ps = self.apart[actor].duration_ps
        lost_ps = self._lost_ps(self.apart[actor], int(self.flat.actors.ranks[actor]), start, end)
        some = np.flatnonzero(lost_ps)
        before_ps = (end - start)[some]
        lost = np.minimum(lost_ps[some] / before_ps, MOST_TAKEN)
        slow_ps = np.rint(took_ps[some] / (1.0 - lost)).astype(np.int64)
        again = before_ps > took_ps[some]  # a loss may swing
        took_ps[some] = slow_ps + np.where(again, (before_ps - slow_ps) // 2, 0)
        return took_ps

    def _lost_ps(self, tasks: Tasks, rank: int, start: Ints, end: Ints) -> Floats:
        """What tasks of one actor, which start and end then, lose beside its communications."""
        every = [row.task(tasks.program) for row in tasks.rows]
        # the kernels of compute, products of many blocks where nothing is said
        kernels = [
            (task.kernels or _UNKNOWN) if task and task.kind is TaskKind.COMPUTE else None
            for task in every
        ]
        demands = [row.use and self.cost.demand(row.use, rank, self.prices) for row in tasks.rows]
        compute, comm = (
            np.flatnonzero(np.array([each is not None for each in column])[tasks.row])
            for column in (kernels, demands)
        )
        beside = runs_beside((start[compute], end[compute]), (start[comm], end[comm]))
        own, other = compute[beside.compute], comm[beside.comm]
        pairs = np.column_stack((tasks.row[own], tasks.row[other])).astype(np.int64)
        first, number = row_numbers(pairs)
        shares = [
            self._share(kernels[row], int(tasks.row_ps[row]), demands[use])
            for row, use in pairs[first].tolist()
        ]
        both_ps = beside.share * (end - start)[other]
        lost = both_ps * np.array(shares, np.float64)[number]
        return totals(own, lost, len(tasks))

    def _share(self, kernels: Kernels | None, alone_ps: int, beside: CommDemand | None) -> float:
        """Share of its speed that compute of `alone_ps` loses beside a communication."""
        assert kernels
        assert beside
        key = kernels, alone_ps, beside
        if key not in self._lost:
            longer = row_slowdown(kernels, alone_ps / PS_PER_S, [beside], self.cost.gpu)
            self._lost[key] = 1.0 - 1.0 / longer
        return self._lost[key]
