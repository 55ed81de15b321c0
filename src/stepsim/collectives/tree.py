"""Binomial tree: in step k every rank that has the data sends it 2**k places on."""

import numpy as np

from stepsim.collectives.flows import FlowStep


def binomial_broadcast(ranks: int) -> list[FlowStep]:
    """Broadcast from the first member in ceil(log2 n) steps of the whole size."""
    steps = []
    informed = 1
    while informed < ranks:
        senders = np.arange(min(informed, ranks - informed), dtype=np.int64)
        steps.append(FlowStep(sources=senders, destinations=senders + informed, fraction=1.0))
        informed += len(senders)
    return steps
