"""Megatron-LM's `forward_backward_pipelining_with_interleaving`, with and without overlap.

Every forward is posted together with one receive: on ranks after the first that of the rank's next
forward; on rank 0, where the pipeline re-enters from the last rank, what the last rank's forward
P-1 earlier produced. Backwards are the mirror image.
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from stepsim.base.arrays import Bools, Ints
from stepsim.base.structs import Noun
from stepsim.parallel.p2p import P2POptions, P2PProgram, StepKind
from stepsim.parallel.p2p.plain import MessageEnds, Steps, exchanges, program_of
from stepsim.parallel.schedules import ActionKind, Schedule

# Steps of a turn at most: keys of one turn lie below those of the next.
_STEPS = 16


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
    late = 2 if lead == total else 0
    sent = (
        (-_STEPS, forward.inputs[:1]),
        (turn, forward.outputs),
        (turn, forward.fed),
        ((lead - 1) * _STEPS + late, backward.inputs[:1]),
        (turn + lead * _STEPS, backward.outputs),
        (turn + lead * _STEPS, backward.fed),
    )
    return program_of(
        [
            Steps(StepKind.COMPUTE, turn, forward.places),
            Steps(StepKind.COMPUTE, turn + lead * _STEPS + 1, backward.places),
            *chain.from_iterable(_batch(key + 2, ends) for key, ends in sent),
        ]
    )


def interleaved_overlap(schedule: Schedule, rank: int, options: P2POptions) -> P2PProgram:
    """With `overlap_p2p_comm`: in the steady state messages are posted and not waited for.

    Warm-up and drain stay blocking unless `options.warmup_flush`.
    """
    forward, backward = _halves(schedule, rank)
    total, lead = len(forward.places), schedule.warm_up[rank]
    flush, turn = options.warmup_flush, np.arange(total)
    steps = _batch(-_STEPS, forward.inputs[:1])
    steps += _batch((2 * lead - 1) * _STEPS, backward.inputs[:1])[: 2 if lead == total else 1]
    steps += _turns(
        forward,
        2 * _STEPS * turn,
        ahead=(turn < lead) & flush & (rank > 0),
        blocked=(turn < lead) & (not flush),
        dealloc=options.deallocate_outputs,
    )
    drains = turn + lead >= total
    steps += _turns(
        backward,
        2 * _STEPS * (turn + lead) + _STEPS,
        ahead=drains & flush & (rank < schedule.placement.ranks - 1),
        blocked=drains & (not flush),
        dealloc=False,
    )
    return program_of(steps)


def _batch(key: Ints | int, ends: Ints) -> list[Steps]:
    """Post and wait; an empty batch is free."""
    return [Steps(StepKind.POST, key, ends), Steps(StepKind.WAIT, key + 1, ends, alone=True)]


def _turns(
    half: _Half, key: Ints, *, ahead: Bools, blocked: Bools, dealloc: bool
) -> Iterator[Steps]:
    """Every entry: wait for its input if need be, compute, post, and wait for what is due.

    Where it is `blocked` that is the whole exchange, else the send before, with `dealloc` also its
    own. Where it is `ahead` the next receive is posted before computing.
    """
    early, late = np.where(ahead, half.fed, -1), np.where(ahead, -1, half.fed)
    previous = np.concatenate(([-1], half.outputs[:-1]))
    yield Steps(StepKind.WAIT, key, half.inputs)
    yield Steps(StepKind.POST, key + 1, early)
    yield Steps(StepKind.COMPUTE, key + 2, half.places)
    yield Steps(StepKind.POST, key + 3, half.outputs)
    yield Steps(StepKind.POST, key + 3, late)
    yield Steps(StepKind.WAIT, key + 4, np.where(blocked, half.outputs, -1), alone=True)
    yield Steps(StepKind.WAIT, key + 4, np.where(blocked, late, -1), alone=True)
    yield Steps(StepKind.WAIT, key + 5, np.where(blocked, -1, previous))
    if dealloc:
        yield Steps(StepKind.WAIT, key + 6, np.where(blocked, -1, half.outputs))


def _halves(schedule: Schedule, rank: int) -> Iterator[_Half]:
    """Forwards, which enter again at rank 0, and backwards, which do at the last rank."""
    last = schedule.placement.ranks - 1
    ends = exchanges(schedule, rank)
    for kind, first in ((ActionKind.FORWARD, 0), (ActionKind.BACKWARD, last)):
        places, (inputs, outputs) = _moved(schedule, rank, kind, ends)
        fed = np.full(len(places), -1)
        if rank == first:
            far = last - first
            _, (_, leaving) = _moved(schedule, far, kind, exchanges(schedule, far))
            leaving = leaving[: len(fed) - 1 - last]
            fed[last:-1] = np.where(leaving < 0, -1, leaving + 1)
        else:
            fed[:-1] = inputs[1:]
        yield _Half(places=places, inputs=inputs, outputs=outputs, fed=fed)


def _moved(
    schedule: Schedule, rank: int, kind: ActionKind, ends: MessageEnds
) -> tuple[Ints, Iterator[Ints]]:
    """Places of a rank's forwards, or backwards; of all its ends those they need, and send."""
    places = np.flatnonzero(schedule.columns[rank].runs(kind)[:, 0])
    return places, (each[places, 0] for each in ends)
