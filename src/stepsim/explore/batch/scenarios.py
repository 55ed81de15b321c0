"""Scenarios: what may differ between runs of one task graph, as columns."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepsim.base.arrays import Floats, Ints, distinct, row_numbers, slices
from stepsim.base.axes import ParallelAxis, Phase
from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun, replace
from stepsim.base.units import MOST_EXACT
from stepsim.core.actions import NO_HOST, HostPart, HostTimes
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import LAUNCH_LATENCY, LINK_FIELDS, split_link
from stepsim.network.topology.nested import followed, is_fixed
from stepsim.workload.scaling import ComputeScale

PHASES = tuple(Phase)
AXES = tuple(ParallelAxis)
HOST = tuple(part.option for part in HostPart)
"""Options of host times, in the order of `HostPart`."""
_ALONE = np.array([None])
# Scenarios per distinct one from which on it is worth the gathering.
_WORTH = 2


class Scenarios(Noun):
    """Values of `count` scenarios; a column that is the same for all may have one row.

    The numbers of link classes (see `LINK_FIELDS`; bytes/s, ps) have shape (rows, classes).
    `launch_ps` has shape (rows,), `size` are factors on bytes by `AXES`, `compute` factors on
    compute time by `PHASES`, `host_ps` the times of `HOST`. `shared` are the links of each that
    transfers share in time, of shape (rows,), None where they share none.
    """

    count: int
    bandwidth: Floats
    efficiency: Floats
    latency_ps: Floats
    endpoint_latency_ps: Floats
    launch_ps: Ints
    size: Floats
    compute: Floats
    host_ps: Ints
    shared: NDArray[Any] = _ALONE

    def __post_init__(self) -> None:
        _check("bandwidth", self.bandwidth, self.bandwidth > 0, "above 0")
        good = (self.efficiency > 0) & (self.efficiency <= 1)
        _check("efficiency", self.efficiency, good, "above 0, at most 1")
        for name in ("latency_ps", "endpoint_latency_ps", "launch_ps", "host_ps"):
            column = getattr(self, name)
            _check(name, column, (column >= 0) & (column < MOST_EXACT), "0 ps to 2**53 ps")
        _check("size", self.size, (self.size >= 0) & (self.size <= 1e6), "0 to 1e6")
        good = (self.compute > 0) & (self.compute <= 1e6)
        _check("compute scale", self.compute, good, "above 0, at most 1e6")

    def __len__(self) -> int:
        return self.count

    @property
    def links(self) -> tuple[Floats, Floats, Floats]:
        """Capacity (payload bytes/s), latency and endpoint latency (ps), as `step_times_ps` has."""
        return self.bandwidth * self.efficiency, self.latency_ps, self.endpoint_latency_ps

    def chunks(self, size: int) -> Iterator[tuple[slice, "Scenarios"]]:
        """The scenarios in order, at most `size` at a time, and where each part lies."""
        for part in slices(self.count, size):
            yield part, self.some(part, part.stop - part.start)

    def distinct(self, classes: Ints, axis: int) -> "tuple[Scenarios, Ints] | None":
        """Scenarios of which no two agree on these classes, this axis of `AXES` and the launch.

        With them comes which of them each scenario agrees with. None where there are too many.
        """
        tables = self.bandwidth, self.efficiency, self.latency_ps, self.endpoint_latency_ps
        read: list[Floats | Ints] = [self.launch_ps, self.size[:, axis]]
        read += [table[:, each] for table in tables for each in classes]
        most, places = self.count // _WORTH, list[Ints]()
        for column in (each for each in read if len(each) > 1):
            values = distinct(column)
            if len(values) > most:
                return None
            places.append(np.searchsorted(values, column))
        together = np.zeros(self.count, np.int64)
        first, number = row_numbers(np.stack(places or [together], axis=1))
        return (self.some(first, len(first)), number) if len(first) <= most else None

    def some(self, which: slice | Ints, count: int) -> "Scenarios":
        """So many of the scenarios."""
        columns = {name: getattr(self, name) for name in self.__struct_fields__[1:]}
        some = {name: each if len(each) == 1 else each[which] for name, each in columns.items()}
        return replace(self, count=count, **some)


def _check(name: str, column: Floats | Ints, good: ArrayLike, expected: str) -> None:
    if not np.all(good):
        value = column[~np.asarray(good)].flat[0]
        raise PlanError(f"{name} is {value} in a scenario: expected {expected}")


class BatchBase(Noun, dict=True):
    """The values of a job that scenarios start from."""

    topology: Topology
    scale: ComputeScale = ComputeScale()
    host: HostTimes = NO_HOST

    @cached_property
    def names(self) -> list[str]:
        """Names that a column may have: those of a sweep's axes, and some more."""
        numbers = (n for n in self.base() if not is_fixed(self.topology, split_link(n)[0]))
        return [*numbers, "compute_scale"]

    def base(self) -> dict[str, float]:
        """Value of every name that is one number: bytes/s, ps, or a factor."""
        found: dict[str, float] = {}
        led = followed(self.topology)
        for link in (each for each in self.topology.link_classes if each.name in led):
            for field in LINK_FIELDS:
                found[f"{link.name}.{field.name}"] = getattr(link, field.field)
        found[LAUNCH_LATENCY.name] = self.topology.launch_latency_ps
        found |= {f"compute_scale.{phase}": getattr(self.scale, phase) for phase in PHASES}
        found |= {f"size.{axis}": 1.0 for axis in AXES}
        return found | dict(zip(HOST, self.host, strict=True))

    def scenarios(self, columns: Mapping[str, ArrayLike]) -> Scenarios:
        """Scenarios that differ from the job in these columns; without any, the job itself.

        `CLASS.bandwidth` is in bytes/s, `CLASS.latency` and other times in ps, `compute_scale`,
        `compute_scale.PHASE` and `size.AXIS` are factors. Raises PlanError for unknown names,
        columns of different lengths, and values that cannot be.
        """
        given = {name: np.atleast_1d(np.asarray(column)) for name, column in columns.items()}
        for name in given:
            if name not in self.names:
                raise PlanError(f"unknown column {name!r}: expected {', '.join(self.names)}")
        lengths = {len(column) for column in given.values()}
        if len(lengths - {1}) > 1 or 0 in lengths:
            raise PlanError(f"columns have {sorted(lengths)} values: expected equally many")
        for phase in PHASES if "compute_scale" in given else ():
            given.setdefault(f"compute_scale.{phase}", given["compute_scale"])
        values = {name: np.array([value]) for name, value in self.base().items()} | given

        def table(names: Sequence[str], kind: type) -> NDArray[Any]:
            several = np.broadcast_arrays(*(values[name] for name in names))
            return np.stack(several).T.astype(kind) if several else np.zeros((1, 0), kind)

        return Scenarios(
            count=max(lengths, default=1),
            launch_ps=table([LAUNCH_LATENCY.name], np.int64)[:, 0],
            size=table([f"size.{axis}" for axis in AXES], np.float64),
            compute=table([f"compute_scale.{phase}" for phase in PHASES], np.float64),
            host_ps=table(HOST, np.int64),
            **self._links(given, table),
        )

    def _links(
        self, given: Container[str], table: Callable[[Sequence[str], type], NDArray[Any]]
    ) -> dict[str, Floats]:
        """Columns of the link classes; those that follow another and are not given have its."""
        found: dict[str, Floats] = {}
        for field in LINK_FIELDS:
            classes = zip(self.topology.link_classes, followed(self.topology, field), strict=True)
            names = [
                f"{link.name if f'{link.name}.{field.name}' in given else leader}.{field.name}"
                for link, leader in classes
            ]
            found[field.field] = table(names, np.float64)
        return found
