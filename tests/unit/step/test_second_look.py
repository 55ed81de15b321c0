"""A step of a model is held against its device's peak, its closed form and published runs."""

from typing import Any

import pytest

from stepsim import plan, simulate
from stepsim.base.structs import replace
from stepsim.files.accelerators import device_names, framework_names, read_device, read_framework
from stepsim.files.asked import read_inputs
from stepsim.step.prepared import prepare
from stepsim.step.second_look import SecondLook
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.framework import PublishedRate

QWEN: dict[str, Any] = {
    "npus": 256,
    "ep": 64,
    "global_batch": 8192,
    "sequence": 4096,
    "precision": "mxfp8",
    "framework": "megatron-bridge",
    "cuda_graph": False,
    "expert_overlap": False,  # as in the release whose runs are known
}


def look(model: str = "llama-3-8b", topology: str = "hgx-h100", **options: Any) -> SecondLook:
    found = read_inputs(model, topology, options)
    second_look = prepare(found.workload, found.topology, found.options).second_look
    assert second_look is not None
    return second_look


def said(found: SecondLook, step_s: float) -> list[str]:
    return [finding.text for finding in found.findings(round(step_s * 1e12))]


def like(found: SecondLook, **changes: Any) -> PublishedRate:
    """A run of the step's own size, changed, that takes a second."""
    plan, effort = found.built.plan, found.effort
    run = PublishedRate(
        source="somebody",
        model="a-model",
        device=effort.device,
        generation=found.built.device.generation,
        precision=plan.precision,
        experts=found.built.architecture.is_sparse,
        parameters=effort.parameters,
        npus=plan.npus,
        sequence=plan.sequence,
        tokens=effort.tokens,
        flops_per_token=effort.model_flops / effort.tokens,
        mfu=effort.model_flops / effort.peak_flops / plan.npus,
    )
    return replace(run, **changes)


def beside(found: SecondLook, *runs: PublishedRate) -> SecondLook:
    """The same look where these are the runs that are known."""
    framework = replace(found.built.framework, rates=runs)
    return replace(found, built=replace(found.built, framework=framework))


def test_nothing_is_faster_than_its_peak() -> None:
    first = simulate("llama-3-8b", "hgx-h100", npus=64, compute_scale=0.3).report.findings[0]
    assert first.text.startswith("no H100 is so fast: ")
    assert first.text.endswith("TFLOP/s in bf16, of which it has 989")


def test_groups_over_racks_are_seen_twice() -> None:
    """The error that every test passed since none held an answer against a published run."""
    packed = look("qwen3-235b-a22b", "gb200-nvl72", placement="packed", **QWEN)
    aligned = look("qwen3-235b-a22b", "gb200-nvl72", **QWEN)
    closed_s = aligned.closed_form_s() or 0.0
    assert packed.closed_form_s() == pytest.approx(closed_s, rel=0.01)
    assert not said(aligned, closed_s)
    texts = said(packed, 4 * closed_s)
    assert len(texts) == 2
    assert texts[0].startswith("the closed form of this plan says ")
    assert "qwen3-235b" in texts[1]


def test_a_plain_step_passes() -> None:
    assert not simulate("llama-3-8b", "hgx-h100", npus=64).report.findings


def test_what_no_other_answer_knows_of_is_not_compared() -> None:
    slow = look(npus=64, slow="3:4")
    assert not said(slow, 4 * (look(npus=64).closed_form_s() or 0))
    assert look(npus=8, tp=1, pp=4, schedule="zb-v", global_batch=64).closed_form_s() is None


@pytest.mark.parametrize(
    ("changes", "is_like"),
    [
        ({}, True),
        ({"npus": 256, "tokens": 1 << 24}, True),
        ({"npus": 257, "tokens": 1 << 24}, False),
        ({"tokens": 1 << 24}, True),
        ({"tokens": (1 << 24) + 1}, False),
        ({"sequence": 2048}, True),
        ({"sequence": 2047}, False),
        ({"parameters": 1 << 40}, False),
        ({"flops_per_token": 1e9}, False),
        ({"device": "H200"}, True),
        ({"generation": "blackwell"}, False),
        ({"precision": Precision.FP8}, False),
        ({"experts": True}, False),
    ],
)
def test_a_run_is_like_a_step_of_its_kind_and_about_its_size(
    changes: dict[str, Any], is_like: bool
) -> None:
    found = look(npus=64)
    run = like(found, **changes)
    assert beside(found, run).nearest() == (run if is_like else None)


def test_the_most_like_run_counts() -> None:
    found = look(npus=64)
    far, near = like(found, npus=128, sequence=8192), like(found, npus=128)
    assert beside(found, far, near).nearest() == near
    assert beside(found, near, far).nearest() == near


def test_the_range_is_wider_for_a_run_of_another_size() -> None:
    found = look(npus=64)
    band = found.effort.band
    assert band is not None
    same, other = beside(found, like(found)), beside(found, like(found, npus=128))
    for limit in (band.low, band.high):
        beyond, widely = limit**1.2, limit**1.6  # the step's rate over the run's
        assert any("somebody" in text for text in said(same, 1 / beyond))
        assert not any("somebody" in text for text in said(other, 1 / beyond))
        assert any("somebody" in text for text in said(other, 1 / widely))
    assert not any("somebody" in text for text in said(same, 1.0))


def test_a_search_says_what_its_best_plan_is_off_by() -> None:
    found = plan("llama-3-8b", "hgx-h100", gpus=8, global_batch=32, sequence=4096, runs=2)
    assert any("reached 61%" in text for text in found.warnings)


def test_shipped_rates_are_of_shipped_devices_and_below_their_peaks() -> None:
    generations = {read_device(name).name: read_device(name).generation for name in device_names()}
    rates = [rate for name in framework_names() for rate in read_framework(name).rates]
    assert len(rates) > 100
    for rate in rates:
        assert generations[rate.device] == rate.generation
        assert 0 < rate.mfu < 0.8
        assert rate.experts or rate.flops_per_token > 5 * rate.parameters


def test_a_prediction_is_doubted_where_its_closed_form_is_off_too() -> None:
    found = look(npus=64)
    closed_s = found.closed_form_s() or 0.0
    slow = beside(found, like(found, mfu=1000.0))
    (text,) = said(slow, closed_s)
    assert "wrong" not in text
    assert "or the prediction is wrong" in said(slow, 4 * closed_s)[1]
