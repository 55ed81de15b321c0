"""The part of a step that a trace shows."""

from typing import Any

import numpy as np

from stepsim.base.errors import PlanError, UnitError
from stepsim.base.structs import Noun
from stepsim.base.units import MAX_INT64, format_time_ps, parse_time_ps
from stepsim.documents.trace import Curves

_EXPECTED = "expected two times, the earlier first, e.g. 2s..3s"


class Window(Noun):
    """Times in ps from the begin of the step, `end_ps` left out; by default the whole step."""

    start_ps: int = 0
    end_ps: int = MAX_INT64

    def __post_init__(self) -> None:
        if not 0 <= self.start_ps < self.end_ps:
            raise PlanError(f"window is {self}: {_EXPECTED}")

    def __str__(self) -> str:
        return f"{format_time_ps(self.start_ps)}..{format_time_ps(self.end_ps)}"

    def holds(self, start_ps: Any, end_ps: Any) -> Any:
        """Whether a part of what runs from start to end is in it; of columns, row by row."""
        ends = (end_ps > self.start_ps) | (start_ps >= self.start_ps)
        return ends & (start_ps < self.end_ps)

    def check(self, what: str, length_ps: int) -> None:
        """Raise PlanError where it begins behind the end of what takes so long."""
        if self.start_ps > length_ps:
            raise PlanError(f"window is {self}: {what} takes {format_time_ps(length_ps)}")

    def of_curves(self, curves: Curves) -> Curves:
        """Curves from the window's begin, where they may be 0, up to its end."""
        times = np.concatenate(([-1], curves.time_ps))
        values = np.concatenate((np.zeros((1, len(curves.names))), curves.values))
        first = int(np.searchsorted(times, self.start_ps, side="right")) - 1
        told = slice(first, int(np.searchsorted(times, self.end_ps)))
        times = np.maximum(times[told], self.start_ps)
        return Curves(names=curves.names, time_ps=times, values=values[told])


WHOLE = Window()


def parse_window(text: str) -> Window:
    """A window written as `2s..3s`; raises PlanError."""
    start, dots, end = text.partition("..")
    try:
        if not dots:
            raise UnitError("it has no ..")
        return Window(start_ps=parse_time_ps(start), end_ps=parse_time_ps(end))
    except UnitError as error:
        raise PlanError(f"window is {text!r}: {_EXPECTED} ({error})") from None
