"""A calibration of predictions slows a model's step down, and says what it rests on."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers import Run

from stepsim.base.errors import CalibrationError
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.model_calibration import model_calibration_toml
from stepsim.options import StepOptions
from stepsim.step.calibrated import with_model_calibration
from stepsim.workload.model.calibration import MachineFactor, ModelCalibration
from stepsim.workload.model.plan import Precision

FACTOR = MachineFactor(
    device="H100",
    framework="megatron-core",
    precision=Precision.BF16,
    factor=1.5,
    runs=7,
    spread=0.021,
)
CALIBRATION = ModelCalibration(factors=(FACTOR,))
OPTIONS = StepOptions(device=read_device("h100"), framework=read_framework("megatron-core"))


def test_the_factor_slows_the_device_down() -> None:
    options, notes = with_model_calibration(OPTIONS, CALIBRATION)
    assert (
        options.device
        == CALIBRATION.apply(read_device("h100"), read_framework("megatron-core"), Precision.BF16)[
            0
        ]
    )
    assert notes == [
        "calibrated: compute takes 1.500 of the prediction on H100, megatron-core, bf16, from 7 "
        "steps, each within 2.1%"
    ]


def test_another_precision_is_predicted_without() -> None:
    options, notes = with_model_calibration(replace(OPTIONS, precision=Precision.FP8), CALIBRATION)
    assert options.device == OPTIONS.device
    assert "no factor of H100, megatron-core, fp8" in notes[0]


def test_a_workload_file_is_not_predicted() -> None:
    with pytest.raises(CalibrationError, match="expected a model on a known device"):
        with_model_calibration(StepOptions(), CALIBRATION)


def test_the_command_takes_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    path.write_text(model_calibration_toml(CALIBRATION))
    asked = ("simulate", "llama-3.1-8b", "--npus", "8", "--tp", "8", "--global-batch", "4")
    more = ("--sequence", "8192", "--json", "-", "--calibration", str(path))
    code, _, err = run(*asked, *more)
    assert code == 0
    assert "calibrated: compute takes 1.500" in err
