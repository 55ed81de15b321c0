"""Automatic zero bubble: an order of forwards, input and weight gradients found by search.

Qi et al., "Zero Bubble (Almost) Pipeline Parallelism", arXiv:2401.10241, section 3.1: a family of
heuristics fills the pipeline round by round under a limit on live activations; the best is kept.
Two things are added: plain 1F1B, and a self-timed family for limits below what 1F1B needs, where
rounds are slow.

While an order grows, all that has to be known is when inputs arrive. Which order is best is for
whoever runs it to say: a step is handed in as `took_ps`. Alone, the best order has the smallest
span, the paper's cost of an iteration: the longest time from the start of a rank's first action to
the end of its last, ranks taken one by one. That is the time between iterations when no rank waits
for the others before its optimizer step (section 4 of the paper); the optimizer step itself is no
part of it. Equal spans are told apart by makespan.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

from stepsim.base.errors import ScheduleError, within
from stepsim.base.structs import Noun, Numbers
from stepsim.parallel.schedules.base import Placement, Schedule, chunks_on_ranks, of_slots

_NAME = "auto-zb"

_SLOTS = ("F0", "I0", "W0")
_F, _I, _W = range(len(_SLOTS))
_PRIORITIES = ((_I, _F, _W), (_I, _W, _F), (_F, _I, _W))
# Arrival of an input whose producer is not in the order yet.
_UNKNOWN = 1 << 80
# What rounding may add to a sum of activations.
_SLACK = 1e-9

# Orders of least makespan of which a step is asked what it takes.
_JUDGED = 3

# Picoseconds of one action: the same on every rank, or one value per rank.
_Times = int | Sequence[int]


def auto_zb(
    *,
    ranks: int,
    microbatches: int,
    forward_ps: _Times,
    input_grad_ps: _Times,
    weight_grad_ps: _Times,
    hop_ps: int = 0,
    memory_limit: float = 2.0,
    weight_grad_share: float = 0.5,
    took_ps: Callable[[Schedule], int] | None = None,
) -> Schedule:
    """The best order found for these times, one chunk per rank.

    No rank ever holds more than `memory_limit * ranks` activations: 1.0 is the paper's ZB-1p
    (what rank 0 of 1F1B holds), 2.0 its ZB-2p. As in the paper, a forward adds one activation,
    its input gradient frees all but `weight_grad_share` of it, its weight gradient the rest:
    32 h of the 34 h + 5 a s bytes per token that the forward leaves behind (h hidden size, a
    heads, s sequence length). The paper's models have 0.37 to 0.44; with flash attention a is 0,
    which gives 32 / 34; 1.0 frees nothing before W.
    `took_ps` says what a step takes with an order: of those of least makespan the best takes
    least. Without it the longest time from a rank's first to its last action counts.
    Raises ScheduleError when the limit is below one activation or a time is negative.
    """
    chunks_on_ranks(_NAME, ranks, microbatches)
    job = _Job(
        ranks=ranks,
        microbatches=microbatches,
        durations=tuple(
            zip(
                _per_rank("forward_ps", forward_ps, ranks),
                _per_rank("input_grad_ps", input_grad_ps, ranks),
                _per_rank("weight_grad_ps", weight_grad_ps, ranks),
                strict=True,
            )
        ),
        hop=_per_rank("hop_ps", hop_ps, 1)[0],
        capacity=memory_limit * ranks + _SLACK,
        share=weight_grad_share,
    )
    _check_memory(job, memory_limit)
    drafts = {str(draft.orders): draft for draft in (make(job) for make in _candidates())}
    if took_ps is None:
        return _schedule(job, min(drafts.values(), key=lambda draft: draft.cost))
    quickest = sorted(drafts.values(), key=lambda draft: draft.cost[::-1])[:_JUDGED]
    return min((_schedule(job, draft) for draft in quickest), key=took_ps)


def _per_rank(field: str, value: _Times, ranks: int) -> Numbers:
    values = (value,) * ranks if isinstance(value, int) else tuple(value)
    if len(values) != ranks:
        raise ScheduleError(f"schedule {_NAME}: {field} has {len(values)} values: expected {ranks}")
    for one in values:
        within(f"schedule {_NAME}: {field}", one, 0, error=ScheduleError)
    return values


def _check_memory(job: "_Job", memory_limit: float) -> None:
    if not job.capacity >= 1:
        raise ScheduleError(
            f"schedule {_NAME}: memory_limit is {memory_limit:g}: {job.ranks} ranks need "
            f"at least {1 / job.ranks:.4g}, one activation"
        )
    within(f"schedule {_NAME}: weight_grad_share", job.share, 0, 1, ScheduleError)


def _schedule(job: "_Job", draft: "_Draft") -> Schedule:
    """The schedule of a draft."""
    slots = ([_SLOTS[kind] for kind in kinds] for kinds in draft.orders)
    return of_slots(_NAME, Placement(ranks=job.ranks), job.microbatches, slots)


class _Job(Noun):
    """What is to be ordered; `durations[rank][kind]` and `hop` in ps, memory in activations."""

    ranks: int
    microbatches: int
    durations: tuple[tuple[int, int, int], ...]
    hop: int
    capacity: float
    share: float


class _Draft:
    """A growing order: actions are only ever appended, each starts as soon as it can.

    Per rank: `done[rank][kind]` counts, `clock` is the end of its last action, `first` the start
    of its first, `idle` what it waited in between. `worst_idle` is the largest idle so far.
    """

    def __init__(self, job: _Job) -> None:
        self.job = job
        self.orders: list[list[int]] = [[] for _ in range(job.ranks)]
        self.done = [[0, 0, 0] for _ in range(job.ranks)]
        self.clock = [0] * job.ranks
        self.first = [0] * job.ranks
        self.idle = [0] * job.ranks
        self.worst_idle = 0
        self._ends: list[list[list[int]]] = [[[], [], []] for _ in range(job.ranks)]

    @property
    def cost(self) -> tuple[int, int]:
        """Span and makespan of the whole order, in ps."""
        spans = (end - start for start, end in zip(self.first, self.clock, strict=True))
        return max(spans), max(self.clock)

    def arrival(self, rank: int, kind: int) -> int:
        """When the rank has the input of its next action of that kind, sent from elsewhere."""
        microbatch = self.done[rank][kind]
        last = self.job.ranks - 1
        if kind == _F:
            if rank == 0:
                return 0 if microbatch < self.job.microbatches else _UNKNOWN
            ends, hop = self._ends[rank - 1][_F], self.job.hop
        elif kind == _I and rank < last:
            ends, hop = self._ends[rank + 1][_I], self.job.hop
        else:
            ends, hop = self._ends[rank][kind - 1], 0
        return ends[microbatch] + hop if microbatch < len(ends) else _UNKNOWN

    def run(self, rank: int, kind: int, count: int = 1) -> None:
        """Append the rank's next actions of that kind."""
        for _ in range(count):
            self.append(rank, kind, 0 if kind == _W else self.arrival(rank, kind))

    def append(self, rank: int, kind: int, arrival: int) -> None:
        """As `run`, where the input is known to arrive then; that of W is there after I."""
        start = clock = self.clock[rank]
        order = self.orders[rank]
        if not order:
            self.first[rank] = start = max(clock, arrival)
        elif arrival > clock:
            start = arrival
            self.idle[rank] += start - clock
            self.worst_idle = max(self.worst_idle, self.idle[rank])
        end = self.clock[rank] = start + self.job.durations[rank][kind]
        self._ends[rank][kind].append(end)
        self.done[rank][kind] += 1
        order.append(kind)

    def pending(self, rank: int) -> int:
        """Weight gradients the rank could run now."""
        return self.done[rank][_I] - self.done[rank][_W]

    def full(self, rank: int, freed: int = 0) -> bool:
        """Whether another forward exceeds the memory limit, even after `freed` weight gradients."""
        forwards, input_grads, _ = self.done[rank]
        held = self.job.share * (self.pending(rank) - freed)
        return forwards - input_grads + held + 1 > self.job.capacity

    def missing_room(self, rank: int) -> int:
        """Weight gradients the rank must run before it can hold another forward."""
        if not self.full(rank):
            return 0
        pending = self.pending(rank)
        return next((n for n in range(pending) if not self.full(rank, n)), pending)


