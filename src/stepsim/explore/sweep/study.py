"""What is swept, and how: a study, groups of its scenarios, and their results.

Scenarios of a group are evaluated in columns, or one step after another.
"""

from collections.abc import Mapping
from functools import cached_property
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np

from stepsim import __version__
from stepsim.base.arrays import Floats, Ints
from stepsim.base.digest import content_hash
from stepsim.base.errors import StepsimError, SweepError, TopologyError
from stepsim.base.structs import Noun, Values, replace
from stepsim.base.units import PS_PER_S, Value
from stepsim.explain.make_report import make_totals
from stepsim.explore.batch.evaluation import Batch, make_batch
from stepsim.explore.batch.scenarios import BatchBase
from stepsim.files.accelerators import read_device
from stepsim.files.asked import StepInputs, with_axis_values
from stepsim.files.axes import Axis, AxisColumn, Grid
from stepsim.files.load import topology_of
from stepsim.files.reading import read_bytes
from stepsim.files.sweep_table import PART_COLUMNS
from stepsim.network.placement import place
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import OVERSUBSCRIPTION, split_link
from stepsim.network.topology.nested import changeable_link, with_uplinks, with_values
from stepsim.parallel.modes import Sharing
from stepsim.parallel.schedules import needs_times
from stepsim.step.job import Job, for_schedule, held_degrees, job_of
from stepsim.step.plans import PlanSpace, Wanted, price_plans
from stepsim.step.prepared import prepare
from stepsim.workload.model.evidence import Throughput, throughput
from stepsim.workload.model.model import Model
from stepsim.workload.plan import PlanTable

_CHUNK = 50_000
_PREPARED_S, _SHARED_PER_S, _PARTS_PER_S, _TOTALS_PER_S = 0.5, 32, 50_000, 500_000
_FEWEST = 4
_DEGREES = ("tp", "cp", "pp", "microbatch_size")
# Combinations of those along axes whose plans are priced at once.
_MOST_PRICED = 1024


class Study(StepInputs):
    """What is asked of the steps of a sweep, and the grid of what varies.

    With `breakdown` the parts of the step time are kept of every scenario. With `own_machines`
    devices of an axis run in the machines that they ship in, as where one is asked for and no
    topology. `known` are prices of all that ran. Raises SweepError for axes that this topology does
    not have.
    """

    grid: Grid
    breakdown: bool = False
    own_machines: bool = False
    known: Known = {}

    def __post_init__(self) -> None:
        names = {axis.name for axis in self.grid.axes}
        for axis in self.grid.axes:
            _check_axis(self.topology, axis)
            link, _, field = axis.name.rpartition(".")
            if field == OVERSUBSCRIPTION.name and f"{link}-up.bandwidth" in names:
                raise SweepError(f"{axis.name} and {link}-up.bandwidth are one number: sweep one")

    def network(self, settings: Mapping[str, Value]) -> Topology:
        """The network of scenarios with these values of axes, their numbers of links left out."""
        device = settings.get("device") if self.own_machines else None
        machine = read_device(str(device)).topology if device else None
        return topology_of(machine) if machine else self.topology

    def group(self, number: int) -> "ScenarioGroup":
        """A group of scenarios that share a task graph."""
        return ScenarioGroup(study=self, settings=self.grid.settings(number))

    def job(self, values: Mapping[str, Any]) -> StepInputs:
        """What a scenario of these values simulates; those of anything else change nothing of it.

        Schedule options go to the schedules that have them, where the schedule is an axis.
        """
        network, options = with_values(self.network(values), values), self.options
        if "schedule" in values:
            options = for_schedule(options, str(values["schedule"]))
        options = with_axis_values(options, values)
        return StepInputs(self.workload, network, options)

    def identity(self) -> dict[str, str]:
        """What must be the same for results to belong to one sweep."""
        axes = self.grid.axes
        own = 1 if isinstance(self.workload, Model) else self.workload.degrees["pp"]
        shown = {
            "stepsim": __version__,
            **super().identity(),
            "breakdown": "on" if self.breakdown else "off",
            "stages": str(self.options.pp or own),
        }
        if self.own_machines and any(axis.name == "device" for axis in axes):
            shown["machines"] = "those of the devices"
        shown["axes"] = ", ".join(axis.name for axis in axes)
        for axis in axes:
            ends = f"{axis.texts[0]} to {axis.texts[-1]}"
            shown[f"axis {axis.name}"] = f"{len(axis)} values, {ends} {content_hash(axis.texts)}"
        schedules = (axis.texts for axis in axes if axis.name == "schedule")
        for name in (text for texts in schedules for text in texts if text.endswith(".csv")):
            shown[f"file {name}"] = content_hash(read_bytes(Path(name)))
        return shown


