"""Where overlap is free, the answer says what it would cost."""

from typing import Any

import pytest
from helpers import Run

from stepsim.face.steps import simulate
from stepsim.files.asked import read_inputs
from stepsim.step.doubts import slowed_ps

SPLIT = ("--gpus", "16", "--tp", "2", "--pp", "2", "--mbs", "1")
BATCH = ("--global-batch", "32", "--seq", "4096", "-t", "hgx-h100")


DENSE: dict[str, Any] = {
    "npus": 16,
    "tp": 2,
    "pp": 2,
    "microbatch_size": 1,
    "global_batch": 32,
    "sequence": 4096,
}


def test_it_is_that_of_the_step_which_asks_for_it() -> None:
    typed: dict[str, Any] = {**DENSE, "overlap_cost": True}
    exact_ps = simulate("llama-3-8b", "hgx-h100", **typed).report.step_time_ps
    assert slowed_ps(read_inputs("llama-3-8b", "hgx-h100", DENSE)) == exact_ps


@pytest.mark.parametrize(
    ("topology", "typed"),
    [("hgx-h100", {"overlap_cost": True}), ("mi300x-8x400g", {}), ("tpu-v5p", {})],
)
def test_where_the_step_has_it_or_the_law_is_not_known(
    topology: str, typed: dict[str, Any]
) -> None:
    assert slowed_ps(read_inputs("llama-3-8b", topology, DENSE | typed)) is None


def test_simulate_and_plan_say_it_in_a_line(run: Run) -> None:
    said, model = "overlap is free: ", "llama-3-8b"
    assert said in run("simulate", model, *SPLIT, *BATCH)[2]
    assert said not in run("simulate", model, *SPLIT, *BATCH, "--overlap-cost", "on")[2]
    asked = ("--gpus", "16", "--fix", "tp=8", "--runs", "3")
    assert said in run("plan", model, *asked, *BATCH)[2]
