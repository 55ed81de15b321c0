"""Timelines of drawn steps: the engine's events agree with the columns of the study."""

from typing import Any

import numpy as np
import pytest

from stepsim import simulate
from stepsim.base.structs import replace
from stepsim.explore.batches.draws import LoadColumns, simulate_batches
from stepsim.explore.batches.prices import microbatch_prices
from stepsim.explore.batches.timelines import shown_steps, simulated_loads
from stepsim.files.asked import StepInputs, read_inputs
from stepsim.parallel.modes import Engine
from stepsim.workload.documents import ListedWorks, parse_lengths
from stepsim.workload.model.model import Model

SMALL: dict[str, Any] = {"npus": 16, "tp": 2, "pp": 2, "sequence": 8192, "microbatches": 4}
JOBS: dict[str, dict[str, Any]] = {
    "dense": {},
    "no pipeline": {"pp": 1, "zero": 1},
    "sharded": {"pp": 1, "tp": 1, "zero": 3, "npus": 8},
    "interleaved": {"schedule": "interleaved", "chunks": 2},
    "split backward": {"schedule": "zb-h1"},
    "experts": {"workload": "mixtral-8x7b", "ep": 4},
    "long context": {"cp": 2, "pp": 1},
    "slow rank": {"slow": "3:1.5"},
}


def read(job: dict[str, Any]) -> tuple[Model, StepInputs]:
    options = SMALL | job
    found = read_inputs(options.pop("workload", "llama-3-8b"), "hgx-h100", options)
    assert isinstance(found.workload, Model)
    return found.workload, found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_events_take_as_long_as_columns_of_the_same_tasks(job: dict[str, Any]) -> None:
    """To the picosecond; the columns of whole actions are lines through few of their lengths."""
    model, asked = read(job)
    law = parse_lengths("lognormal(mu=7, sigma=1, most=8192)")
    (steps,) = simulate_batches(
        model, asked.topology, asked.options, lengths=law, packers=["padded"], steps=6
    ).packed
    prices = microbatch_prices(model, asked.topology, asked.options, coalesce=False)
    columns = LoadColumns(prices)
    for loads, whole_ps in (
        (steps.typical, np.sort(steps.step_ps)[2]),
        (steps.slowest, steps.step_ps.max()),
    ):
        found = simulated_loads(prices, loads).report
        features = prices.features(loads.tokens, loads.squares)
        assert found.step_time_ps == columns.step_ps(features)[0]
        assert found.step_time_ps == pytest.approx(float(whole_ps), rel=0.01)
        assert sum(found.breakdown_ps.values()) == pytest.approx(found.step_time_ps, abs=99)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("job", [JOBS["dense"], JOBS["experts"]], ids=["dense", "experts"])
def test_full_sequences_run_as_ever_on_either_engine(job: dict[str, Any]) -> None:
    model, asked = read(job)
    (steps,) = simulate_batches(
        model,
        asked.topology,
        asked.options,
        lengths=parse_lengths("fixed(length=8192)"),
        packers=["sequence"],
        steps=1,
    ).packed
    planned = simulate("llama-3-8b" if not job else "mixtral-8x7b", "hgx-h100", **_options(job))
    for engine in Engine:
        options = replace(asked.options, engine=engine)
        prices = microbatch_prices(model, asked.topology, options, coalesce=False)
        found = simulated_loads(prices, steps.typical)
        assert found.report.step_time_ps == planned.report.step_time_ps
        assert len(found.timeline.actors) == len(planned.timeline.actors)


def _options(job: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (SMALL | job).items() if name != "workload"}


def test_drawn_works_are_shown_as_they_were_studied() -> None:
    """Computes take the multiple that was drawn, in the picture as in the study."""
    job = read_inputs("llama-3-8b", "hgx-h100", {"npus": 16, "pp": 2, "microbatches": 4})
    assert isinstance(job.workload, Model)
    works = np.random.default_rng(0).gamma(4.0, 0.25, (16, 8, 4)) + 0.1
    found = simulate_batches(
        *(job.workload, job.topology, job.options),
        lengths=ListedWorks(works=works),
        packers=("recorded", "recorded+swap"),
        steps=20,
    )
    drawn, swapped = found.packed
    assert drawn.mean_ps > swapped.mean_ps > found.planned_ps * 0.95
    shown = dict(shown_steps(drawn, job.workload, job.topology, job.options))
    slowest = shown["slowest step"].report.step_time_ps
    assert slowest == pytest.approx(int(drawn.step_ps.max()), rel=1e-6)
    assert drawn.work(drawn.slowest).max() > 1.5
