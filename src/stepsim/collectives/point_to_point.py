"""Point-to-point: one message from the first member to the second."""

import numpy as np

from stepsim.collectives.flows import FlowStep


def send_recv() -> list[FlowStep]:
    """One flow of the whole message."""
    first = np.zeros(1, dtype=np.int64)
    return [FlowStep(sources=first, destinations=first + 1, fraction=1.0)]
