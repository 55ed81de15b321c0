"""Programs of one-chunk runtimes, and the lower bound of every schedule."""

import numpy as np

from stepsim.parallel.p2p import P2PProgram, StepKind
from stepsim.parallel.p2p.columns import StepWriter, exchanges
from stepsim.parallel.schedules import Schedule


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
