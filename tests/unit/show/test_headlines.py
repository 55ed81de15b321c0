"""The few numbers that are said first of a step."""

from pathlib import Path

import stepsim
from stepsim.show.page.facts import headlines


def test_a_model_has_its_range_its_tokens_and_its_memory() -> None:
    step = stepsim.simulate(
        "llama-3.2-3b", "hgx-h100", npus=32, tp=2, pp=4, global_batch=64, sequence=2048
    )
    known = {name: beside for name, _, beside in headlines(step.report)}
    assert {"step time", "MFU", "tokens/s", "memory"} <= known.keys()
    assert known["step time"].count(" to ") == 1
    assert known["tokens/s"].endswith("per GPU")
    assert known["memory"] == ""


def test_a_workload_without_a_model_has_shares_for_an_answer(moe: Path) -> None:
    names = [name for name, _, _ in headlines(stepsim.simulate(moe, "hgx-h100").report)]
    shares = ["pipeline bubble", "compute", "exposed communication"]
    assert names == ["step time", *shares, "throughput"]