class _Rules(Noun, kw_only=False):
    """The three choices the paper leaves open and tries both ways."""

    delay_first_grad: bool
    """Warm up with one forward more than fits before the first gradient arrives."""
    hold_forwards: bool
    """Let a rank two forwards ahead of the next one sit out a round if that is free."""
    fill_small_gaps: bool
    """Run W in a gap shorter than W even on a rank that can afford to idle."""


def _candidates() -> Iterator[Callable[[_Job], _Draft]]:
    """Ways to order a job; the first of equally good ones wins."""
    for choices in product((True, False), repeat=3):
        yield partial(_by_rounds, rules=_Rules(*choices))
    for priority, patient in product(_PRIORITIES, (True, False)):
        yield partial(_self_timed, priority=priority, patient=patient)
    yield _one_f_one_b


def _by_rounds(job: _Job, rules: _Rules) -> _Draft:
    """The paper's heuristic: warm-up, then in each round a forward and an input gradient per rank.

    Weight gradients go where a rank would wait, or where memory must be freed.
    """
    draft = _first_forwards(job)
    for rank, lead in enumerate(_leads(job, rules)):
        draft.run(rank, _F, lead)
    for rank in reversed(range(job.ranks)):
        draft.run(rank, _I)
    for _ in range(1, job.microbatches):
        for rank in _advancing(draft, rules):
            draft.run(rank, _W, draft.missing_room(rank))
            draft.append(rank, _F, _fill_gap(draft, rank, _F, rules))
        for rank in reversed(range(job.ranks)):
            arrival = _fill_gap(draft, rank, _I, rules)
            if rank == 0 and draft.done[0][_F] == job.microbatches:
                draft.run(0, _W, draft.pending(0))  # nobody waits for rank 0's gradients
            draft.append(rank, _I, arrival)
    for rank in range(job.ranks):
        draft.run(rank, _W, draft.pending(rank))
    return draft


