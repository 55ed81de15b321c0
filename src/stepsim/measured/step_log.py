"""Steps as a training framework printed them: how long each took, or how many tokens a second.

What a job takes once it runs steadily is told by one rule. The first line warms up: compilation,
allocation, connections. Another line is out of line where its value is further from the median of
the lines after the first than `_SPREADS` times their usual distance from it (1.4826 times the
median distance, which is the standard deviation of a normal law), and further than `_LEAST` of the
median. Lines out of line that follow the first warm up too; others are steps with a checkpoint, an
evaluation or a slow rank. The median of the rest is the step.
"""

import hashlib
import re
from enum import StrEnum
from itertools import pairwise
from statistics import correlation, linear_regression, median
from typing import ClassVar

from msgspec import field

from stepsim.base.errors import TraceError
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Count, Entry, Names, Noun, Numbers, Share, Timed
from stepsim.base.units import MAX_INT64, PS_PER_S
from stepsim.workload.plan import Plan

_SPREADS = 4.0
_NORMAL = 1.4826
_LEAST = 0.02
_LEAST_TREND = 0.02
_FEWEST_SLOW = 3
# Steps, and how straight their line is (the correlation with their number), that make a trend.
_FEWEST, _STRAIGHT = 6, 0.9


class StepUnit(StrEnum):
    """What a framework prints of a step: its seconds, or tokens of an NPU or samples a second."""

    SECONDS = "seconds"
    TOKENS = "tokens_per_s"
    SAMPLES = "samples_per_s"


class LogPeriod(Entry):
    """Slow steps that come back: one of `every` steps is `longer` by so many medians of a step.

    `share` is what that takes of the run.
    """

    every: Count
    longer: float
    share: Share


class StepLog(Noun):
    """The step lines of a log, in its order.

    `numbers` are those of the steps, `values` what the framework prints of each in its `unit`.
    `tflops` are those of an NPU and second, empty where they are not printed. `timers` are seconds
    of the slowest rank by name, `quickest` those of the quickest, `memory` the most bytes that a
    rank held, where they are printed.
    """

    source: str
    form: str
    numbers: Numbers
    unit: StepUnit = StepUnit.SECONDS
    values: tuple[float, ...]
    tflops: tuple[float, ...] = ()
    timers: dict[str, tuple[float, ...]] = {}
    quickest: dict[str, tuple[float, ...]] = {}
    memory: int | None = None

    @property
    def lengths(self) -> tuple[float, ...]:
        """How long every step took: in seconds, or over each other where a rate is printed."""
        return (
            self.values
            if self.unit is StepUnit.SECONDS
            else tuple(1 / each for each in self.values)
        )

    @property
    def steady(self) -> Numbers:
        """Places of the lines that tell what a step takes once the job runs steadily."""
        return steady_places(self.values)

    @property
    def warm_up(self) -> Numbers:
        """Numbers of the steps before those lines."""
        return self.numbers[: self.steady[0]]

    @property
    def out_of_line(self) -> Numbers:
        """Numbers of later steps that do not count."""
        counted = {*self.warm_up, *(self.numbers[place] for place in self.steady)}
        return tuple(number for number in self.numbers if number not in counted)

    @property
    def kept(self) -> tuple[float, ...]:
        """The values of the lines that count."""
        return tuple(self.values[place] for place in self.steady)

    @property
    def trend(self) -> tuple[float, float] | None:
        """The first and the last step of a straight line through all after the first, in medians.

        None where steps do not grow or shrink steadily: by less than `_LEAST_TREND` of the median,
        or by no more than chance moves them.
        """
        times = self.lengths[1:]
        if len(times) < _FEWEST:
            return None
        slope, start = linear_regression(range(len(times)), times)
        middle, end = median(times), start + slope * (len(times) - 1)
        drifts = abs(end - start) > _LEAST_TREND * middle
        if not drifts or abs(correlation(range(len(times)), times)) < _STRAIGHT:
            return None
        return start / middle, end / middle

    @property
    def period(self) -> LogPeriod | None:
        """Slow steps that come back.

        None where fewer than `_FEWEST_SLOW` come back, or not after as many steps each time.
        """
        seconds = dict(zip(self.numbers, self.lengths, strict=True))
        middle = median(self.lengths[place] for place in self.steady)
        slow = [number for number in self.out_of_line if seconds[number] > middle]
        gaps = {later - earlier for earlier, later in pairwise(slow)}
        if len(slow) < _FEWEST_SLOW or len(gaps) != 1:
            return None
        every, longer = gaps.pop(), median(seconds[number] for number in slow) / middle - 1
        return LogPeriod(every=every, longer=longer, share=longer / every / (1 + longer / every))

    def timed(self, pattern: str) -> float | None:
        """Seconds of a step under the timers whose names a pattern fits; None without any."""
        found = [typical(each) for name, each in self.timers.items() if re.fullmatch(pattern, name)]
        return sum(found) if found else None

    def uneven(self, pattern: str) -> float | None:
        """The slowest rank over the quickest under timers, the most uneven; None without both."""
        ratios = [
            typical(self.timers[name]) / typical(each)
            for name, each in self.quickest.items()
            if re.fullmatch(pattern, name) and name in self.timers
        ]
        return max(ratios, default=None)

    @property
    def steady_tflops(self) -> float | None:
        """The median TFLOP/s of an NPU over the steady lines; None where they are not printed."""
        if not self.tflops:
            return None
        return median(self.tflops[place] for place in self.steady)

    def median_ps(self, tokens: int | None = None, samples: int | None = None) -> int:
        """The median step; for logs that print a rate `tokens` are a step's of an NPU.

        `samples` are those of all. Raises TraceError where they are needed and not given, or the
        step is too long.
        """
        if self.unit is StepUnit.SECONDS:
            return self._ps(typical(self.values))
        count = tokens if self.unit is StepUnit.TOKENS else samples
        if count is None:
            raise TraceError(
                f"{self.source}: {self.form} prints a rate per second: expected the npus, "
                "global_batch and sequence of a step beside it"
            )
        return self._ps(count / typical(self.values))

    def _ps(self, seconds: float) -> int:
        if not 1e-6 <= seconds < MAX_INT64 / PS_PER_S:
            allowed = "at least 1 us, at most 106 days"
            raise TraceError(f"{self.source}: a step of {seconds:.3g} s: expected {allowed}")
        return round(seconds * PS_PER_S)


