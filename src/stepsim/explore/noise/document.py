"""Distributions of step times as documents: what `stepsim noise --json` writes."""

from typing import Self

from msgspec import UNSET, UnsetType

from stepsim.base.structs import Document, Entry, Names, Picoseconds
from stepsim.explore.noise.draws import NoiseModel, NoiseResult
from stepsim.explore.noise.sweeps import NoiseSweep


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
            mean_ps=round(found.mean_ps),
            p50_ps=round(found.percentile_ps(50)),
            p95_ps=round(found.percentile_ps(95)),
            p99_ps=round(found.percentile_ps(99)),
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

    @classmethod
    def of(cls, settings: dict[str, str], found: NoiseResult | str) -> Self:
        """The entry of a scenario: of its distribution, or of the reason that it has none."""
        if isinstance(found, str):
            return cls(settings=settings, error=found)
        return cls(
            settings=settings,
            planned_ps=found.planned_ps,
            mean_ps=round(found.mean_ps),
            p5_ps=round(found.percentile_ps(5)),
            p50_ps=round(found.percentile_ps(50)),
            p95_ps=round(found.percentile_ps(95)),
        )


class NoiseSweepDocument(Document):
    """`stepsim noise --set ... --json`: distributions of every scenario."""

    workload: str
    topology: str
    model: NoiseModel
    seed: int
    samples: int
    scenarios: tuple[_ScenarioEntry, ...]

    @classmethod
    def of(cls, found: NoiseSweep) -> Self:
        """The document of all scenarios, in their order."""
        workload, topology = found.source
        scenarios = [
            _ScenarioEntry.of(found.grid.values(i), each) for i, each in enumerate(found.scenarios)
        ]
        return cls.taken_from(found, workload=workload, topology=topology, scenarios=scenarios)
