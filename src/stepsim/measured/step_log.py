"""Steps as a training framework printed them: how long each took, or how many tokens a second."""

from statistics import median

from msgspec import Struct

from stepsim.base.errors import TraceError
from stepsim.base.units import MAX_INT64, PS_PER_S


class StepLog(Struct, frozen=True, kw_only=True):
    """The step lines of a log, in its order.

    `numbers` are those of the steps. Frameworks print `seconds` of a step, or `tokens_per_s` of an
    NPU; the other is empty. `timers` are seconds of the slowest rank by name, where they are
    printed.
    """

    source: str
    form: str
    numbers: tuple[int, ...]
    seconds: tuple[float, ...] = ()
    tokens_per_s: tuple[float, ...] = ()
    timers: dict[str, tuple[float, ...]]

    def __post_init__(self) -> None:
        told = self.seconds or self.tokens_per_s
        if not told or len(told) != len(self.numbers):
            raise TraceError(f"{self.source}: no step in it: expected one line per step")

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


def typical(values: tuple[float, ...]) -> float:
    """The median of all but the first, which warms up: compilation, allocation, connections."""
    return median(values[1:] or values)