def _first_forwards(job: _Job) -> _Draft:
    """The first microbatch's forward on all ranks."""
    draft = _Draft(job)
    for rank in range(job.ranks):
        draft.run(rank, _F)
    return draft


def _leads(job: _Job, rules: _Rules) -> list[int]:
    """Forwards between a rank's first forward and its first input gradient.

    As many as memory allows and as start (`delay_first_grad`) or end before the gradient comes;
    fewer than on the rank before, so that each rank stays ahead of the next. They are counted as if
    their inputs were there.
    """
    draft = _first_forwards(job)
    most = int(min(job.capacity, job.microbatches)) - 1
    leads = [0] * job.ranks
    for rank in reversed(range(job.ranks)):
        forward, gradient = job.durations[rank][_F], draft.arrival(rank, _I)
        rounding = forward - 1 if rules.delay_first_grad and forward else 0
        leads[rank] = min(most, (gradient - draft.clock[rank] + rounding) // max(1, forward))
        for _ in range(leads[rank]):
            draft.append(rank, _F, 0)
        draft.append(rank, _I, gradient)
    for rank in range(1, job.ranks):
        before = leads[rank - 1]
        ran_all = before == job.microbatches - 1
        leads[rank] = min(leads[rank], before if ran_all else max(0, before - 1))
    return leads


def _advancing(draft: _Draft, rules: _Rules) -> list[int]:
    """Ranks that run a forward in this round: where one holds back, so do all before it."""
    advancing: list[int] = []
    for rank in reversed(range(draft.job.ranks)):
        if draft.done[rank][_F] < draft.job.microbatches:
            if rules.hold_forwards and _can_hold(draft, rank):
                break
            advancing.append(rank)
    return advancing[::-1]


def _can_hold(draft: _Draft, rank: int) -> bool:
    """Whether the rank may leave out a forward: it is ahead and waiting costs no new worst idle."""
    job, after = draft.job, rank + 1
    if after == job.ranks or draft.done[rank][_F] < draft.done[after][_F] + 2:
        return False
    forward, input_grad, _ = job.durations[after]
    gradient = draft.clock[after] + forward + input_grad + job.hop
    wait = gradient - draft.clock[rank]
    if wait <= 0:
        return True
    busy = job.durations[rank][_F] + draft.missing_room(rank) * job.durations[rank][_W]
    return busy > wait and wait <= draft.worst_idle - draft.idle[rank]


def _fill_gap(draft: _Draft, rank: int, kind: int, rules: _Rules) -> int:
    """Run weight gradients while the rank waits for the input of its next action; when it arrives.

    A last one that outlasts the wait runs only where waiting would make a new worst idle, or by
    rule.
    """
    weight_grad = draft.job.durations[rank][_W]
    arrival = draft.arrival(rank, kind)
    while draft.pending(rank) and draft.clock[rank] + weight_grad <= arrival:
        draft.run(rank, _W)
    wait = arrival - draft.clock[rank]
    free = draft.idle[rank] + wait <= draft.worst_idle
    if wait > 0 and draft.pending(rank) and (rules.fill_small_gaps or not free):
        draft.run(rank, _W)
    return arrival


def _self_timed(job: _Job, priority: Sequence[int], patient: bool) -> _Draft:
    """Each rank, whenever free, runs the first kind of `priority` that is ready and fits.

    `patient` ranks leave W out when the input of something better arrives before it would end.
    """
    draft = _Draft(job)
    everywhere = {*range(job.ranks)}
    turns = [_turn(draft, rank, priority, patient) for rank in everywhere]
    while (turn := min(turns))[0] < _UNKNOWN:
        _, rank, kind = turn
        draft.run(rank, kind)
        for near in {rank, rank + (1, -1, 0)[kind]} & everywhere:
            turns[near] = _turn(draft, near, priority, patient)
    return draft


def _turn(draft: _Draft, rank: int, priority: Sequence[int], patient: bool) -> tuple[int, int, int]:
    """When the rank runs its next action as far as inputs are known, the rank, and the kind."""
    full, clock = draft.full(rank), draft.clock[rank]
    arrivals = [draft.arrival(rank, kind) for kind in (_F, _I, _W)]
    for now in sorted({max(clock, arrival) for arrival in arrivals}):
        for kind in priority:
            if arrivals[kind] > now or (kind == _F and full):
                continue
            if kind == _W and patient and not full:
                end = now + draft.job.durations[rank][_W]
                if any(now < arrivals[other] < end for other in (_F, _I)):
                    continue
            return now, rank, kind
    return _UNKNOWN, rank, _W


def _one_f_one_b(job: _Job) -> _Draft:
    """1F1B with W right after I, its warm-up cut to the memory limit."""
    draft = _Draft(job)
    most = int(min(job.capacity - 1, job.microbatches))
    for rank in range(job.ranks):
        draft.run(rank, _F, min(job.ranks - 1 - rank, most))
    for _ in range(job.microbatches):
        for rank in range(job.ranks):
            if draft.done[rank][_F] < job.microbatches:
                draft.run(rank, _F)
        for rank in reversed(range(job.ranks)):
            draft.run(rank, _I)
            draft.run(rank, _W)
    return draft
