"""From the scenarios of a group to their results: one protocol, any number of ways.

`Simulation` runs a step for every scenario and serves every sweep. An evaluator that is
faster for some groups stands before it in the list and says which groups it takes.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from msgspec.structs import astuple

from stepsim.base.arrays import Bools, Floats, Ints, ints
from stepsim.base.errors import StepsimError
from stepsim.base.structs import Noun, replace
from stepsim.base.units import PS_PER_S, Value
from stepsim.explain.make_report import StepTotals
from stepsim.explain.throughput import Throughput
from stepsim.explore.sweep.grid import AxisColumn
from stepsim.explore.sweep.study import Study
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.network.topology.nested import with_values
from stepsim.options import StepOptions
from stepsim.step.inputs import held_degrees
from stepsim.step.prepared import PreparedStep
from stepsim.step.totals import ready_step, step_totals
from stepsim.workload.rows import Part

_Number = TypeVar("_Number", bound=np.number)


class ScenarioGroup(Noun, dict=True):
    """Scenarios that share a task graph: a study, and the values of the axes that change graphs."""

    study: Study
    settings: Mapping[str, Value]

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

    @property
    def lacks(self) -> Bools:
        """Which scenarios are known not to fit."""
        if self.worth is None:
            return np.zeros(len(self.step_time_ps), np.bool_)
        return np.asarray(self.worth.fits == 0)


class PreparedGroup(Protocol):
    """A group whose shared work is done."""

    def evaluate(self, columns: Mapping[str, AxisColumn]) -> Outcomes:
        """Results of scenarios given by columns of equal length, by the names of their axes.

        Bandwidths are float64 bytes/s, times int64 ps, factors float64. Without such axes the
        columns are empty and there is one scenario.
        """


class Evaluator(Protocol):
    """A way to get results; instances travel to workers, so they can be pickled."""

    @property
    def chunk(self) -> int:
        """Scenarios of a second of work at most: as many are stored at a time."""

    def seconds(self, study: Study, scenarios: int) -> float:
        """About how long it takes to prepare a group and to compute so many of its scenarios."""

    def accepts(self, study: Study, settings: Mapping[str, Value]) -> bool:
        """Whether this way is right for a group; must be quick and may not raise."""

    def prepare(self, group: ScenarioGroup) -> PreparedGroup:
        """Do once what a group's scenarios share; raises StepsimError if none of them can run."""


class Simulation(Noun, eq=False):
    """Runs a step for each scenario, for its totals alone; `known` are prices of those before."""

    known: Known = {}

    @property
    def chunk(self) -> int:
        """One scenario at a time, as each takes a full simulation."""
        return 1

    def seconds(self, study: Study, scenarios: int) -> float:
        """A second each."""
        return float(scenarios)

    def accepts(self, study: Study, settings: Mapping[str, Value]) -> bool:
        """True: the engine can simulate every scenario."""
        return True

    def prepare(self, group: ScenarioGroup) -> "SimulatedGroup":
        """Nothing is shared but the workload and the topology, which are read already."""
        return SimulatedGroup(group=group, known=self.known)


class SimulatedGroup(Noun, dict=True):
    """A group of which every scenario is simulated by itself."""

    group: ScenarioGroup
    known: Known = {}

    def evaluate(self, columns: Mapping[str, AxisColumn]) -> Outcomes:
        """Simulate each scenario; one that fails leaves its reason."""
        names = list(columns)
        rows = zip(*(columns[name].tolist() for name in names), strict=True) if names else [()]
        found: list[StepTotals | str] = []
        for row in rows:
            found.append(self._totals(dict(zip(names, row, strict=True))))
        return _outcomes(found, breakdown=self.group.study.breakdown)

    def _totals(self, values: dict[str, Any]) -> StepTotals | str:
        study = self.group.study
        try:
            topology = with_values(self.group.network, values)
            return step_totals(
                study.workload,
                topology,
                self.group.options(values),
                breakdown=study.breakdown,
                known=self.known,
            )
        except StepsimError as error:
            return str(error)

    def ready(self) -> PreparedStep:
        """The step of the group on the network as it is."""
        group = self.group
        return ready_step(group.study.workload, group.network, group.options(), self.known)


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
