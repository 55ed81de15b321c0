"""What communications take from the compute of their rank while a step runs, and how fast it goes.

Time is passed in; nothing here waits. A rank's communications hold SMs and memory bandwidth from
their start to their end; a ring whose other members have not arrived holds its SMs and moves
nothing. Compute goes at one over the slowdown that `stepsim.workload.overlap` gives for all that
its rank's communications take together. Rows of a model say which kernels they run; others count as
products with many blocks, without the delay of short kernels.
"""

from collections.abc import Mapping, Sequence
from typing import Self

from msgspec import Struct, field

from stepsim.base.arrays import distinct
from stepsim.base.units import PS_PER_S
from stepsim.engine.lay_out import LaidOut
from stepsim.graph.actions import Task
from stepsim.graph.programs import Look, SegmentKind
from stepsim.network.collectives import Algorithm
from stepsim.network.fold import Actors
from stepsim.network.prices import Prices, Use
from stepsim.tables.spans import TaskKind
from stepsim.workload.overlap import (
    ACROSS_NODES_SMS,
    CommDemand,
    CommEngine,
    CommTraits,
    Demands,
    GpuLimits,
)
from stepsim.workload.rows import CollectiveKind, CommOp

_ENGINES = {
    CollectiveKind.ALL_REDUCE: CommEngine.RING_IN_PLACE,
    CollectiveKind.SEND_RECV: CommEngine.POINT_TO_POINT,
}
_NOTHING = CommDemand()
_UNKNOWN = Demands()

Taken = tuple[int, int, tuple[int, ...]]
"""SMs, bytes per second, and delays in ps: what communications take of a GPU."""
NOTHING_TAKEN: Taken = (0, 0, ())


def changed(taken: Taken, demand: Taken, sign: int) -> Taken:
    """What is taken when a demand begins (1) or ends (-1)."""
    sms, bytes_per_s, delays = taken
    if sign > 0 and demand[2]:
        delays = tuple(sorted(delays + demand[2]))
    elif demand[2]:
        first = delays.index(demand[2][0])  # one communication has one delay
        delays = delays[:first] + delays[first + 1 :]
    return sms + sign * demand[0], bytes_per_s + sign * demand[1], delays


