"""Noise over the axes of a sweep: the distribution of the step time of every scenario."""

from collections.abc import Callable

from stepsim.explore.noise.draws import NoiseModel, NoiseResult, simulate_noise
from stepsim.explore.sampled_sweep import SampledSweep, sample_sweep
from stepsim.explore.sweep.study import Study


def sweep_noise(
    study: Study,
    *,
    model: NoiseModel,
    samples: int = 1000,
    seed: int = 0,
    progress: Callable[[int, int, int], None] | None = None,
) -> SampledSweep[NoiseResult]:
    """Draw `samples` steps of every scenario of a study, all from one seed, as `sample_sweep`."""

    def find(scenario: int) -> NoiseResult:
        return simulate_noise(*study.job(scenario), model=model, samples=samples, seed=seed)

    return sample_sweep(study, find, steps=samples, seed=seed, progress=progress)
