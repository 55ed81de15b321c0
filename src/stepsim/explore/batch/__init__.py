"""Thousands of scenarios of one task graph at once, equal to the engine to the picosecond.

Unless links are shared fairly every time of a run is a maximum of sums of durations, so one pass
over the graph with a vector of scenarios in place of each number evaluates all of them.
"""

from stepsim.explore.batch.evaluation import Batch, BatchResult, make_batch
from stepsim.explore.batch.scenarios import Scenarios

__all__ = [
    "Batch",
    "BatchResult",
    "Scenarios",
    "make_batch",
]
