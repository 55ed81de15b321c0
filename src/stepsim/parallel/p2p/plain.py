"""Programs of one-chunk runtimes, the lower bound of every schedule, and how programs are written.

Steps are columns: what entries exchange, and how steps are ordered. What an action needs and gives
is that of Qi et al., arXiv:2401.10241: input gradients travel, weight gradients stay.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Bools, Ints, divided
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
    backward = (1 - forward) * placement.stages

    def number(source: Ints) -> Ints:
        found: Ints = (source + backward) * schedule.microbatches + microbatch
        return found

    def leaves(other: Ints) -> Bools:
        inside = (other >= 0) & (other < placement.stages)
        far: Ints = placement.rank(other, microbatch)
        found: Bools = talks & inside & (far != rank)
        return found

    return MessageEnds(
        received=np.where(leaves(stage - ahead), 2 * number(stage - ahead) + 1, -1),
        sent=np.where(leaves(stage + ahead), 2 * number(stage), -1),
    )


def far_ranks(schedule: Schedule, ends: NDArray[np.integer]) -> Ints:
    """Ranks at the other side of ends of messages."""
    rest, microbatch = divided(ends >> 1, schedule.microbatches)
    backward, source = divided(rest, schedule.placement.stages)
    onwards = (1 - 2 * backward) * (1 - (ends & 1))
    return schedule.placement.rank(source + onwards, microbatch)


class StepWriter:
    """Collects steps with the keys that order them; ends of -1 are none."""

    def __init__(self) -> None:
        self._columns: list[tuple[Ints, Ints, int, bool]] = []

    def put(self, kind: StepKind, key: Ints | int, what: Ints, *, alone: bool = False) -> None:
        """Add steps of a kind with their keys, or one for all."""
        there = np.flatnonzero(what >= 0)
        keys = np.full(len(there), key) if isinstance(key, int) else key.take(there)
        self._columns.append((keys, what.take(there), int(kind), alone))

    def program(self) -> P2PProgram:
        """The steps in the order of their keys; of equal ones in that in which they were put."""
        keys, what, kind, alone = zip(*self._columns, strict=True)
        order = np.argsort(np.concatenate(keys), kind="stable")
        column = np.repeat(np.arange(len(keys), dtype=np.int8), [*map(len, keys)]).take(order)
        return P2PProgram(
            kind=np.array(kind, np.int8).take(column),
            what=np.concatenate(what, dtype=np.int32).take(order),
            alone=np.array(alone, bool).take(column),
        )


def eager(schedule: Schedule, rank: int) -> P2PProgram:
    """Every message is posted when it can be and waited for when it is needed."""
    received, sent = exchanges(schedule, rank)
    writer, place = StepWriter(), np.arange(len(received))
    for ends in received.T:
        writer.put(StepKind.POST, 4 * place, ends)
    for ends in received.T:
        writer.put(StepKind.WAIT, 4 * place + 1, ends)
    writer.put(StepKind.COMPUTE, 4 * place + 2, place)
    for ends in sent.T:
        writer.put(StepKind.POST, 4 * place + 3, ends)
    return writer.program()


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
    writer = StepWriter()
    first, later = np.where(with_last, -1, received), np.where(with_last, received, -1)
    writer.put(StepKind.POST, 5 * place, first)
    writer.put(StepKind.WAIT, 5 * place + 1, first, alone=True)
    writer.put(StepKind.COMPUTE, 5 * place + 2, place)
    for kind, key in ((StepKind.POST, 5 * place + 3), (StepKind.WAIT, 5 * place + 4)):
        writer.put(kind, key, sent, alone=kind is StepKind.WAIT)
        writer.put(kind, key - 5, later, alone=kind is StepKind.WAIT)
    return writer.program()
