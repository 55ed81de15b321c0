"""Megatron-LM's `forward_backward_pipelining_with_interleaving`, with and without overlap.

Every forward is posted together with one receive: on ranks after the first that of the rank's next
forward; on rank 0, where the pipeline re-enters from the last rank, what the last rank's forward
P-1 earlier produced. Backwards are the mirror image.
"""

from collections.abc import Iterator

from stepsim.base.records import dataclass
from stepsim.parallel.p2p.plain import batch
from stepsim.parallel.p2p.steps import (
    Compute,
    Direction,
    End,
    Exchange,
    P2POptions,
    Post,
    Step,
    Wait,
    exchanges,
)
from stepsim.parallel.schedules import ActionKind, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half:
    """The forwards, or the backwards, of a rank.

    `entries[k]` stands at `places[k]` of its order, needs `inputs[k]`, sends `outputs[k]`, and is
    posted with the receives `fed[k]`.
    """

    places: tuple[int, ...]
    inputs: tuple[tuple[End, ...], ...]
    outputs: tuple[tuple[End, ...], ...]
    fed: tuple[tuple[End, ...], ...]


def interleaved_blocking(schedule: Schedule, rank: int) -> Iterator[Step]:
    """Without overlap: every batch is waited for.

    Ranks after the first begin with [recv F]. Warm-up (F, [send, recv]), the last one with the
    receive of the first backward; steady F, B, [send F, send B, recv F, recv B]; then (B, [send,
    recv]).
    """
    forward, backward = _halves(schedule, rank)
    total, lead = len(forward.places), schedule.warm_up[rank]
    yield from batch(forward.inputs[0])
    for k in range(lead):
        yield Compute(place=forward.places[k])
        first = backward.inputs[0] if k == lead - 1 < total - 1 else ()
        yield from batch((*forward.outputs[k], *forward.fed[k], *first))
    if lead == total:
        yield from batch(backward.inputs[0])
    for j in range(total):
        k = lead + j
        ends = (*backward.outputs[j], *backward.fed[j])
        if k < total:
            yield Compute(place=forward.places[k])
            ends = (*forward.outputs[k], *forward.fed[k], *ends)
        yield Compute(place=backward.places[j])
        yield from batch(ends)


def interleaved_overlap(schedule: Schedule, rank: int, options: P2POptions) -> Iterator[Step]:
    """With `overlap_p2p_comm`: in the steady state messages are posted and not waited for.

    Warm-up and drain stay blocking unless `options.warmup_flush`.
    """
    forward, backward = _halves(schedule, rank)
    total, lead = len(forward.places), schedule.warm_up[rank]
    dealloc = options.deallocate_outputs
    ahead = rank > 0, rank < schedule.placement.ranks - 1
    yield from batch(forward.inputs[0])
    for k in range(lead):
        if options.warmup_flush:
            yield from _overlapped(forward, k, ahead=ahead[0], dealloc=dealloc)
        else:
            yield from _blocked(forward, k)
    if lead == total:
        yield from batch(backward.inputs[0])
    elif backward.inputs[0]:
        yield Post(ends=backward.inputs[0])
    for j in range(total):
        if lead + j < total:
            yield from _overlapped(forward, lead + j, ahead=False, dealloc=dealloc)
            yield from _overlapped(backward, j, ahead=False, dealloc=False)
        elif options.warmup_flush:
            yield from _overlapped(backward, j, ahead=ahead[1], dealloc=False)
        else:
            yield from _blocked(backward, j)


def _blocked(half: _Half, k: int) -> Iterator[Step]:
    """Wait for the input if need be, compute, exchange and wait."""
    if half.inputs[k]:
        yield Wait(half.inputs[k])
    yield Compute(half.places[k])
    yield from batch((*half.outputs[k], *half.fed[k]))


def _overlapped(half: _Half, k: int, *, ahead: bool, dealloc: bool) -> Iterator[Step]:
    """Wait for the input, compute, post, wait for the send before.

    With `ahead` the next receive is posted before computing; with `dealloc` this send is waited
    for at once.
    """
    if half.inputs[k]:
        yield Wait(half.inputs[k])
    if ahead and half.fed[k]:
        yield Post(half.fed[k])
    yield Compute(half.places[k])
    ends = half.outputs[k] if ahead else half.outputs[k] + half.fed[k]
    if ends:
        yield Post(ends)
    if k > 0 and half.outputs[k - 1]:
        yield Wait(half.outputs[k - 1])
    if dealloc and half.outputs[k]:
        yield Wait(half.outputs[k])


def _halves(schedule: Schedule, rank: int) -> tuple[_Half, _Half]:
    """Forwards, which enter again at rank 0, and backwards, which enter again at the last rank."""
    last = schedule.placement.ranks - 1
    mine = _by_kind(schedule, rank)
    return (
        _half(schedule, mine, ActionKind.FORWARD, last if rank == 0 else None),
        _half(schedule, mine, ActionKind.BACKWARD, 0 if rank == last else None),
    )


_Numbered = list[tuple[int, Exchange]]
"""Places in a rank's order and what is exchanged there."""


def _half(
    schedule: Schedule,
    mine: dict[ActionKind, _Numbered],
    kind: ActionKind,
    feeding_rank: int | None,
) -> _Half:
    """One half; `feeding_rank` is the far end of the pipeline where it enters again here."""
    inputs = tuple(moved.received for _, moved in mine[kind])
    count = len(inputs)
    if feeding_rank is None:
        fed = [inputs[k + 1] if k < count - 1 else () for k in range(count)]
    else:
        delay = schedule.placement.ranks - 1
        leaving = [moved.sent for _, moved in _by_kind(schedule, feeding_rank)[kind]]
        fed = [
            tuple((Direction.RECV, message) for _, message in leaving[k - delay])
            if delay <= k < count - 1
            else ()
            for k in range(count)
        ]
    return _Half(
        places=tuple(place for place, _ in mine[kind]),
        inputs=inputs,
        outputs=tuple(moved.sent for _, moved in mine[kind]),
        fed=tuple(fed),
    )


def _by_kind(schedule: Schedule, rank: int) -> dict[ActionKind, _Numbered]:
    """A rank's forwards and backwards."""
    found: dict[ActionKind, _Numbered] = {ActionKind.FORWARD: [], ActionKind.BACKWARD: []}
    columns = zip(schedule.orders[rank], exchanges(schedule, rank), strict=True)
    for place, (entry, moved) in enumerate(columns):
        found[entry.parts()[0].kind].append((place, moved))
    return found
