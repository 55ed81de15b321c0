"""One job has one step time: by events, by columns, folded, rank by rank, and as a batch."""

from typing import Any

import pytest
from jobs import make_batch, short_job

import stepsim
from stepsim.base.errors import PlanError
from stepsim.explore.noise.draws import NoiseModel
from stepsim.network.collectives import Algorithm
from stepsim.parallel.schedules import BUILDERS

SMALL: dict[str, Any] = {"npus": 16, "pp": 2, "microbatches": 4}


def times_ps(**options: Any) -> dict[str, int]:
    """The step time of a small job by everything that finds one, by name."""
    job = short_job("gpt_tp4", layers=8)
    typed = {**SMALL, **options}
    found = {
        f"{engine} {fold}": stepsim.simulate(
            job, "hgx-h100", **typed, engine=engine, fold_ranks=fold
        ).report.step_time_ps
        for engine in ("simpy", "levels")
        for fold in (True, False)
    }
    for coalesce in (True, False):
        batch = make_batch(job, "hgx-h100", coalesce=coalesce, **typed)
        found[f"batch {coalesce}"] = int(batch.evaluate({}).step_time_ps[0])
    found["sensitivity"] = stepsim.sensitivity(job, "hgx-h100", **typed).step_time_ps
    drawn = stepsim.noise(job, "hgx-h100", model=NoiseModel(), samples=1, **typed)
    return found | {"noise": drawn.planned_ps}


@pytest.mark.parametrize("schedule", BUILDERS)
def test_every_schedule_of_the_list_has_one_time(schedule: str) -> None:
    found = times_ps(schedule=schedule)
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("algorithm", Algorithm)
def test_every_algorithm_of_the_list_has_one_time(algorithm: Algorithm) -> None:
    try:
        found = times_ps(algorithm=algorithm)
    except PlanError as refused:  # groups that lie along one dimension have no levels
        pytest.skip(str(refused))
    assert len(set(found.values())) == 1, found
