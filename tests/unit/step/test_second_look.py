"""A step of a model is held against its device's peak and its closed form."""

from typing import Any

import pytest

from stepsim import simulate
from stepsim.files.asked import read_inputs
from stepsim.step.checks import closed_form_s, second_look
from stepsim.step.job import Job
from stepsim.step.prepared import prepare

QWEN: dict[str, Any] = {
    "npus": 256,
    "ep": 64,
    "global_batch": 1024,
    "sequence": 4096,
    "precision": "mxfp8",
    "framework": "megatron-bridge",
    "cuda_graph": False,
    "expert_overlap": False,  # as in the release whose runs are known
}


def look(model: str = "llama-3-8b", topology: str = "hgx-h100", **options: Any) -> Job:
    found = read_inputs(model, topology, options)
    return prepare(found).job


def said(job: Job, step_s: float) -> list[str]:
    return [finding.text for finding in second_look(job, round(step_s * 1e12))]


def test_nothing_is_faster_than_its_peak() -> None:
    first = simulate("llama-3-8b", "hgx-h100", npus=64, compute_scale=0.3).report.findings[0]
    assert first.text.startswith("no H100 is so fast: ")
    assert first.text.endswith("TFLOP/s in bf16, of which it has 989")


def test_groups_over_racks_are_seen_twice() -> None:
    """The error that every test passed since none held an answer against a published run."""
    packed = look("qwen3-235b-a22b", "gb200-nvl72", placement="packed", **QWEN)
    aligned = look("qwen3-235b-a22b", "gb200-nvl72", **QWEN)
    closed_s = closed_form_s(aligned) or 0.0
    assert closed_form_s(packed) == pytest.approx(closed_s, rel=0.01)
    assert not said(aligned, closed_s)
    texts = said(packed, 4 * closed_s)
    assert len(texts) == 1
    assert texts[0].startswith("the closed form of this plan says ")


def test_a_plain_step_passes() -> None:
    assert not simulate("llama-3-8b", "hgx-h100", npus=64).report.findings


def test_what_no_other_answer_knows_of_is_not_compared() -> None:
    slow = look(npus=64, slow="3:4")
    assert not said(slow, 4 * (closed_form_s(look(npus=64)) or 0))
    assert closed_form_s(look(npus=8, tp=1, pp=4, schedule="zb-v", global_batch=64)) is None
