"""The scenarios of a sweep: every combination of its axes, numbered, never listed.

A scenario's number is a mixed-radix number whose digits are positions on the axes. Axes that change
the task graph come first, so the scenarios of one task graph (a group) have consecutive numbers.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import SweepError
from stepsim.base.structs import Noun
from stepsim.base.units import Value
from stepsim.explore.sweep.axes import Axis

_MAX_SCENARIOS = 100_000_000
_MAX_AXES = 32
AxisColumn = Ints | Floats


class ScenarioSpan(NamedTuple):
    """Scenarios from `start` up to `stop`, which is not one of them."""

    start: int
    stop: int


class Grid(Noun, dict=True):
    """All combinations of `axes`, which have the order in which the user named them."""

    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        if not self.axes:
            raise SweepError("a sweep needs at least one axis, e.g. --set microbatches=8,16,32")
        if len(self.axes) > _MAX_AXES:
            raise SweepError(f"a sweep has at most {_MAX_AXES} axes: these are {len(self.axes)}")
        names = [axis.name for axis in self.axes]
        for name in names:
            if names.count(name) > 1:
                raise SweepError(f"axis {name} is given twice")
        if self.size > _MAX_SCENARIOS:
            sizes = " x ".join(str(len(axis)) for axis in self.axes)
            raise SweepError(
                f"the axes give {sizes} = {self.size} scenarios: expected at most {_MAX_SCENARIOS}"
            )

    @cached_property
    def size(self) -> int:
        """Number of scenarios."""
        return prod(len(axis) for axis in self.axes)

    @cached_property
    def slowest_first(self) -> tuple[Axis, ...]:
        """Axes in the order of the digits of a scenario's number, most significant first."""
        return tuple(sorted(self.axes, key=lambda axis: axis.kind.durations_only))

    @cached_property
    def strides(self) -> dict[str, int]:
        """How far apart the numbers of neighbours along each axis are."""
        strides, stride = {}, 1
        for axis in reversed(self.slowest_first):
            strides[axis.name] = stride
            stride *= len(axis)
        return strides

    @cached_property
    def group_size(self) -> int:
        """Scenarios that share a task graph."""
        return prod(len(axis) for axis in self.axes if axis.kind.durations_only)

    def position(self, axis: Axis, scenario: int) -> int:
        """Position of a scenario on an axis."""
        return scenario // self.strides[axis.name] % len(axis)

    def values(self, scenario: int) -> dict[str, str]:
        """Texts of a scenario's values by the names of the axes."""
        return {axis.name: axis.texts[self.position(axis, scenario)] for axis in self.axes}

    def parsed(self, scenario: int) -> dict[str, Value]:
        """A scenario's values by the names of the axes."""
        return {axis.name: axis.values[self.position(axis, scenario)] for axis in self.axes}

    def settings(self, group: int) -> dict[str, Value]:
        """Values that the scenarios of a group share, by the names of the axes."""
        first = self.parsed(group * self.group_size)
        return {a.name: first[a.name] for a in self.axes if not a.kind.durations_only}

    def columns(self, span: ScenarioSpan) -> dict[str, AxisColumn]:
        """Values of the other axes for the scenarios of a span, in bytes/s, ps or plain."""
        numbers = np.arange(span.start, span.stop, dtype=np.int64)
        return {
            axis.name: np.array(axis.values)[numbers // self.strides[axis.name] % len(axis)]
            for axis in self.axes
            if axis.kind.durations_only
        }

    def cut(
        self, spans: Iterable[ScenarioSpan], most: Callable[[int], int]
    ) -> Iterator[ScenarioSpan]:
        """The spans cut where groups meet, and into pieces of at most `most(group)` scenarios."""
        for start, stop in spans:
            here = start
            while here < stop:
                group = here // self.group_size
                end = min(stop, (group + 1) * self.group_size, here + most(group))
                yield ScenarioSpan(here, end)
                here = end