# Times are those of a microbatch. `ends_ps` are the embedding and the head, which are leaf modules
# as a whole.
class LeafStage(Timed):
    """A stage of a log: forward sums of its leaf modules."""

    stage: int
    layers: float
    layers_ps: InSeconds = field(name="leaf_modules_of_layers_s")
    ends_ps: InSeconds = field(name="leaf_modules_of_ends_s")
    samples: int


class LeafLog(StepLog):
    """A log that tells of every stage of its plan how long the leaf modules of a forward take.

    Their sums leave out attention, norms, the loss, backward, communication and host time: they say
    how work is shared between stages, not how long a stage takes.
    """

    plan: Plan
    stages: tuple[LeafStage, ...]
    warnings: Names = ()

    @property
    def fingerprint(self) -> str:
        """Tells a log from others, whatever its file is called."""
        told = [self.step_ps, *((stage.layers_ps, stage.ends_ps) for stage in self.stages)]
        return hashlib.blake2b(repr(told).encode(), digest_size=4).hexdigest()

    @property
    def step_ps(self) -> int:
        """The median step."""
        return self.median_ps()

    pipeline_ps = step_ps
    """What follows the pipeline is not told apart from it."""
    run: ClassVar[None] = None
    """No operation is in a log."""

    @property
    def step_spread_ps(self) -> int:
        """The median distance of the steps that count from their median."""
        middle = median(self.kept)
        return round(median(abs(each - middle) for each in self.kept) * PS_PER_S)


def steady_places(values: tuple[float, ...]) -> Numbers:
    """Places of the values that count; one alone counts."""
    if len(values) == 1:
        return (0,)
    rest = values[1:]
    middle = median(rest)
    usual = _NORMAL * median(abs(value - middle) for value in rest)
    most = max(_SPREADS * usual, _LEAST * middle)
    return tuple(place for place, value in enumerate(rest, 1) if abs(value - middle) <= most)


def typical(values: tuple[float, ...]) -> float:
    """The median of the values that count."""
    return median(values[place] for place in steady_places(values))
