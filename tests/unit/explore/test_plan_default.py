"""The plan by default and the search: neither knows of a much faster plan than the other."""

from typing import Any

import pytest
from helpers import few

from stepsim.base.structs import replace
from stepsim.explore.plan.search import fitting_plans, search_plans
from stepsim.files.asked import StepInputs, read_inputs
from stepsim.step.job import job_of
from stepsim.step.plans import make_space
from stepsim.step.prepared import prepare
from stepsim.workload.model.choices import Recompute
from stepsim.workload.plan import Plan

JOBS = (
    ("llama-3-8b", "hgx-h100", 8),
    ("llama-3-8b", "hgx-a100", 64),
    ("llama-3-70b", "hgx-h100", 64),
    ("llama-3.1-405b", "hgx-h100", 512),
    ("gpt3-175b", "hgx-a100", 256),
    ("qwen3-30b-a3b", "hgx-h100", 8),
    ("mixtral-8x7b", "hgx-h100", 16),
    ("mixtral-8x22b", "hgx-h200", 64),
    ("qwen3-235b-a22b", "gb200-nvl72", 128),
)
BATCH = 1024


def question(model: str, topology: str, npus: int, **options: Any) -> StepInputs:
    asked = {"npus": npus, "global_batch": BATCH, "sequence": 4096, **options}
    return read_inputs(model, topology, asked)


def step_ps(job: StepInputs) -> int:
    return prepare(job).step_time_ps()


def default_of(job: StepInputs) -> Plan:
    return job_of(job).plan


@pytest.mark.parametrize(("model", "topology", "npus"), few(JOBS, JOBS[0], JOBS[5]))
def test_the_plan_by_default_and_the_best_of_a_search_are_within_3_percent(
    model: str, topology: str, npus: int
) -> None:
    job = question(model, topology, npus)
    found = search_plans(make_space(job, [npus], fixed={}))
    assert step_ps(job) == pytest.approx(found.plans[0].step_ps, rel=0.03)


@pytest.mark.parametrize(
    ("model", "degrees", "npus"),
    [("llama-3-70b", {"tp": 8, "pp": 4}, 32), ("mixtral-8x7b", {"pp": 4, "ep": 8}, 32)],
)
def test_a_job_of_the_size_that_is_assumed_has_the_plan_of_one_that_is_asked_for(
    model: str, degrees: dict[str, int], npus: int
) -> None:
    """The machine has 16: degrees that do not divide it make the job larger, for the guess too."""
    asked = {**degrees, "global_batch": BATCH, "sequence": 4096}
    assumed = default_of(read_inputs(model, "hgx-h100", asked))
    assert assumed == default_of(question(model, "hgx-h100", npus, **degrees))


def test_full_recomputation_is_taken_where_it_is_faster() -> None:
    """Without it only one sample of half a layer fits, and the host launches for ages."""
    free = question("qwen3-30b-a3b", "hgx-h100", 8)
    assert default_of(free).recompute == "full"
    without = question("qwen3-30b-a3b", "hgx-h100", 8, recompute="none")
    assert step_ps(free) < 0.5 * step_ps(without)


def test_core_attention_is_recomputed_where_its_scores_are_kept() -> None:
    job = question("gpt3-175b", "hgx-a100", 256, attention="unfused", framework="megatron-2021")
    assert default_of(job).recompute == "selective"


def test_a_search_takes_plans_that_fit_well_where_there_are_any() -> None:
    space = make_space(question("llama-3-8b", "hgx-h100", 8), [8], fixed={})
    well, every = (fitting_plans(space, each)[0] for each in (None, 1.0))
    capacity = 80 * 2**30
    assert max(well.memory) < 0.92 * capacity < max(every.memory) <= capacity


def test_a_search_takes_the_stage_of_a_recipe_as_simulate_does() -> None:
    """The framework's jobs run ZeRO 1, which nobody asked for; the model's recipe says 2."""
    asked = {"global_batch": 512, "sequence": 8192, "tp": 8, "pp": 16}
    job = question("llama-3.1-405b", "hgx-h100", 1024, **asked)
    fixed = {"tp": (8,), "cp": (1,), "pp": (16,)}
    space = replace(make_space(job, [1024], fixed={}), fixed=fixed, most={"chunks": 1})
    stages = {plan.zero for plan in space.plans() if plan.recompute is Recompute.NONE}
    assert stages == {2} == {default_of(job).zero}
    only = replace(space, fixed={**fixed, "zero": (1,)})
    assert {plan.zero for plan in only.plans()} == {1}
