"""Step times of drawn steps, and the factors that they vary by."""

from math import log, sqrt

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.structs import Noun


class StepSamples(Noun, eq=False):
    """Step times of drawn steps in ps, in the order drawn."""

    step_time_ps: Ints

    @property
    def mean_ps(self) -> float:
        """Mean step time, in ps."""
        return float(self.step_time_ps.mean())

    def percentile_ps(self, percent: float) -> float:
        """Step time that so many per cent of the steps do not exceed, interpolated."""
        return float(np.percentile(self.step_time_ps, percent))

    def rounded(self, *percents: int) -> dict[str, int]:
        """Mean and percentiles as documents have them: `mean_ps`, `p50_ps`."""
        percentiles = {f"p{each}_ps": round(self.percentile_ps(each)) for each in percents}
        return {"mean_ps": round(self.mean_ps), **percentiles}


def lognormal(normal: Floats, variation: float) -> Floats:
    """Lognormal factors of mean 1 with a coefficient of variation, of standard normal draws.

    With a coefficient of variation c such a factor is exp of a normal variable of variance
    v = ln(1 + c**2) and mean -v / 2 (closed form of its moments).
    """
    variance = log(1 + variation**2)
    return np.asarray(np.exp(sqrt(variance) * normal - variance / 2))
