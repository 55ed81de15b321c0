"""From the scenarios of a group to their results: in columns, or one step after another."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
from msgspec.structs import astuple

from stepsim.base.arrays import Floats, Ints, ints
from stepsim.base.errors import StepsimError
from stepsim.base.structs import Noun, replace
from stepsim.base.units import PS_PER_S, Value
from stepsim.explain.make_report import StepTotals
from stepsim.explain.throughput import Throughput, throughput
from stepsim.explore.batch import Batch, make_batch
from stepsim.explore.sweep.grid import AxisColumn
from stepsim.explore.sweep.study import Study
from stepsim.network.placement import place
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import LINK_FIELDS
from stepsim.network.topology.nested import followed, with_values
from stepsim.options import StepOptions
from stepsim.step.job import held_degrees, job_of
from stepsim.step.prepared import prepare
from stepsim.workload.axes import Part

_BANDWIDTH = next(field for field in LINK_FIELDS if field.name == "bandwidth")
_CHUNK = 50_000
_PREPARED_S, _PARTS_PER_S, _TOTALS_PER_S = 0.5, 50_000, 500_000
_FEWEST = 4


class LinkKind(NamedTuple):
    """The links of a class: how many, bytes/s of each, and axes that change it, the first first."""

    links: int
    bandwidth: float
    axes: tuple[str, str]


class ScenarioGroup(Noun, dict=True):
    """Scenarios that share a task graph: a study, and the values of the axes that change graphs.

    Several are evaluated together where `may_batch` and their steps add up; `known` are prices of
    those that were simulated one by one.
    """

    study: Study
    settings: Mapping[str, Value]
    may_batch: bool = True
    known: Known = {}

    @cached_property
    def network(self) -> Topology:
        """Its network; scenarios change numbers of its links."""
        return self.study.network(self.settings)

    def options(self, values: Mapping[str, Any] = MappingProxyType({})) -> StepOptions:
        """Those of a scenario that has these values."""
        options = self.study.step_options({**self.settings, **values})
        return replace(options, **self._unsaid)

    @cached_property
    def _unsaid(self) -> dict[str, Any]:
        """What nobody says of a model's plan, on the network as it is; raises PlanError.

        Along an axis of sizes, what the smallest has to recompute all others do, too.
        """
        study, options = self.study, self.study.step_options(self.settings)
        sizes = [axis.values for axis in study.grid.axes if axis.name == "npus"]
        if not sizes or options.recompute is not None:
            return held_degrees(study.workload, self.network, options)[0]
        smallest = replace(options, npus=min(sizes[0]))
        found, _ = held_degrees(study.workload, self.network, smallest)
        held = {name: found[name] for name in ("recompute", "recompute_layers") if name in found}
        return held | held_degrees(study.workload, self.network, replace(options, **held))[0]

    @cached_property
    def links(self) -> tuple[LinkKind, ...]:
        """The links of each class in a job of the group's size; raises PlanError."""
        job = job_of(self.study.workload, self.network, self.options())
        topology = place(self.network, job.plan, job.options.placement)
        columns = topology.link_classes, topology.link_counts(), followed(topology, _BANDWIDTH)
        return tuple(
            LinkKind(count, link.bandwidth, (f"{link.name}.bandwidth", f"{leader}.bandwidth"))
            for link, count, leader in zip(*columns, strict=True)
        )

    @property
    def _together(self) -> bool:
        """Whether one graph serves enough scenarios, whose steps are sums of durations."""
        enough = self.may_batch and self.study.grid.group_size >= _FEWEST
        return enough and self.study.adds_up(self.settings)

    @property
    def chunk(self) -> int:
        """Scenarios of a second of work at most, which are stored at a time: one is simulated."""
        return _CHUNK if self._together else 1

    def seconds(self, scenarios: int) -> float:
        """About how long so many of its scenarios take, as a graph of a thousand nodes does."""
        if not self._together:
            return float(scenarios)
        return _PREPARED_S + scenarios / (_PARTS_PER_S if self.study.breakdown else _TOTALS_PER_S)

    def evaluate(self, columns: Mapping[str, AxisColumn]) -> "Outcomes":
        """Results of scenarios given by columns of equal length, by the names of their axes.

        Bandwidths are float64 bytes/s, times int64 ps, factors float64. Without such axes the
        columns are empty and there is one scenario. One that cannot be batched does not stop the
        others, and one that fails leaves its reason. Raises StepsimError where none can run.
        """
        count = max((len(column) for column in columns.values()), default=1)
        if not self._together or (count > 1 and not self._batch.takes(columns)):
            return self._one_by_one(columns)
        try:
            return self._batched(columns)
        except StepsimError:
            if count == 1:
                return self._one_by_one(columns)
        halves = (slice(0, count // 2), slice(count // 2, count))
        parts = (
            self.evaluate({name: column[half] for name, column in columns.items()})
            for half in halves
        )
        return _joined(*parts)

    @cached_property
    def _batch(self) -> Batch:
        """What its chunks share, as `links`: kept, a million bandwidths take 3.3 s, else 4.7."""
        return make_batch(self.study.workload, self.network, self.options())

    def _batched(self, columns: Mapping[str, AxisColumn]) -> "Outcomes":
        batch = self._batch
        found = batch.evaluate(columns, parts=self.study.breakdown)
        effort, worth = batch.job.workload.effort, None
        if effort and (rates := throughput(effort, batch.job.graph.plan.npus, step_s=1.0)):
            worth = Worth.scaled(rates, found.step_time_ps)
        return Outcomes(
            step_time_ps=found.step_time_ps,
            pipeline_time_ps=found.pipeline_time_ps,
            bubble_fraction=found.bubble_fraction,
            worth=worth,
            parts_ps=found.parts_ps,
        )

    def _one_by_one(self, columns: Mapping[str, AxisColumn]) -> "Outcomes":
        names = list(columns)
        rows = zip(*(columns[name].tolist() for name in names), strict=True) if names else [()]
        found = [self._totals(dict(zip(names, row, strict=True))) for row in rows]
        return _outcomes(found, breakdown=self.study.breakdown)

    def _totals(self, values: dict[str, Any]) -> StepTotals | str:
        study = self.study
        try:
            network, options = with_values(self.network, values), self.options(values)
            ready = prepare(study.workload, network, options, known=self.known, quick=True)
            timeline = ready.flat().timeline(apart=study.breakdown)
            return ready.totals(timeline, breakdown=study.breakdown)
        except StepsimError as error:
            return str(error)


class Worth(Noun):
    """What steps of a model are worth, one element each, as `Throughput` says it.

    What is unknown is NaN, or -1; `fits` is 1 where the fullest rank has room for what it holds.
    """

    tokens_per_s: Floats
    mfu: Floats
    memory_bytes: Ints
    fits: Ints

    @classmethod
    def of(cls, rates: Iterable[Throughput | None]) -> Self:
        """That of some steps, None for those of which nothing is known."""
        rows = [(np.nan, np.nan, -1, -1) if each is None else _row(each) for each in rates]
        tokens, mfu, memory, fits = zip(*rows, strict=True) if rows else ((), (), (), ())
        return cls(
            tokens_per_s=np.array(tokens, float),
            mfu=np.array(mfu, float),
            memory_bytes=ints(memory),
            fits=ints(fits),
        )

    @classmethod
    def scaled(cls, rates: Throughput, step_time_ps: Ints) -> Self:
        """That of steps of other times than a second, which has these `rates`."""
        (tokens, mfu, *held), runs = _row(rates), step_time_ps > 0
        seconds = np.where(runs, step_time_ps / PS_PER_S, np.nan)
        memory, fits = (np.where(runs, each, -1).astype(np.int64) for each in held)
        return cls(tokens_per_s=tokens / seconds, mfu=mfu / seconds, memory_bytes=memory, fits=fits)

    def before(self, other: "Worth") -> "Worth":
        """That of these steps, then of others."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Worth(**dict(zip(self.__struct_fields__, map(np.concatenate, pairs), strict=True)))


def _row(rates: Throughput) -> tuple[float, float, int, int]:
    if rates.memory_bytes is None:
        return rates.tokens_per_s, rates.mfu, -1, -1
    return rates.tokens_per_s, rates.mfu, rates.memory_bytes, int(rates.fits)


class Outcomes(Noun):
    """Results of some scenarios, one element each.

    `parts_ps` has a row per scenario and a column per `Part`, means over ranks, where asked for.
    `worth` is what steps of a model are worth. `errors` says why scenarios failed, by their place;
    their numbers mean nothing.
    """

    step_time_ps: Ints
    pipeline_time_ps: Ints
    bubble_fraction: Floats
    worth: Worth | None = None
    parts_ps: Ints | None = None
    errors: Mapping[int, str] = {}

    def __post_init__(self) -> None:
        columns = [self.pipeline_time_ps, self.bubble_fraction]
        columns += [self.parts_ps] if self.parts_ps is not None else []
        assert all(len(column) == len(self.step_time_ps) for column in columns)
        assert np.isfinite(self.bubble_fraction).all()


def failed(count: int, why: str, *, breakdown: bool) -> Outcomes:
    """Outcomes of scenarios that all failed for one reason."""
    return _outcomes([why] * count, breakdown=breakdown)


def _outcomes(found: Sequence[StepTotals | str], *, breakdown: bool) -> Outcomes:
    steps, pipelines, bubbles = (np.zeros(len(found), t) for t in (np.int64, np.int64, float))
    parts = np.zeros((len(found), len(Part)), np.int64)
    rates = [None if isinstance(each, str) else each.throughput for each in found]
    errors = {}
    for i, each in enumerate(found):
        if isinstance(each, str):
            errors[i] = each
            continue
        steps[i], pipelines[i] = each.step_time_ps, each.pipeline_time_ps
        bubbles[i] = each.bubble_fraction
        if each.breakdown_ps is not None:
            parts[i] = list(each.breakdown_ps.values())
    outcomes = Outcomes(
        step_time_ps=steps,
        pipeline_time_ps=pipelines,
        bubble_fraction=bubbles,
        worth=Worth.of(rates),
        errors=errors,
    )
    return replace(outcomes, parts_ps=parts) if breakdown else outcomes


def _joined(first: Outcomes, second: Outcomes) -> Outcomes:
    count = len(first.step_time_ps)
    parts = None
    if first.parts_ps is not None and second.parts_ps is not None:
        parts = np.concatenate((first.parts_ps, second.parts_ps))
    worth = first.worth
    if worth is not None and second.worth is not None:
        worth = worth.before(second.worth)
    return Outcomes(
        worth=worth,
        step_time_ps=np.concatenate((first.step_time_ps, second.step_time_ps)),
        pipeline_time_ps=np.concatenate((first.pipeline_time_ps, second.pipeline_time_ps)),
        bubble_fraction=np.concatenate((first.bubble_fraction, second.bubble_fraction)),
        parts_ps=parts,
        errors={**first.errors, **{i + count: why for i, why in second.errors.items()}},
    )
