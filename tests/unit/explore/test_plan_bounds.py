"""Nothing that a bound or a price leaves out is better than what a search calls best."""

from random import Random

import pytest

import stepsim
from stepsim.base.errors import PlanError
from stepsim.base.units import PS_PER_S
from stepsim.explore.plan.asked import parse_fixed
from stepsim.explore.plan.search import PlanJob, fitting_plans, search_plans
from stepsim.files.asked import read_inputs
from stepsim.step.plans import make_space

PROBLEMS, QUICK = 50, 4
SEEDS = [
    pytest.param(seed, marks=() if seed < QUICK else pytest.mark.slow) for seed in range(PROBLEMS)
]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pruned_search_finds_what_an_exhaustive_one_finds(seed: int) -> None:
    """The same winner, the first of equals, and no plan below its bound."""
    draw = Random(seed)
    name = draw.choice(["llama-3.2-1b", "qwen2.5-0.5b", "gpt2", "opt-125m", "deepseek-v2-lite"])
    asked: dict[str, object] = {
        "global_batch": draw.choice([2, 4]),
        "sequence": draw.choice([512, 1024]),
        "dp_overlap": draw.random() < 0.5,
    }
    inputs = read_inputs(name, draw.choice(["hgx-h100", "hgx-a100"]), asked)
    fixed = parse_fixed(
        ["recompute=none", f"mbs={draw.choice(['1', '1,2'])}", f"vpp={draw.choice(['1', '1,2'])}"]
    )
    sizes = draw.choice([(2,), (4,), (2, 4)])
    fixed |= parse_fixed([f"schedule={draw.choice(['1f1b', 'zb-h1', '1f1b,zb-h1,zb-v'])}"])
    if fixed["schedule"] == ("zb-h1",):
        fixed |= {"chunks": (1,)}
    made = make_space(inputs, sizes, fixed=fixed, most={"ep": 2, "tp": 2})
    limit = 4.0 if inputs.model.architecture.is_sparse else draw.choice([1.0, 0.5])
    priced, _ = fitting_plans(made, limit)
    job = PlanJob(space=made)
    runs = [job.run(plan) for plan in priced.plans]
    steps = [0 if isinstance(run, str) else run.step_time_ps for run in runs]
    assert all(
        low * PS_PER_S <= step * (1 + 1e-9) for low, step in zip(priced.bound, steps, strict=True)
    )
    best = min(range(len(steps)), key=lambda place: (steps[place], place))
    found = search_plans(made, runs=1000, memory_limit=limit)
    assert found.plans[0].plan == priced.plans[best]
    assert found.plans[0].step_ps == steps[best]
    assert found.not_run == 0


@pytest.mark.parametrize("fixed", [{"tp": 0}, {"mbs": 0}, {"pp": [4, 0]}])
def test_a_degree_of_nothing_is_refused(fixed: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=r"fix: \w+ is 0: expected at least 1"):
        stepsim.plan("llama-3-8b", "hgx-h100", gpus=16, fix=fixed, runs=1)


def test_a_sequence_of_nothing_is_refused() -> None:
    with pytest.raises(PlanError, match="sequence is 0: expected 1 to"):
        stepsim.plan("llama-3-8b", "hgx-h100", gpus=16, sequence=0, runs=1)


def test_no_samples_in_a_microbatch_are_refused() -> None:
    with pytest.raises(PlanError, match="microbatch_size is 0: expected 1 to"):
        stepsim.simulate("llama-3-8b", "hgx-h100", gpus=16, microbatch_size=0)
