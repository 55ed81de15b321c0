"""Calibrations recover what predictions were changed by, and say what steps do not tell."""

from pathlib import Path

import pytest

from stepsim.base.errors import CalibrationError
from stepsim.base.structs import replace, toml_text
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.calibrations import (
    fit_gemm_rates,
    read_model_calibration,
)
from stepsim.files.model_steps import PublishedStep
from stepsim.runs.published import model_of, validate_published
from stepsim.runs.published_calibration import calibrate_steps
from stepsim.workload.model.architecture import Architecture, DenseMlp, GroupedAttention, Layer
from stepsim.workload.model.calibration import slowed
from stepsim.workload.model.choices import Precision
from stepsim.workload.plan import Plan

LAYER = Layer(
    attention=GroupedAttention(heads=32, kv_heads=8, head_dim=128), mlp=DenseMlp(width=14336)
)
LLAMA = Architecture(name="llama-8b", hidden=4096, layers=(LAYER,) * 32, vocabulary=128256)
HOST_PS = 9_000_000_000


def measured(plan: Plan, name: str, *, factor: float, host_ps: int) -> PublishedStep:
    """A step as if compute were slower, and launching a layer took so long."""
    step = PublishedStep(
        model="a-model",
        name=name,
        source="made",
        architecture=LLAMA,
        plan=plan,
        device="h100",
        framework="megatron-core",
        npus_per_node=8,
        measured_s=1.0,
    )
    model = model_of(step)
    model = replace(
        model,
        device=slowed(model.device, factor),
        framework=replace(model.framework, host_layer_ps=host_ps),
    )
    return replace(step, measured_s=float(model.seconds([plan])[0]))


def steps(*sequences: int, factor: float = 1.0, host_ps: int = HOST_PS) -> list[PublishedStep]:
    return [
        measured(
            Plan.of_batch(tp=tp, dp=8 // tp, global_batch=32, sequence=sequence),
            f"{tp}-{sequence}",
            factor=factor,
            host_ps=host_ps,
        )
        for tp in (1, 8)
        for sequence in sequences
    ]


def measured_on(device: str) -> list[PublishedStep]:
    """A step of another device, as predicted there."""
    step = replace(steps(4096)[0], device=device)
    return [replace(step, measured_s=float(model_of(step).seconds([step.plan])[0]))]


def test_a_factor_is_found_again() -> None:
    found, _ = calibrate_steps(steps(16384, 32768, factor=1.3, host_ps=0))
    (machine,) = found.factors
    assert machine.factor == pytest.approx(1.3, rel=0.1)
    assert not found.notes


def test_a_calibration_is_written_read_and_used(tmp_path: Path) -> None:
    several = steps(16384, 32768, factor=1.1, host_ps=0)
    fitted, _ = calibrate_steps(several)
    path = tmp_path / "machine.toml"
    path.write_text(toml_text(replace(fitted, sources=("made.csv",))))
    read = read_model_calibration(path)
    assert read.factors[0].factor == pytest.approx(fitted.factors[0].factor, abs=1e-4)
    before = validate_published(several)
    after = validate_published(several, calibration=read)
    assert sum(abs(row.error) for row in after.rows) < sum(abs(row.error) for row in before.rows)


def test_no_measured_step_is_an_error() -> None:
    with pytest.raises(CalibrationError, match="no measured step"):
        calibrate_steps([])


def test_a_factor_beyond_reason_is_an_error() -> None:
    slow = replace(steps(4096)[0], measured_s=1e5)
    with pytest.raises(CalibrationError, match=r"made 1-4096 and those .* over 10 times"):
        calibrate_steps([slow])
    found, _ = calibrate_steps([slow, *measured_on("a100-80gb")])
    assert [each.device for each in found.factors] == ["A100-80GB"]
    assert "over 10 times" in found.notes[0]


def test_a_step_that_no_plan_expresses_is_left_out() -> None:
    good, other = steps(4096)[:1], steps(4096)[0]
    deep = replace(
        other, name="deep", plan=replace(other.plan, dp=1, pp=8, chunks=8, microbatches=32)
    )
    found, rows = calibrate_steps([*good, deep])
    assert [row.step.name for row in rows] == ["1-4096"]
    assert found.notes[0].startswith("made deep is left out: layout: 32 layers over 64")


def test_a_machine_that_was_not_measured_stays_as_it_is() -> None:
    calibration, _ = calibrate_steps(steps(2048))
    device, framework = read_device("b200"), read_framework("megatron-core")
    assert calibration.apply(device, framework, Precision.BF16) == (device, framework)


def gemms(folder: Path, *, rate: float = 700e12, start: float = 5e-6) -> Path:
    lines = ["m,n,k,tflops"]
    for m in (1024, 2048, 4096, 8192):
        flops = 2.0 * m * 4096 * 4096
        lines.append(f"{m},4096,4096,{flops / (flops / rate + start) / 1e12!r}")
    path = folder / "gemm.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rate_and_start_of_products_are_found_again(tmp_path: Path) -> None:
    found = fit_gemm_rates(gemms(tmp_path), read_device("h100"), Precision.BF16)
    assert found.rate == pytest.approx(700e12, rel=1e-6)
    assert found.start_ps == 5_000_000
    assert found.shapes == 4
    assert found.spread == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m,n,tflops\n1,2,3\n", "no column k"),
        ("m,n,k,tflops\n1024,1024,0,3\n", "row 2: k is '0': expected a number from 1e-06"),
        ("m,n,k,tflops\n1024,1024,1024,300\n", "1 shapes: expected at least 3"),
    ],
)
def test_a_wrong_table_of_products_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "gemm.csv"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=message):
        fit_gemm_rates(path, read_device("h100"), Precision.BF16)
