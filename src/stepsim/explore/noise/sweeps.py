"""Noise over the axes of a sweep: the distribution of the step time of every scenario."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from stepsim.base.errors import StepsimError
from stepsim.explore.noise.draws import NoiseModel, NoiseResult, simulate_noise
from stepsim.explore.sweep.grid import Grid
from stepsim.explore.sweep.study import Study
from stepsim.network.topology.nested import with_values


class NoiseSweep(Struct, frozen=True, kw_only=True):
    """Distributions of step times, or the reasons of failures, in the order of the scenarios."""

    grid: Grid
    source: tuple[str, str]
    model: NoiseModel
    samples: int
    seed: int
    scenarios: tuple[NoiseResult | str, ...]

    @property
    def results(self) -> tuple[NoiseResult, ...]:
        """The scenarios that could run."""
        return tuple(each for each in self.scenarios if not isinstance(each, str))


def sweep_noise(
    study: Study,
    *,
    model: NoiseModel,
    samples: int = 1000,
    seed: int = 0,
    progress: Callable[[int, int, int], None] | None = None,
) -> NoiseSweep:
    """Draw `samples` steps of every scenario of a study, all from one seed.

    `progress` is called with the scenarios done, failed, and all. Raises the error of the first
    scenario when none can run.
    """
    grid = study.grid
    found: list[NoiseResult | str] = []
    first: StepsimError | None = None
    for scenario in range(grid.size):
        try:
            found.append(_draws(study, scenario, model, samples, seed))
        except StepsimError as error:
            first = first or error
            found.append(str(error))
        if progress:
            progress(len(found), sum(isinstance(each, str) for each in found), grid.size)
    if first and all(isinstance(each, str) for each in found):
        raise first
    return NoiseSweep(
        grid=grid,
        source=(study.workload.source, study.topology.name),
        model=model,
        samples=samples,
        seed=seed,
        scenarios=tuple(found),
    )


def _draws(study: Study, scenario: int, model: NoiseModel, samples: int, seed: int) -> NoiseResult:
    values: dict[str, Any] = {
        axis.name: axis.values[study.grid.position(axis, scenario)] for axis in study.grid.axes
    }
    return simulate_noise(
        study.workload,
        with_values(study.topology, values),
        study.step_options(values),
        model=model,
        samples=samples,
        seed=seed,
    )