class OverlapCost(Struct, frozen=True, kw_only=True):
    """What a step's GPUs have to share, and how its communications take it.

    `sms` are those that each communication holds, None: as many as usual, 0: copy engines carry it
    out. All-to-alls are carried out by `exchange`. `traits` are those that were measured on these
    GPUs, in place of what engines take elsewhere.
    """

    gpu: GpuLimits
    sms: int | None = None
    exchange: CommEngine = CommEngine.POINT_TO_POINT
    traits: Mapping[CommEngine, CommTraits] = {}

    def demands(self, use: Use, rank: int, prices: Prices) -> tuple[CommDemand, CommDemand]:
        """What a communication takes of a rank's GPU while it runs, and while it waits."""
        op, patterns = prices.comms[use.comm], prices.patterns(use)
        group = patterns.row(rank)
        duration_ps = prices.duration_ps(use.comm, patterns, group)
        if not duration_ps:
            return _NOTHING, _NOTHING
        npus = patterns.npus[group]
        sent = op.size_bytes * wire_share(op, len(npus))
        engine = self.carrier(use, rank, prices)
        sms, traits = self.sms, self.traits.get(engine, engine.traits)
        nodes = distinct(npus // prices.topology.node_size)
        if sms is None and op.kind is not CollectiveKind.ALL_TO_ALL and len(nodes) > 1:
            sms = min(traits.sms, ACROSS_NODES_SMS)
        return traits.moving(sent / duration_ps * PS_PER_S, sms), traits.waiting(sms)

    def carrier(self, use: Use, rank: int, prices: Prices) -> CommEngine:
        """What carries a communication out in the group of a rank."""
        op, patterns = prices.comms[use.comm], prices.patterns(use)
        pattern = int(patterns.pattern[patterns.row(rank)])
        if prices.cost(op, patterns, pattern).algorithm.algorithm is Algorithm.NVLS:
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


class ListWork(Struct, frozen=True, kw_only=True, eq=False):
    """Tasks that only their own rank can delay: what each of them takes, and waits for.

    Task i takes `duration_ps[i]` alone, is compute where it has `kernels`, and is begun when all
    bits of `waits[i]` are set, those of the tasks before it; `followers[i]` wait for it. It takes
    `demands[i]` from compute beside it. The `first` wait for nothing.
    """

    duration_ps: tuple[int, ...]
    kernels: tuple[Demands | None, ...]
    demands: tuple[Taken | None, ...]
    waits: tuple[int, ...]
    followers: tuple[tuple[int, ...], ...]
    first: tuple[int, ...]

    @classmethod
    def of(
        cls,
        duration_ps: Sequence[int],
        kernels: Sequence[Demands | None],
        demands: Sequence[Taken | None],
        after: Sequence[Sequence[int]],
    ) -> Self:
        """From what every task waits for."""
        followers: list[list[int]] = [[] for _ in after]
        for task, before in enumerate(after):
            for earlier in before:
                followers[earlier].append(task)
        return cls(
            duration_ps=tuple(duration_ps),
            kernels=tuple(kernels),
            demands=tuple(demands),
            waits=tuple(sum(1 << earlier for earlier in set(before)) for before in after),
            followers=tuple(map(tuple, followers)),
            first=tuple(task for task, before in enumerate(after) if not before),
        )


class RowDemands(Struct, frozen=True, kw_only=True):
    """What rows of a program take while they run and while they wait, and which `works` compute.

    A task list that only its rank can delay is the work of one row. None is nothing.
    """

    works: list[ListWork | None]
    moves: list[Taken | None]
    waits: list[Taken | None]


def row_demands(
    programs: Sequence[LaidOut], actors: Actors, prices: Prices, cost: OverlapCost
) -> list[RowDemands]:
    """Those of every actor; actors that run the same laid-out program share them."""
    known: dict[int, RowDemands] = {}
    for laid, rank in zip(programs, actors.ranks.tolist(), strict=True):
        if id(laid) not in known:
            known[id(laid)] = _of_rows(laid, rank, prices, cost)
    return [known[id(laid)] for laid in programs]


def _of_rows(laid: LaidOut, rank: int, prices: Prices, cost: OverlapCost) -> RowDemands:
    demands = _Demands(rank=rank, prices=prices, cost=cost)
    pairs = [demands.of(_use(laid, look, inner)) for look, inner in laid.rows]
    lists = {number: _list_work(laid, number, demands) for number in laid.times}
    return RowDemands(
        works=[
            lists[look.task_list]
            if look.task_list >= 0 and inner < 0
            else _task_work(laid, look, inner, duration_ps)
            for (look, inner), duration_ps in zip(laid.rows, laid.row_ps.tolist(), strict=True)
        ],
        moves=[moves for moves, _ in pairs],
        waits=[waits for _, waits in pairs],
    )


def _demands(task: Task) -> Demands | None:
    """The kernels of a task; products of many blocks where it says nothing, None for no compute."""
    if task.kind is not TaskKind.COMPUTE:
        return None
    return task.kernels.demands or _UNKNOWN


def _taken(demand: CommDemand) -> Taken | None:
    """What a communication takes, in whole bytes per second."""
    delays = (demand.delay_ps,) if demand.delay_ps else ()
    taken = demand.sms, round(demand.bytes_per_s), delays
    return taken if any(taken) else None


class _Demands(Struct, frozen=True, kw_only=True):
    """What communications take of a rank's GPU, found once for all that are alike."""

    rank: int
    prices: Prices
    cost: OverlapCost
    _known: dict[Use, tuple[Taken | None, Taken | None]] = field(default_factory=dict)

    def of(self, use: Use | None) -> tuple[Taken | None, Taken | None]:
        """What it takes while it moves bytes, and while it waits; None is nothing."""
        if use is None:
            return None, None
        if use not in self._known:
            moves, waits = self.cost.demands(use, self.rank, self.prices)
            self._known[use] = _taken(moves), _taken(waits)
        return self._known[use]


def _list_work(laid: LaidOut, number: int, demands: _Demands) -> ListWork:
    """The work of a task list that is one task."""
    tasks, times = laid.program.lists[number].tasks, laid.times[number]
    uses = [Use(task.comm, laid.program.stage) if task.comm >= 0 else None for task in tasks]
    return ListWork.of(
        (times.end - times.start).tolist(),
        [_demands(task) for task in tasks],
        [demands.of(use)[0] for use in uses],
        [task.after for task in tasks],
    )


def _task_work(laid: LaidOut, look: Look, inner: int, duration_ps: int) -> ListWork | None:
    """The work of a task by itself, None where it does not compute."""
    if look.task_list < 0 or not duration_ps:
        return None
    kernels = _demands(laid.program.lists[look.task_list].tasks[inner])
    return ListWork.of([duration_ps], [kernels], [None], [()]) if kernels else None


def _use(laid: LaidOut, look: Look, inner: int) -> Use | None:
    """The communication that a row is, None for other work."""
    program = laid.program
    if look.task_list < 0:
        sends = look.kind is SegmentKind.SEND
        return Use(program.message, program.stage, look.peer_stage, sends)
    if inner < 0:
        return None
    comm = program.lists[look.task_list].tasks[inner].comm
    return Use(comm, program.stage) if comm >= 0 else None
