"""The results of a sweep as a table in the order of its scenarios, read piece by piece."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np

from stepsim.base.arrays import Floats, Ints, ints
from stepsim.base.errors import SweepError
from stepsim.base.structs import Names, Noun
from stepsim.base.units import Quantity
from stepsim.explore.store import Store
from stepsim.explore.sweep.axes import Axis
from stepsim.explore.sweep.store import PART_COLUMNS, STEP_COLUMNS, SweepProgress, progress_of

_PIECE = 65_536
_NUMBERS = (
    "step_time_ps",
    "pipeline_time_ps",
    "bubble_fraction",
    "total_bandwidth_bytes_per_s",
    "tokens_per_s",
    "mfu",
    "memory_bytes",
    "fits",
)
_LACKS = "fits IS 0"
"""Whether a scenario is known not to fit; in an order such ones follow all others."""


class Extreme(NamedTuple):
    """A scenario, its step time in ps, and whether it fits: None where that is not known."""

    scenario: int
    step_time_ps: int
    fits: int | None = None


class _ValueTotals(NamedTuple):
    """Scenarios with one value of an axis: least and mean step time in ps, None if all failed.

    The least is that of those that fit, None where none does.
    """

    position: int
    least_ps: int | None
    mean_ps: float | None
    scenarios: int
    failed: int


class SweepTable(Noun, dict=True):
    """What a database says of its sweep; every property and iterator reads from the file."""

    store: Store

    @cached_property
    def source(self) -> tuple[str, str]:
        """Names of the workload and the topology."""
        workload, topology = (self.identity[n].rpartition(" ")[0] for n in ("workload", "topology"))
        return workload, topology

    @cached_property
    def identity(self) -> dict[str, str]:
        """What all scenarios have in common, as `stepsim.explore.sweep.study.identity` says it."""
        return dict(self._all("SELECT name, value FROM identity"))

    @cached_property
    def progress(self) -> SweepProgress:
        """Scenarios: all, done, failed."""
        return progress_of(self.store)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Axes in the order in which the user named them."""
        rows = self._all("SELECT * FROM axis ORDER BY axis")
        return tuple(self._axis(*row) for row in rows)

    def axis(self, name: str) -> Axis:
        """The axis of a name; raises SweepError naming those there are."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        expected = ", ".join(axis.name for axis in self.axes)
        raise SweepError(f"{name!r} is no axis of this sweep: expected {expected}")

    def _axis(self, number: int, name: str, quantity: str, stride: int, length: int) -> Axis:
        query = "SELECT text, value FROM axis_value WHERE axis = ? ORDER BY position"
        values = self._all(query, number)
        if len(values) != length:
            raise self.store.damaged(f"{len(values)} values of {name}")
        texts, parsed = zip(*values, strict=True)
        return Axis(
            name=name, quantity=Quantity(quantity), texts=texts, values=parsed, stride=stride
        )

    @cached_property
    def part_columns(self) -> Names:
        """Parts of the step time, empty where the sweep kept none."""
        return PART_COLUMNS if self.identity.get("breakdown") == "on" else ()

    @property
    def header(self) -> Names:
        """Columns of `pieces`: axes, numbers, parts, the reason of a failure."""
        axes = (axis.column for axis in self.axes)
        return (*axes, *_NUMBERS, *self.part_columns, "error")

    def pieces(self, *, texts: bool = False) -> Iterator[list[list[object]]]:
        """Columns of up to 65,536 scenarios at a time, ascending.

        Numbers of axes are in their unit, with `texts` as the user wrote them.
        """
        columns = ", ".join((*STEP_COLUMNS, *self.part_columns, "error"))
        for scenarios, *found in self._read(f"id, {columns}"):
            ids = ints(scenarios)
            yield [self._shown(axis, ids, texts=texts) for axis in self.axes] + found

    def _read(self, columns: str) -> Iterator[list[list[Any]]]:
        """Columns of the results, the first of which is `id`, so many scenarios at a time."""
        query = f"SELECT {columns} FROM result WHERE id >= ? ORDER BY id LIMIT {_PIECE}"
        start = 0
        while rows := self._all(query, start):
            yield list(map(list, zip(*rows, strict=True)))
            start = rows[-1][0] + 1

    def _shown(self, axis: Axis, scenarios: Ints, *, texts: bool) -> list[object]:
        """Numbers where the axis has them and they are asked for, else texts."""
        values = axis.values if axis.quantity.numeric and not texts else axis.texts
        return [values[i] for i in axis.positions(scenarios).tolist()]

    def extremes(self, count: int, *, slowest: bool = False) -> list[Extreme]:
        """The fastest or slowest scenarios, the first first; ties in the order of scenarios.

        Those that do not fit their devices follow all others.
        """
        order = "DESC" if slowest else "ASC"
        query = (
            "SELECT id, step_time_ps, fits FROM result WHERE error IS NULL "
            f"ORDER BY {_LACKS}, step_time_ps {order}, id LIMIT ?"
        )
        return [Extreme(*row) for row in self._all(query, count)]

    def first_error(self) -> tuple[int, str] | None:
        """The first failed scenario and its reason."""
        if not self.progress.failed:
            return None
        found = self._all(
            "SELECT id, error FROM result WHERE error IS NOT NULL ORDER BY id LIMIT 1"
        )
        return found[0] if found else None

    def refuse_if_all_failed(self) -> None:
        """Raise SweepError with the first reason when no scenario could run."""
        progress, failure = self.progress, self.first_error()
        if failure and progress.failed == progress.done:
            raise SweepError(f"none of {progress.done} scenarios can run; the first: {failure[1]}")

    def by_value(self, axis: Axis) -> list[_ValueTotals]:
        """Summary of the scenarios of each value of an axis, in the order of the values."""
        query = (
            f"SELECT id / {axis.stride} % {len(axis)} AS value, "
            f"min(CASE WHEN {_LACKS} THEN NULL ELSE step_time_ps END), avg(step_time_ps), "
            "count(*), count(error) FROM result GROUP BY value ORDER BY value"
        )
        return [_ValueTotals(*row) for row in self._all(query)]

    def fastest(self, axes: Sequence[Axis], columns: Sequence[str]) -> Floats:
        """Numbers of the fastest scenario for every combination of these axes over all others.

        An array whose first dimension is that of the columns, the others those of the axes; NaN
        where no scenario has a result. Of equally fast scenarios the first counts, and one that
        does not fit only where none does.
        """
        shape = tuple(len(axis) for axis in axes)
        keys = [f"id / {axis.stride} % {len(axis)} AS key{i}" for i, axis in enumerate(axes)]
        source = f"SELECT *, {', '.join(keys)} FROM result WHERE error IS NULL"
        names = ", ".join(f"key{i}" for i in range(len(axes)))
        if prod(shape) < prod(len(axis) for axis in self.axes):
            order = f"{_LACKS}, step_time_ps, id"
            place = f"row_number() OVER (PARTITION BY {names} ORDER BY {order})"
            source = f"SELECT * FROM (SELECT *, {place} AS place FROM ({source})) WHERE place = 1"
        found = np.full((len(columns), *shape), np.nan)
        for row in self.store.each(f"SELECT {names}, {', '.join(columns)} FROM ({source})"):
            found[:, *row[: len(axes)]] = row[len(axes) :]
        return found

    def settings(self, scenario: int) -> dict[str, str]:
        """Texts of a scenario's values by the names of the axes."""
        return {axis.name: axis.text(scenario) for axis in self.axes}

    def _all(self, query: str, *arguments: object) -> list[Any]:
        return list(self.store.each(query, *arguments))
