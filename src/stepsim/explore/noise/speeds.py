"""Steps on a machine that is faster or slower as a whole, from one step to the next.

`draws` varies every task by itself, which takes seconds. Here all compute of a step shares one
factor, and the bandwidth of each class of links another, so that a step is one scenario of a batch.
"""

from collections.abc import Mapping
from math import isinf

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun
from stepsim.explore.batch.evaluation import Batch
from stepsim.explore.batch.scenarios import PHASES
from stepsim.explore.samples import lognormal

_MOST = 1.0


class SpeedNoise(Noun):
    """Coefficients of variation of the time of all compute, and of the time of a byte on links.

    Factors are lognormal with mean 1, drawn once per step.
    """

    compute: float = 0.0
    links: float = 0.0

    def __post_init__(self) -> None:
        for name in ("compute", "links"):
            if not 0 <= getattr(self, name) <= _MOST:
                raise PlanError(
                    f"noise of {name} is {getattr(self, name)}: expected 0 to {_MOST:g}"
                )


def noisy_speeds(
    batch: Batch, columns: Mapping[str, float], noise: SpeedNoise, *, samples: int, seed: int
) -> Ints:
    """Step times in ps of so many draws around the scenario that `columns` ask for.

    More noise of a kind stretches the same draws. Raises PlanError where the batch cannot vary
    what is noisy.
    """
    base = {**batch.setting.base(), **columns}
    compute = [f"compute_scale.{phase}" for phase in PHASES]
    links = [name for name in base if name.endswith(".bandwidth") and not isinf(base[name])]
    draws = np.random.default_rng(seed).standard_normal((1 + len(links), samples))
    found: dict[str, Floats] = {name: np.array([value]) for name, value in columns.items()}
    if noise.compute:
        found |= {name: base[name] * lognormal(draws[0], noise.compute) for name in compute}
    if noise.links:
        for name, own in zip(links, draws[1:], strict=True):
            found[name] = base[name] / lognormal(own, noise.links)
    return batch.evaluate(found).step_time_ps
