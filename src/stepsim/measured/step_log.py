"""Steps as a training framework printed them: how long each took, or how many tokens a second.

What a job takes once it runs steadily is told by one rule. The first line warms up: compilation,
allocation, connections. Another line is out of line where its value is further from the median of
the lines after the first than `_SPREADS` times their usual distance from it (1.4826 times the
median distance, which is the standard deviation of a normal law), and further than `_LEAST` of the
median. Lines out of line that follow the first warm up too; others are steps with a checkpoint, an
evaluation or a slow rank. The median of the rest is the step.
"""

from statistics import median

from msgspec import Struct

from stepsim.base.errors import TraceError
from stepsim.base.units import MAX_INT64, PS_PER_S

_SPREADS = 4.0
_NORMAL = 1.4826
_LEAST = 0.02


class SteadySteps(Struct, frozen=True, kw_only=True):
    """Places of the lines of a log: those that count, that warm up, and that are out of line."""

    kept: tuple[int, ...]
    warm_up: tuple[int, ...]
    out_of_line: tuple[int, ...]


class StepLog(Struct, frozen=True, kw_only=True):
    """The step lines of a log, in its order.

    `numbers` are those of the steps. Frameworks print `seconds` of a step, or `tokens_per_s` of an
    NPU; the other is empty. `tflops` are those of an NPU and second, empty where they are not
    printed. `timers` are seconds of the slowest rank by name, where they are printed.
    """

    source: str
    form: str
    numbers: tuple[int, ...]
    seconds: tuple[float, ...] = ()
    tokens_per_s: tuple[float, ...] = ()
    tflops: tuple[float, ...] = ()
    timers: dict[str, tuple[float, ...]]

    def __post_init__(self) -> None:
        if not self.values or len(self.values) != len(self.numbers):
            raise TraceError(f"{self.source}: no step in it: expected one line per step")

    @property
    def values(self) -> tuple[float, ...]:
        """What the framework prints of every step: seconds, else tokens a second."""
        return self.seconds or self.tokens_per_s

    @property
    def steady(self) -> SteadySteps:
        """Which lines tell what a step takes once the job runs steadily."""
        return steady_places(self.values)

    @property
    def steady_tflops(self) -> float | None:
        """The median TFLOP/s of an NPU over the steady lines; None where they are not printed."""
        if len(self.tflops) != len(self.numbers):
            return None
        return median(self.tflops[place] for place in self.steady.kept)

    def step_ps(self, tokens: int | None = None) -> int:
        """The median step; `tokens` are those of a step and NPU, for logs that print their rate.

        Raises TraceError where they are needed and not given, or the step is too long.
        """
        if self.seconds:
            return self._ps(typical(self.seconds))
        if tokens is None:
            raise TraceError(
                f"{self.source}: {self.form} prints tokens per second: expected the npus, "
                "global_batch and sequence of a step beside it"
            )
        return self._ps(tokens / typical(self.tokens_per_s))

    def _ps(self, seconds: float) -> int:
        if not seconds * PS_PER_S < MAX_INT64:
            raise TraceError(f"{self.source}: a step of {seconds:.3g} s: expected at most 106 days")
        return round(seconds * PS_PER_S)


def steady_places(values: tuple[float, ...]) -> SteadySteps:
    """Places of the values that count; one alone counts."""
    if len(values) == 1:
        return SteadySteps(kept=(0,), warm_up=(), out_of_line=())
    rest = values[1:]
    middle = median(rest)
    usual = _NORMAL * median(abs(value - middle) for value in rest)
    most = max(_SPREADS * usual, _LEAST * middle)
    away = [True, *(abs(value - middle) > most for value in rest)]
    first = away.index(False)
    later = range(first, len(values))
    return SteadySteps(
        kept=tuple(place for place in later if not away[place]),
        warm_up=tuple(range(first)),
        out_of_line=tuple(place for place in later if away[place]),
    )


def typical(values: tuple[float, ...]) -> float:
    """The median of the values that count."""
    return median(values[place] for place in steady_places(values).kept)
