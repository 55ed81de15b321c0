"""Distributions of step times as documents: what `stepsim noise --json` writes."""

from typing import Self

from msgspec import UNSET, UnsetType

from stepsim.base.structs import Document, Entry, Names, Picoseconds
from stepsim.explore.noise.draws import NoiseModel, NoiseResult
from stepsim.explore.sampled_sweep import SampledSweep


class NoiseDocument(Document):
    """`stepsim noise --json`: step times of the samples, and without noise (`planned_ps`)."""

    model: NoiseModel
    seed: int
    planned_ps: Picoseconds
    mean_ps: Picoseconds
    p50_ps: Picoseconds
    p95_ps: Picoseconds
    p99_ps: Picoseconds
    step_time_ps: tuple[Picoseconds, ...]
    warnings: Names

    @classmethod
    def of(cls, found: NoiseResult) -> Self:
        """The document of a distribution."""
        return cls.taken_from(
            found,
            **found.rounded(50, 95, 99),
            step_time_ps=found.step_time_ps.tolist(),
        )


class _ScenarioEntry(Entry):
    """A scenario's step times, or why it failed."""

    settings: dict[str, str]
    planned_ps: Picoseconds | UnsetType = UNSET
    mean_ps: Picoseconds | UnsetType = UNSET
    p5_ps: Picoseconds | UnsetType = UNSET
    p50_ps: Picoseconds | UnsetType = UNSET
    p95_ps: Picoseconds | UnsetType = UNSET
    error: str | UnsetType = UNSET


class NoiseSweepDocument(Document):
    """`stepsim noise --set ... --json`: distributions of every scenario."""

    workload: str
    topology: str
    model: NoiseModel
    seed: int
    samples: int
    scenarios: tuple[_ScenarioEntry, ...]

    @classmethod
    def of(cls, found: SampledSweep[NoiseResult], model: NoiseModel) -> Self:
        """The document of all scenarios, in their order, whose durations vary by a model."""
        scenarios = found.entries(
            _ScenarioEntry,
            lambda each: {"planned_ps": each.planned_ps, **each.rounded(5, 50, 95)},
        )
        return cls.taken_from(
            found, **found.names, model=model, samples=found.steps, scenarios=scenarios
        )
