"""Programs of one-chunk runtimes, the lower bound of every schedule, and how programs are written.

Steps are columns: what entries exchange, and how steps are ordered. What an action needs and gives
is that of Qi et al., arXiv:2401.10241: input gradients travel, weight gradients stay.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Ints
from stepsim.parallel.p2p import P2PProgram, StepKind
from stepsim.parallel.schedules import ActionKind, Schedule


class MessageEnds(NamedTuple):
    """Ends of the messages that entries need and send, -1 for none: of shape (entries, parts)."""

    received: Ints
    sent: Ints


def exchanges(schedule: Schedule, rank: int) -> MessageEnds:
    """What each entry of a rank's order exchanges with other ranks."""
    order, placement = schedule.columns[rank], schedule.placement
    forward = order.runs(ActionKind.FORWARD).astype(np.int64)
    talks = (order.kind >= 0) & ~order.runs(ActionKind.WEIGHT_GRAD)
    stage, microbatch = order.stage.astype(np.int64), order.microbatch.astype(np.int64)
    ahead = 2 * forward - 1
    found = []
    for other, source in ((stage - ahead, stage - ahead), (stage + ahead, stage)):
        inside = (other >= 0) & (other < placement.stages)
        leaves = talks & inside & (placement.rank(other, microbatch) != rank)
        number = (source + (1 - forward) * placement.stages) * schedule.microbatches + microbatch
        found.append(np.where(leaves, 2 * number, -1))
    received, sent = found
    return MessageEnds(received=np.where(received < 0, -1, received + 1), sent=sent)


def far_ranks(schedule: Schedule, ends: NDArray[np.integer]) -> Ints:
    """Ranks at the other side of ends of messages."""
    # quotients, and what they leave: np.divmod takes five times as long
    message, stages = ends >> 1, schedule.placement.stages
    rest = message // schedule.microbatches
    microbatch = message - rest * schedule.microbatches
    backward = rest // stages
    source = rest - backward * stages
    onwards = (1 - 2 * backward) * (1 - (ends & 1))
    return schedule.placement.rank(source + onwards, microbatch)


class Steps(NamedTuple):
    """Steps of a kind with the keys that order them, or one for all; ends of -1 are none."""

    kind: StepKind
    key: Ints | int
    what: Ints
    alone: bool = False


def program_of(steps: Iterable[Steps]) -> P2PProgram:
    """The steps in the order of their keys; of equal ones in that in which they are given."""
    found = [(each, np.flatnonzero(each.what >= 0)) for each in steps]
    keys = [np.broadcast_to(each.key, each.what.shape).take(there) for each, there in found]
    order = np.argsort(np.concatenate(keys), kind="stable")
    column = np.repeat(np.arange(len(keys), dtype=np.int8), [*map(len, keys)]).take(order)
    what = np.concatenate([each.what.take(there) for each, there in found], dtype=np.int32)
    return P2PProgram(
        kind=np.array([each.kind for each, _ in found], np.int8).take(column),
        what=what.take(order),
        alone=np.array([each.alone for each, _ in found], bool).take(column),
    )


def eager(schedule: Schedule, rank: int) -> P2PProgram:
    """Every message is posted when it can be and waited for when it is needed."""
    received, sent = exchanges(schedule, rank)
    place = np.arange(len(received))
    return program_of(
        [
            *(Steps(StepKind.POST, 4 * place, ends) for ends in received.T),
            *(Steps(StepKind.WAIT, 4 * place + 1, ends) for ends in received.T),
            Steps(StepKind.COMPUTE, 4 * place + 2, place),
            *(Steps(StepKind.POST, 4 * place + 3, ends) for ends in sent.T),
        ]
    )


def blocking(schedule: Schedule, rank: int) -> P2PProgram:
    """Megatron-LM's `forward_backward_pipelining_without_interleaving`, every call waits.

    Warm-up forwards, each ([recv F], F, [send F]); then [recv F] and pairs
    (F, [send F, recv B], B, [send B, recv F]); then the rest, each ([recv B], B, [send B]). GPipe
    is the case in which all forwards are warm-up.
    """
    received, sent = (ends[:, 0] for ends in exchanges(schedule, rank))
    lead, place = schedule.warm_up[rank], np.arange(len(received))
    steady = (place >= lead) & (place < 2 * schedule.microbatches - lead)
    with_last = np.append(False, steady[:-1] & steady[1:])
    first, later = np.where(with_last, -1, received), np.where(with_last, received, -1)
    key = 5 * place
    return program_of(
        [
            Steps(StepKind.POST, key, first),
            Steps(StepKind.WAIT, key + 1, first, alone=True),
            Steps(StepKind.COMPUTE, key + 2, place),
            Steps(StepKind.POST, key + 3, sent),
            Steps(StepKind.POST, key - 2, later),
            Steps(StepKind.WAIT, key + 4, sent, alone=True),
            Steps(StepKind.WAIT, key - 1, later, alone=True),
        ]
    )
