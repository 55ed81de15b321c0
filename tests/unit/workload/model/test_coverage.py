"""What predictions were held against, and what steps say where nothing was."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import Run
from model_constants import simulated_s

from stepsim import simulate
from stepsim.files.accelerators import device_names, framework_names, read_device, read_framework
from stepsim.files.model_steps import PublishedStep, read_published_steps
from stepsim.runs.published import model_of

FRAMEWORKS = [read_framework(name) for name in framework_names()]
DEVICES = [read_device(name) for name in device_names()]
ROOT = Path(__file__).parents[4]
JOB: dict[str, Any] = {"npus": 16, "tp": 4, "global_batch": 32, "sequence": 2048}


def public_steps() -> Sequence[PublishedStep]:
    """Published runs that are in the repository."""
    return read_published_steps(ROOT / "benchmarks" / "public_steps.csv")[0]


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_a_model_runs_on_every_device_in_its_machine(device: Any) -> None:
    result = simulate("llama-3-8b", device=device.name, **JOB)
    rates = result.report.throughput
    assert rates is not None
    assert result.report.topology == device.topology
    assert 0 < rates.mfu < 1
    said = any("was held against predictions" in note for note in map(str, result.report.findings))
    bands = [band for each in FRAMEWORKS for band in each.errors if band.runs]
    told = any(band.generation == device.generation for band in bands)
    assert said is not told, "a step says so where nothing was held against it"
    assert (rates.error is not None) is any(
        (band.device, band.sparse, band.mixes) == (device.name, False, False)
        for band in read_framework(rates.framework).errors
        if band.runs
    )


@pytest.mark.parametrize(
    ("device", "precision", "has"),
    [
        ("v100", "bf16", "fp16"),
        ("tpu-v6e", "fp16", "bf16"),
        ("tpu-v7x", "nvfp4", "bf16, fp8"),
        ("trainium2", "nvfp4", "bf16, fp16, fp8"),
    ],
)
def test_a_format_that_a_device_has_not_names_those_it_has(
    run: Run, device: str, precision: str, has: str
) -> None:
    code, out, err = run(
        "simulate", "llama-3-8b", "--device", device, "--precision", precision,
        "--npus", "8", "--tp", "4", "-q",
    )  # fmt: skip
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"precision is {precision}: {read_device(device).name} has {has}" in err


@pytest.mark.parametrize("step", public_steps(), ids=lambda step: step.name)
def test_public_runs_that_set_no_constant_are_near(step: PublishedStep) -> None:
    """No constant was set on it: the error is that of a machine whose rates are derived."""
    assert step.measured_s
    error = abs(simulated_s(step, model_of(step)) / step.measured_s - 1)
    assert error < 0.4