def _check_axis(topology: Topology, axis: Axis) -> None:
    """Raise the error that a value of a link axis would cause on this topology."""
    name, field = split_link(axis.name)
    try:
        if not field:
            with_uplinks(topology, {axis.name: 1.0})
            return
        link = changeable_link(topology, name)
    except TopologyError as error:
        raise SweepError(str(error)) from None
    for value in axis.values:
        replace(link, **cast(Any, {field.field: value}))


_TIMES = ("step_time_ps", "pipeline_time_ps", "bubble_fraction")
Outcomes = dict[str, list[Any]]
"""Results of some scenarios: columns as the table of a sweep has them, None or NaN where unknown.

A failed scenario has an error and no numbers, a free link no bandwidth.
"""


class ScenarioGroup(Noun, dict=True):
    """Scenarios that share a task graph: a study, and the values of the axes that change graphs.

    Several are evaluated together where their steps add up.
    """

    study: Study
    settings: Mapping[str, Value]

    @cached_property
    def network(self) -> Topology:
        """Its network; scenarios change numbers of its links."""
        return self.study.network(self.settings)

    def asked(self, values: Mapping[str, Any] = {}) -> StepInputs:
        """What is asked of a scenario that has these values."""
        return self.study.job({**self.settings, **values}).asking(**self._unsaid)

    @cached_property
    def _unsaid(self) -> Values:
        """What nobody says of a model's plan, on the network as it is; raises PlanError.

        Along an axis of sizes, what the smallest has to recompute all others do, too.
        """
        asked = self.study.job(self.settings)
        sizes = [axis.values for axis in self.study.grid.axes if axis.name == "npus"]
        if not sizes or asked.options.recompute is not None:
            return held_degrees(asked, price=self._price)[0]
        found, _ = held_degrees(asked.asking(npus=min(sizes[0])))
        held = {name: found[name] for name in ("recompute", "recompute_layers") if name in found}
        return held | held_degrees(asked.asking(**held))[0]

    def _price(self, space: PlanSpace, wanted: Wanted, most: int) -> PlanTable:
        """The plans of a space, priced with those of all degrees along axes, and kept for others.

        Of 64 plans of llama-3-8b a sweep takes 1.63 s of processor time so, 2.08 without.
        """
        axes = {each.name: each.values for each in self.study.grid.axes if each.name in _DEGREES}
        several = prod(map(len, axes.values()))
        able = "tp" in space.fixed and space.base.global_batch and all(map(all, axes.values()))
        if not (able and 1 < several <= _MOST_PRICED):
            return price_plans(space, wanted, most)
        given = (*self.settings.items(), *space.fixed.items())
        key = "plans", *(each for name, each in given if name not in axes)
        if key not in self.study.known:
            space = replace(space, fixed={**space.fixed, **axes})
            self.study.known[key] = price_plans(space, wanted, most * several)
        every: PlanTable = self.study.known[key]
        own = np.all([getattr(every, name) == self.settings[name] for name in axes], axis=0)
        return every.take(np.flatnonzero(own))

    @cached_property
    def job(self) -> Job:
        """The job of the group without values of its columns; raises PlanError."""
        return job_of(self.asked(), self.study.known)

    def total_bandwidth(self, columns: Mapping[str, AxisColumn]) -> Floats:
        """Bytes/s of all links of each scenario, as `evaluate` takes them; one where all agree.

        Raises PlanError where a job of the group has no size.
        """
        topology = place(self.network, self.job.plan, self.job.options.placement)
        setting = BatchBase(topology=topology)
        rates = {name: each for name, each in columns.items() if name.endswith(".bandwidth")}
        classes = zip(topology.link_counts(), setting.scenarios(rates).bandwidth.T, strict=True)
        return sum((count * rate for count, rate in classes if count), start=np.zeros(1))

    @property
    def _together(self) -> bool:
        """Whether one graph serves enough scenarios, whose steps are sums of durations.

        Their order is then the same at all prices, communication slows no compute, and no memory is
        asked for.
        """
        if self.study.grid.group_size < _FEWEST:
            return False
        settings, options = self.settings, self.study.options
        schedule = settings.get("schedule", options.schedule)
        searches = isinstance(schedule, str) and needs_times(schedule)
        overlap = settings.get("overlap_cost", options.overlap_cost)
        remembers = options.activation_size_bytes is not None
        return not (overlap or remembers or searches)

    @property
    def chunk(self) -> int:
        """Scenarios of a second of work at most, which are stored at a time: one is simulated."""
        return min(_CHUNK, self._per_s)

    def seconds(self, scenarios: int) -> float:
        """About how long so many of its scenarios take, as a graph of a thousand nodes does."""
        return _PREPARED_S * self._together + scenarios / self._per_s

    @property
    def _per_s(self) -> int:
        if not self._together:
            return 1
        if self.settings.get("contention", self.study.options.contention) == Sharing.FAIR:
            return _SHARED_PER_S
        return _PARTS_PER_S if self.study.breakdown else _TOTALS_PER_S

    def evaluate(self, columns: Mapping[str, AxisColumn]) -> Outcomes:
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
        """What its chunks share: kept, a million bandwidths take 3.3 s, else 4.7."""
        return make_batch(self.asked(), shared=True)

    def _batched(self, columns: Mapping[str, AxisColumn]) -> Outcomes:
        batch = self._batch
        found = batch.evaluate(columns, parts=self.study.breakdown)
        shown: dict[str, Floats | Ints] = {name: getattr(found, name) for name in _TIMES}
        shown |= zip(PART_COLUMNS, found.parts_ps.T, strict=False)
        if effort := batch.job.workload.effort:
            npus, runs = batch.job.graph.plan.npus, found.step_time_ps > 0
            step_s = np.where(runs, found.step_time_ps / PS_PER_S, np.nan)
            worth = _worth(throughput(effort, npus, 1.0))
            shown |= {name: np.where(runs, each, np.nan) for name, each in worth.items()}
            shown["tokens_per_s"], shown["mfu"] = effort.rates(npus, step_s)
        return {name: column.tolist() for name, column in shown.items()}

    def _one_by_one(self, columns: Mapping[str, AxisColumn]) -> Outcomes:
        names = list(columns)
        rows = zip(*(columns[name].tolist() for name in names), strict=True) if names else [()]
        return _joined(*(self._alone(dict(zip(names, row, strict=True))) for row in rows))

    def _alone(self, values: Values) -> Outcomes:
        study = self.study
        try:
            job = self.asked(values) if values else self.job
            ready = prepare(job, known=self.study.known, quick=True)
            timeline = ready.timeline(apart=study.breakdown)
            totals = make_totals(timeline, ready.workload, breakdown=study.breakdown)
        except StepsimError as error:
            return {"error": [str(error)]}
        parts = zip(PART_COLUMNS, totals.breakdown_ps.values(), strict=False)
        numbers = {name: getattr(totals, name) for name in _TIMES}
        row = numbers | _worth(totals.throughput) | dict(parts)
        return {name: [value] for name, value in row.items()}


def _worth(rates: Throughput | None) -> Values:
    """Columns of what a step is worth that are known."""
    if rates is None:
        return {}
    names = ["tokens_per_s", "mfu"]
    if rates.memory_bytes is not None:
        names += ["memory_bytes", "fits"]
    return {name: getattr(rates, name) for name in names}


def _joined(*parts: Outcomes) -> Outcomes:
    """Results of some scenarios, then of others: None in columns that only others have."""
    found: Outcomes = {name: [] for name in chain.from_iterable(parts)}
    for part in parts:
        unknown = [None] * len(next(iter(part.values())))
        for name, column in found.items():
            column.extend(part.get(name, unknown))
    return found
