"""Megatron-LM's `forward_backward_pipelining_with_interleaving`, with and without overlap.

Every forward is posted together with one receive: on ranks after the first that of the rank's next
forward; on rank 0, where the pipeline re-enters from the last rank, what the last rank's forward
P-1 earlier produced. Backwards are the mirror image.
"""

import numpy as np

from stepsim.base.arrays import Bools, Ints
from stepsim.base.structs import Noun
from stepsim.parallel.p2p import P2POptions, P2PProgram, StepKind
from stepsim.parallel.p2p.plain import StepWriter, exchanges
from stepsim.parallel.schedules import ActionKind, Schedule

_STEPS = 16
"""Steps of a turn at most: keys of one turn lie below those of the next."""


class _Half(Noun):
    """The forwards, or the backwards, of a rank.

    Entry k stands at `places[k]` of the order, needs the end `inputs[k]`, sends `outputs[k]`, and
    is posted with the receive `fed[k]`; -1 is none.
    """

    places: Ints
    inputs: Ints
    outputs: Ints
    fed: Ints


def interleaved_blocking(schedule: Schedule, rank: int) -> P2PProgram:
    """Without overlap: every batch is waited for.

    Ranks after the first begin with [recv F]. Warm-up (F, [send, recv]), the last one with the
    receive of the first backward; steady F, B, [send F, send B, recv F, recv B]; then (B, [send,
    recv]).
    """
    forward, backward = _halves(schedule, rank)
    total, lead = len(forward.places), schedule.warm_up[rank]
    turn = np.arange(total) * _STEPS
    first = backward.inputs[:1]
    writer = StepWriter()
    writer.put(StepKind.COMPUTE, turn, forward.places)
    writer.put(StepKind.COMPUTE, turn + lead * _STEPS + 1, backward.places)
    for kind, key in ((StepKind.POST, 2), (StepKind.WAIT, 3)):
        alone = kind is StepKind.WAIT
        writer.put(kind, key - _STEPS, forward.inputs[:1], alone=alone)
        writer.put(kind, turn + key, forward.outputs, alone=alone)
        writer.put(kind, turn + key, forward.fed, alone=alone)
        late = 2 if lead == total else 0
        writer.put(kind, (lead - 1) * _STEPS + key + late, first, alone=alone)
        writer.put(kind, turn + lead * _STEPS + key, backward.outputs, alone=alone)
        writer.put(kind, turn + lead * _STEPS + key, backward.fed, alone=alone)
    return writer.program()


def interleaved_overlap(schedule: Schedule, rank: int, options: P2POptions) -> P2PProgram:
    """With `overlap_p2p_comm`: in the steady state messages are posted and not waited for.

    Warm-up and drain stay blocking unless `options.warmup_flush`.
    """
    forward, backward = _halves(schedule, rank)
    total, lead = len(forward.places), schedule.warm_up[rank]
    flush, turn = options.warmup_flush, np.arange(total)
    writer = StepWriter()
    _batch(writer, -_STEPS, forward.inputs[:1])
    before = (2 * lead - 1) * _STEPS
    if lead == total:
        _batch(writer, before, backward.inputs[:1])
    else:
        writer.put(StepKind.POST, before, backward.inputs[:1])
    _turns(
        writer,
        forward,
        2 * _STEPS * turn,
        ahead=(turn < lead) & flush & (rank > 0),
        blocked=(turn < lead) & (not flush),
        dealloc=options.deallocate_outputs,
    )
    drains = turn + lead >= total
    _turns(
        writer,
        backward,
        2 * _STEPS * (turn + lead) + _STEPS,
        ahead=drains & flush & (rank < schedule.placement.ranks - 1),
        blocked=drains & (not flush),
        dealloc=False,
    )
    return writer.program()


def _batch(writer: StepWriter, key: int, ends: Ints) -> None:
    """Post and wait; an empty batch is free."""
    writer.put(StepKind.POST, key, ends)
    writer.put(StepKind.WAIT, key + 1, ends, alone=True)


def _turns(
    writer: StepWriter, half: _Half, key: Ints, *, ahead: Bools, blocked: Bools, dealloc: bool
) -> None:
    """Every entry: wait for its input if need be, compute, post, and wait for what is due.

    Where it is `blocked` that is the whole exchange, else the send before, with `dealloc` also its
    own. Where it is `ahead` the next receive is posted before computing.
    """
    early, late = np.where(ahead, half.fed, -1), np.where(ahead, -1, half.fed)
    previous = np.concatenate(([-1], half.outputs[:-1]))
    writer.put(StepKind.WAIT, key, half.inputs)
    writer.put(StepKind.POST, key + 1, early)
    writer.put(StepKind.COMPUTE, key + 2, half.places)
    writer.put(StepKind.POST, key + 3, half.outputs)
    writer.put(StepKind.POST, key + 3, late)
    writer.put(StepKind.WAIT, key + 4, np.where(blocked, half.outputs, -1), alone=True)
    writer.put(StepKind.WAIT, key + 4, np.where(blocked, late, -1), alone=True)
    writer.put(StepKind.WAIT, key + 5, np.where(blocked, -1, previous))
    if dealloc:
        writer.put(StepKind.WAIT, key + 6, np.where(blocked, -1, half.outputs))


def _halves(schedule: Schedule, rank: int) -> tuple[_Half, _Half]:
    """Forwards, which enter again at rank 0, and backwards, which enter again at the last rank."""
    last = schedule.placement.ranks - 1
    return (
        _half(schedule, rank, ActionKind.FORWARD, last if rank == 0 else None),
        _half(schedule, rank, ActionKind.BACKWARD, 0 if rank == last else None),
    )


def _half(schedule: Schedule, rank: int, kind: ActionKind, feeding_rank: int | None) -> _Half:
    """One half; `feeding_rank` is the far end of the pipeline where it enters again here."""
    places, inputs, outputs = _moved(schedule, rank, kind)
    fed = np.full(len(places), -1)
    if feeding_rank is None:
        fed[:-1] = inputs[1:]
    else:
        delay = schedule.placement.ranks - 1
        leaving = _moved(schedule, feeding_rank, kind)[2][: len(fed) - 1 - delay]
        fed[delay:-1] = np.where(leaving < 0, -1, leaving + 1)
    return _Half(places=places, inputs=inputs, outputs=outputs, fed=fed)


def _moved(schedule: Schedule, rank: int, kind: ActionKind) -> tuple[Ints, Ints, Ints]:
    """Places of a rank's forwards, or backwards, the ends they need and those they send."""
    places = np.flatnonzero(schedule.columns[rank].runs(kind)[:, 0])
    received, sent = (ends[places, 0] for ends in exchanges(schedule, rank))
    return places, received, sent
