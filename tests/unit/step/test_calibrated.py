"""A calibration of predictions slows a model's step down, and says what it rests on."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import Run

import stepsim
from stepsim.base.errors import CalibrationError
from stepsim.base.structs import replace, toml_text
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.asked import StepInputs
from stepsim.files.load import read_model, topology_of
from stepsim.options import StepOptions
from stepsim.step.model_plan import setup_of
from stepsim.workload.model.calibration import (
    MachineFactor,
    MeasuredRate,
    ModelCalibration,
    slowed,
)
from stepsim.workload.model.choices import Precision

FACTOR = MachineFactor(
    device="H100",
    framework="megatron-core",
    precision=Precision.BF16,
    factor=1.5,
    runs=7,
    spread=0.021,
)
CALIBRATION = ModelCalibration(factors=(FACTOR,))
LLAMA = read_model("llama-3.1-8b")
OPTIONS = StepOptions(
    device=read_device("h100"),
    framework=read_framework("megatron-core"),
    calibration=CALIBRATION,
)
SIZE: dict[str, Any] = {"npus": 8, "tp": 8, "global_batch": 4}


def test_the_factor_slows_the_device_down() -> None:
    setup, plain = (
        setup_of(StepInputs(LLAMA, topology_of("hgx-h100"), replace(OPTIONS, calibration=each)))
        for each in (CALIBRATION, None)
    )
    assert setup.device == slowed(plain.device, 1.5)
    assert setup.framework == plain.framework
    assert [*CALIBRATION.said(setup.device, setup.framework, Precision.BF16)] == [
        "calibrated: compute takes 1.500 of the prediction on H100, megatron-core, bf16, from 7 "
        "steps, each within 2.1%"
    ]


def test_another_precision_is_predicted_without() -> None:
    asked = replace(OPTIONS, precision=Precision.FP8)
    setup = setup_of(StepInputs(LLAMA, topology_of("hgx-h100"), asked))
    assert setup.device == OPTIONS.device
    (said,) = CALIBRATION.said(setup.device, setup.framework, Precision.FP8)
    assert "no factor of H100, megatron-core, fp8" in said


def test_measured_rates_alone_are_told() -> None:
    rate = MeasuredRate(
        device="H100",
        precision=Precision.BF16,
        rate=5e14,
        peak=989e12,
        shapes=9,
        spread=0.01,
    )
    known = ModelCalibration(rates=(rate,))
    setup = setup_of(
        StepInputs(LLAMA, topology_of("hgx-h100"), replace(OPTIONS, calibration=known))
    )
    assert setup.device.rates[Precision.BF16].rate == 5e14
    assert [*known.said(setup.device, setup.framework, Precision.BF16)] == [
        "calibrated: products of H100 in bf16 at 500 TFLOP/s, from 9 shapes"
    ]


def test_a_workload_file_is_not_predicted(moe: Path) -> None:
    with pytest.raises(CalibrationError, match="this calibration is for models on a known device"):
        stepsim.simulate(moe, calibration=CALIBRATION)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "machine.toml"
    path.write_text(toml_text(CALIBRATION))
    return path


SMALL = ("--tp", "8", "--npus", "8", "--global-batch", "4", "--sequence", "8192", "--cuda-graph")
SEARCH = (
    "--fix",
    "tp=8",
    "--gpus",
    "8",
    "--global-batch",
    "4",
    "--sequence",
    "8192",
    "--runs",
    "1",
)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("simulate", *SMALL), "step_time_ps"),
        (("compare", "--schedules", "1f1b", *SMALL), "candidates.0.step_time_ps"),
        (("noise", "--task", "0", "--samples", "2", *SMALL), "step_time_ps.0"),
        (("sweep", "--set", "mbs=1", "--jobs", "1", *SMALL), "scenarios.0.step_time_ps"),
        (("plan", *SEARCH), "plans.0.step_time_ps"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_every_command_that_simulates_takes_it(
    command: tuple[str, ...], key: str, run: Run, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(machine.parent)
    name, *asked = command
    steps = []
    for number, more in enumerate(((), ("--calibration", str(machine)))):
        also = ("--db", f"{number}.sqlite") if name == "sweep" else ()
        code, out, err = run(name, "llama-3.1-8b", *asked, *more, *also, "--json", "-")
        assert code == 0, err
        found = json.loads(out)
        for each in key.split("."):
            found = found[int(each) if each.isdecimal() else each]
        steps.append(found)
    assert steps[1] > 1.2 * steps[0]


def test_a_plan_keeps_it_and_a_check_may_replace_it(
    run: Run, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(machine.parent)
    search = ("plan", "llama-3.1-8b", *SEARCH, "-q", "--toml")
    slower = (*search, "slow.toml", "--calibration", "machine.toml")
    assert run(*search, "plain.toml")[0] == run(*slower)[0] == 0
    assert 'calibration = "machine.toml"' in Path("slow.toml").read_text()
    limit = ("--max-step", "100s", "-q", "--json", "-")
    plain, slow = (
        json.loads(run("plan", plan, "--check", *limit)[1])["step_time_ps"]
        for plan in ("plain.toml", "slow.toml")
    )
    replaced = json.loads(run("plan", "plain.toml", "--check", *limit, "--calibration", machine)[1])
    assert slow == replaced["step_time_ps"] > 1.2 * plain


def test_each_scenario_has_the_factor_of_its_own_machine(tmp_path: Path) -> None:
    found = stepsim.sweep(
        "llama-3.1-8b",
        "hgx-h100",
        axes={"precision": ["bf16", "fp8"]},
        database=tmp_path / "s.sqlite",
        npus=8,
        tp=8,
        global_batch=4,
        calibration=CALIBRATION,
    )
    plain = [
        stepsim.simulate("llama-3.1-8b", "hgx-h100", **SIZE, precision=each, calibration=known)
        for each, known in (("bf16", CALIBRATION), ("fp8", None))
    ]
    steps = [each["step_time_ps"] for each in found.to_dict()["scenarios"]]
    assert steps == [each.report.step_time_ps for each in plain]
