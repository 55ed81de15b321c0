"""Direct all-to-all: every rank sends its n-1 blocks at once, one to each other rank."""

import numpy as np

from stepsim.collectives.flows import FlowStep


def direct_all_to_all(ranks: int) -> list[FlowStep]:
    """One step of n(n-1) flows of S/n, S being what each rank sends, its own share included."""
    sources, destinations = np.nonzero(~np.eye(ranks, dtype=bool))
    return [FlowStep(sources=sources, destinations=destinations, fraction=1 / ranks)]
