"""Noise over the axes of a sweep: the distribution of the step time of every scenario."""

from collections.abc import Callable
from typing import Any, TypeVar

from stepsim.base.errors import StepsimError
from stepsim.base.structs import Noun
from stepsim.explore.noise.draws import NoiseModel, NoiseResult, simulate_noise
from stepsim.explore.sweep.grid import Grid
from stepsim.explore.sweep.study import Study
from stepsim.network.topology.nested import with_values

Found = TypeVar("Found")


class NoiseSweep(Noun):
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
    return NoiseSweep(
        grid=study.grid,
        source=(study.workload.source, study.topology.name),
        model=model,
        samples=samples,
        seed=seed,
        scenarios=found_of_all(
            study.grid.size, lambda i: _draws(study, i, model, samples, seed), progress
        ),
    )


def found_of_all(
    count: int,
    find: Callable[[int], Found],
    progress: Callable[[int, int, int], None] | None = None,
) -> tuple[Found | str, ...]:
    """What is found of each of so many scenarios, or why it fails.

    `progress` is called as `sweep_noise` calls it. Raises the error of the first scenario when none
    can run.
    """
    found: list[Found | str] = []
    first: StepsimError | None = None
    for scenario in range(count):
        try:
            found.append(find(scenario))
        except StepsimError as error:
            first = first or error
            found.append(str(error))
        if progress:
            progress(len(found), sum(isinstance(each, str) for each in found), count)
    if first and all(isinstance(each, str) for each in found):
        raise first
    return tuple(found)


def _draws(study: Study, scenario: int, model: NoiseModel, samples: int, seed: int) -> NoiseResult:
    values: dict[str, Any] = {
        axis.name: axis.values[study.grid.position(axis, scenario)] for axis in study.grid.axes
    }
    return simulate_noise(
        study.workload,
        with_values(study.network(values), values),
        study.step_options(values),
        model=model,
        samples=samples,
        seed=seed,
    )
