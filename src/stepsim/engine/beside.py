"""What communications take from the compute of their rank while a step runs, and how fast it goes.

Time is passed in; nothing here waits. A rank's communications hold SMs and memory bandwidth from
their start to their end; a ring whose other members have not arrived holds its SMs and moves
nothing. Compute goes at one over the slowdown that `stepsim.workload.overlap` gives for all that
its rank's communications take together. Which kernels a row of compute runs is not known here: it
counts as products with many blocks, and the delay of short kernels is left out.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from stepsim.base.units import PS_PER_S
from stepsim.engine.lay_out import LaidOut
from stepsim.graph.programs import Look, SegmentKind
from stepsim.network.collectives import Algorithm
from stepsim.network.flights import time_left_ps
from stepsim.network.fold import Actors
from stepsim.network.prices import Prices, Use
from stepsim.tables.spans import TaskKind
from stepsim.workload.overlap import (
    ACROSS_NODES_SMS,
    CommDemand,
    CommEngine,
    CommTraits,
    GpuLimits,
    KernelDemand,
    slowdown,
)
from stepsim.workload.rows import CollectiveKind, CommOp

_ENGINES = {
    CollectiveKind.ALL_REDUCE: CommEngine.RING_IN_PLACE,
    CollectiveKind.SEND_RECV: CommEngine.POINT_TO_POINT,
}
_NOTHING = CommDemand()


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
        sent = op.size_bytes * _wire_share(op, len(npus))
        engine = self._engine(op)
        if (
            prices.cost(op, patterns, int(patterns.pattern[group])).algorithm.algorithm
            is Algorithm.NVLS
        ):
            engine = CommEngine.NVLS
        sms, traits = self.sms, self.traits.get(engine, engine.traits)
        if sms is None and len(set((npus // prices.topology.node_size).tolist())) > 1:
            sms = min(traits.sms, ACROSS_NODES_SMS)
        return traits.moving(sent / duration_ps * PS_PER_S, sms), traits.waiting(sms)

    def _engine(self, op: CommOp) -> CommEngine:
        if self.sms == 0:
            return CommEngine.COPY_ENGINE
        if op.kind is CollectiveKind.ALL_TO_ALL:
            return self.exchange
        return _ENGINES.get(op.kind, CommEngine.RING)


def _wire_share(op: CommOp, members: int) -> float:
    """Bytes that a rank sends for each byte of a communication's size."""
    if op.kind in (CollectiveKind.SEND_RECV, CollectiveKind.BROADCAST, CollectiveKind.REDUCE):
        return 1.0
    once = (members - 1) / members
    return 2.0 * once if op.kind is CollectiveKind.ALL_REDUCE else once


class RowDemands(Struct, frozen=True, kw_only=True):
    """What rows of a program take while they run and while they wait; which of them `compute`."""

    compute: list[bool]
    moves: list[CommDemand]
    waits: list[CommDemand]


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
    uses = [_use(laid, look, inner) for look, inner in laid.rows]
    pairs = [
        (_NOTHING, _NOTHING) if use is None else cost.demands(use, rank, prices) for use in uses
    ]
    return RowDemands(
        compute=[
            look.task_list >= 0
            and laid.program.lists[look.task_list].tasks[inner].kind is TaskKind.COMPUTE
            for look, inner in laid.rows
        ],
        moves=[moves for moves, _ in pairs],
        waits=[waits for _, waits in pairs],
    )


def _use(laid: LaidOut, look: Look, inner: int) -> Use | None:
    """The communication that a row is, None for other work."""
    program = laid.program
    if look.task_list < 0:
        sends = look.kind is SegmentKind.SEND
        return Use(program.message, program.stage, look.peer_stage, sends)
    comm = program.lists[look.task_list].tasks[inner].comm
    return Use(comm, program.stage) if comm >= 0 else None


class _Work(Struct, kw_only=True):
    """Compute under way: `remaining_ps` of time alone were left at `since_ps`."""

    actor: int
    remaining_ps: float
    since_ps: int
    speed: float


class Paces(Struct, kw_only=True):
    """The compute under way of every actor, named by numbers, and what slows it."""

    rows: list[RowDemands]
    gpu: GpuLimits
    _taken: list[list[int]] = field(default_factory=list)
    _work: dict[int, _Work] = field(default_factory=dict)
    _of_actor: list[set[int]] = field(default_factory=list)
    _touched: set[int] = field(default_factory=set)
    _speeds: dict[tuple[int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._taken = [[0, 0] for _ in self.rows]
        self._of_actor = [set() for _ in self.rows]

    def enter(self, number: int, actor: int, alone_ps: int, now_ps: int) -> int:
        """Begin compute that takes `alone_ps` alone; when it ends if nothing changes, in ps."""
        speed = self._speed(actor)
        self._work[number] = _Work(
            actor=actor, remaining_ps=float(alone_ps), since_ps=now_ps, speed=speed
        )
        self._of_actor[actor].add(number)
        return now_ps + time_left_ps(alone_ps, speed)

    def leave(self, number: int) -> None:
        """End compute."""
        work = self._work.pop(number)
        self._of_actor[work.actor].discard(number)

    def change(self, actor: int, demand: CommDemand, sign: int) -> bool:
        """Begin (1) or end (-1) a demand on an actor; whether compute under way may be slowed."""
        taken = self._taken[actor]
        taken[0] += sign * demand.sms
        taken[1] += sign * round(demand.bytes_per_s)
        if self._of_actor[actor]:
            self._touched.add(actor)
            return True
        return False

    def settle(self, now_ps: int) -> Iterator[tuple[int, int]]:
        """(number, end in ps) of all compute whose speed the last changes have changed."""
        actors, self._touched = sorted(self._touched), set()
        for actor in actors:
            speed = self._speed(actor)
            for number in sorted(self._of_actor[actor]):
                work = self._work[number]
                if speed != work.speed:
                    work.remaining_ps -= (now_ps - work.since_ps) * work.speed
                    work.since_ps, work.speed = now_ps, speed
                    yield number, now_ps + time_left_ps(work.remaining_ps, speed)

    def _speed(self, actor: int) -> float:
        """Share of its speed alone at which an actor's compute goes now."""
        sms, bytes_per_s = self._taken[actor]
        if (sms, bytes_per_s) not in self._speeds:
            demand = CommDemand(sms=sms, bytes_per_s=float(bytes_per_s))
            self._speeds[sms, bytes_per_s] = 1.0 / slowdown(KernelDemand(), [demand], self.gpu)
        return self._speeds[sms, bytes_per_s]


def make_paces(
    programs: Sequence[LaidOut], actors: Actors, prices: Prices, cost: OverlapCost
) -> Paces:
    """What communications take from the compute of every actor, before anything runs."""
    return Paces(rows=row_demands(programs, actors, prices, cost), gpu=cost.gpu)
