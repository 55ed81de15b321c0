"""Steps of a machine that is faster or slower as a whole."""

import numpy as np
import pytest
from helpers import uniform_workload
from jobs import make_batch

from stepsim.base.errors import PlanError
from stepsim.explore.batch.evaluation import Batch
from stepsim.explore.noise.draws import noisy_speeds


@pytest.fixture
def batch() -> Batch:
    work = uniform_workload(forward=1_000_000, backward=2_000_000, pp=1, microbatches=2)
    return make_batch(work, "hgx-h100")


@pytest.mark.parametrize("variation", [0.05, 0.3])
def test_a_step_of_compute_alone_varies_as_its_compute(batch: Batch, variation: float) -> None:
    planned = int(batch.evaluate({}).step_time_ps[0])
    steps = noisy_speeds(batch, {}, compute=variation, samples=20_000, seed=1) / planned
    assert steps.mean() == pytest.approx(1, abs=0.01)
    assert steps.std() == pytest.approx(variation, rel=0.05)
    again = noisy_speeds(batch, {}, compute=variation, samples=20_000, seed=1) / planned
    assert np.array_equal(steps, again)
    slower = noisy_speeds(
        batch,
        {f"compute_scale.{phase}": 2.0 for phase in ("forward", "input_grad", "weight_grad")},
        compute=variation,
        samples=20_000,
        seed=1,
    )
    assert slower / planned == pytest.approx(2 * steps, rel=1e-5)


def test_noise_of_links_does_not_reach_compute(batch: Batch) -> None:
    steps = noisy_speeds(batch, {}, links=0.5, samples=8, seed=0)
    assert set(steps.tolist()) == {int(batch.evaluate({}).step_time_ps[0])}


@pytest.mark.parametrize("wrong", [{"compute": -0.1}, {"links": 1.1}, {"links": float("nan")}])
def test_noise_that_cannot_be_is_refused(batch: Batch, wrong: dict[str, float]) -> None:
    with pytest.raises(PlanError, match="expected 0 to 1"):
        noisy_speeds(batch, {}, **wrong, samples=8, seed=0)
