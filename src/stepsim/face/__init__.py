"""The Python interface: the words of the command line, as functions."""

from stepsim.face.steps import (
    Comparison,
    Result,
    collective_time,
    compare,
    noise,
    sensitivity,
    simulate,
)

__all__ = [
    "Comparison",
    "Result",
    "collective_time",
    "compare",
    "noise",
    "sensitivity",
    "simulate",
]
