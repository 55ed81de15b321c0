"""The Python interface: the words of the command line, as functions."""

from stepsim.face.results import (
    AgainstResult,
    Comparison,
    NoiseDistribution,
    Result,
    SensitivityResult,
)
from stepsim.face.steps import (
    collective_time,
    compare,
    load_topology,
    load_workload,
    noise,
    sensitivity,
    simulate,
)

__all__ = [
    "AgainstResult",
    "Comparison",
    "NoiseDistribution",
    "Result",
    "SensitivityResult",
    "collective_time",
    "compare",
    "load_topology",
    "load_workload",
    "noise",
    "sensitivity",
    "simulate",
]
