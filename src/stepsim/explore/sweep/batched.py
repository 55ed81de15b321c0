"""Scenarios of one task graph through the batch evaluator, thousands at once."""

from collections.abc import Mapping

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.errors import StepsimError
from stepsim.base.structs import Noun
from stepsim.base.units import Value
from stepsim.explain.throughput import throughput
from stepsim.explore.batch import Batch, BatchResult, make_batch
from stepsim.explore.sweep.evaluate import (
    Outcomes,
    ScenarioGroup,
    SimulatedGroup,
    Worth,
)
from stepsim.explore.sweep.grid import AxisColumn
from stepsim.explore.sweep.study import Study

_CHUNK = 50_000
_PREPARED_S, _PARTS_PER_S, _TOTALS_PER_S = 0.5, 50_000, 500_000
_FEWEST = 4


class Batched(Noun):
    """Groups of several scenarios, not shared fairly, whose order does not depend on prices."""

    @property
    def chunk(self) -> int:
        """A second's scenarios with the breakdown; far less without."""
        return _CHUNK

    def seconds(self, study: Study, scenarios: int) -> float:
        """As a graph of a thousand nodes takes."""
        return _PREPARED_S + scenarios / (_PARTS_PER_S if study.breakdown else _TOTALS_PER_S)

    def accepts(self, study: Study, settings: Mapping[str, Value]) -> bool:
        """Whether one graph serves enough scenarios, and they are sums of durations."""
        return study.grid.group_size >= _FEWEST and study.adds_up(settings)

    def prepare(self, group: ScenarioGroup) -> "_BatchedGroup":
        """Compile the group's graph."""
        batch = make_batch(group.study.workload, group.network, group.options({}))
        return _BatchedGroup(batch=batch, alone=SimulatedGroup(group=group))


class _BatchedGroup(Noun):
    """A compiled graph; what it refuses is simulated `alone`, and fails there with its reason."""

    batch: Batch
    alone: SimulatedGroup

    def evaluate(self, columns: Mapping[str, AxisColumn]) -> Outcomes:
        """Results of scenarios; one that cannot be batched does not stop the others."""
        try:
            return self._together(columns)
        except StepsimError:
            count = max((len(column) for column in columns.values()), default=1)
            if count == 1 or not self.batch.takes(columns):
                return self.alone.evaluate(columns)
            halves = (slice(0, count // 2), slice(count // 2, count))
            first, second = (
                self.evaluate({name: column[half] for name, column in columns.items()})
                for half in halves
            )
            return _joined(first, second)

    def _together(self, columns: Mapping[str, AxisColumn]) -> Outcomes:
        """Results of scenarios."""
        parts = self.alone.group.study.breakdown
        return self._outcomes(self.batch.evaluate(columns, parts=parts))

    def _outcomes(self, found: BatchResult) -> Outcomes:
        return Outcomes(
            step_time_ps=found.step_time_ps,
            pipeline_time_ps=found.pipeline_time_ps,
            bubble_fraction=found.bubble_fraction,
            worth=self._worth(found.step_time_ps),
            parts_ps=found.parts_ps,
        )

    def _worth(self, step_time_ps: Ints) -> Worth | None:
        """What steps of a model are worth."""
        effort, npus = self.batch.job.workload.effort, self.batch.job.graph.plan.npus
        if effort is None:
            return None
        rates = throughput(effort, npus, step_s=1.0)
        return Worth.scaled(rates, step_time_ps) if rates else None


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
