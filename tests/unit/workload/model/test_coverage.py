"""What predictions were held against: a record, which list, page and printed errors agree with."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from helpers import Run

from stepsim import simulate
from stepsim.files.accelerators import (
    device_names,
    framework_names,
    read_device,
    read_framework,
    read_held,
)
from stepsim.files.load import public_names, read_model
from stepsim.files.model_steps import PublishedStep, read_published_steps
from stepsim.runs.published import model_of, simulated
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.coverage import (
    HeldAgainst,
    HeldRuns,
    Nearness,
    coverage_of,
    held_of,
)

HELD = read_held()
FRAMEWORKS = [read_framework(name) for name in framework_names()]
DEVICES = [read_device(name) for name in device_names()]
ROOT = Path(__file__).parents[4]
JOB: dict[str, Any] = {"npus": 16, "tp": 4, "global_batch": 32, "sequence": 2048}


def public_steps() -> Sequence[PublishedStep]:
    """Published runs that are in the repository."""
    return read_published_steps(ROOT / "benchmarks" / "public_steps.csv")[0]


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_the_errors_of_a_step_are_those_of_the_record(framework: Any) -> None:
    for device in DEVICES:
        for kind in product((False, True), repeat=2):
            rows = [
                row
                for row in HELD
                if framework.name in row.frameworks.split()
                and (row.device, row.experts, row.mixes) == (device.name, *kind)
            ]
            bands = [
                band
                for band in framework.errors
                if band.runs and (band.device, band.sparse, band.mixes) == (device.name, *kind)
            ]
            found = HeldAgainst.of(rows)
            assert found.runs == sum(band.runs for band in bands), (device.name, kind)
            for band in bands:
                assert found.error == pytest.approx(band.error, abs=1e-3)
                assert {row.source for row in rows} == set(band.source.split(", "))


def test_a_model_is_unknown_on_a_device_where_no_step_prints_an_error() -> None:
    bands = [band for each in FRAMEWORKS for band in each.errors if band.runs]
    known = {(band.device, band.sparse, band.mixes) for band in bands}
    for name in public_names():
        architecture = read_model(name).architecture
        for device in DEVICES:
            found = coverage_of(architecture, device.name, HELD)
            kind = architecture.is_sparse, architecture.mixes
            printed = (device.name, *kind) in known
            assert (found.held.error is not None) is printed, (name, device.name)
            assert (found.nearness is not Nearness.NONE) is printed


def row(architecture: Architecture, **changes: Any) -> HeldRuns:
    """A run of a model on H100."""
    fields: dict[str, Any] = {
        "frameworks": "megatron-core",
        "source": "one",
        "model": architecture.name,
        "device": "H100",
        "generation": "hopper",
        "precision": Precision.BF16,
        "experts": architecture.is_sparse,
        "parameters": architecture.parameters(),
        "runs": 1,
        "mean": 0.1,
        "largest": 0.1,
    }
    return HeldRuns(**fields | changes)


def test_the_nearest_runs_are_taken() -> None:
    model = read_model("llama-3-8b").architecture
    own = row(model)
    alike = row(model, model="other", parameters=round(model.parameters() * 1.5), mean=0.2)
    far = row(model, model="another", parameters=model.parameters() * 9, mean=0.3)
    sparse = row(model, model="sparse", experts=True)
    rows = [sparse, far, alike, own]
    for nearness, error in (
        (Nearness.SAME, 0.1),
        (Nearness.ALIKE, 0.2),
        (Nearness.KIND, 0.3),
        (Nearness.NONE, None),
    ):
        found = coverage_of(model, "H100", rows)
        assert (found.nearness, found.held.error) == (nearness, error)
        assert coverage_of(model, "B200", rows).nearness is Nearness.NONE
        rows.pop()
    assert held_of(model, [own, alike, sparse]).runs == 1


def test_runs_are_counted_and_their_errors_weighted() -> None:
    model = read_model("llama-3-8b").architecture
    found = HeldAgainst.of([row(model, runs=3, mean=0.1), row(model, mean=0.5, largest=0.5)])
    assert (found.runs, found.largest) == (4, 0.5)
    assert found.error == pytest.approx(0.2)
    assert HeldAgainst.of([]) == HeldAgainst(runs=0, error=None, largest=None)


def test_of_layers_that_no_run_has_nothing_is_known() -> None:
    hybrid = read_model("nemotron-h-56b").architecture
    assert coverage_of(hybrid, "H100", HELD).nearness is Nearness.NONE
    assert held_of(hybrid, HELD).error is None


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_a_model_runs_on_every_device_in_its_machine(device: Any) -> None:
    result = simulate("llama-3-8b", device=device.name, **JOB)
    rates = result.report.throughput
    assert rates is not None
    assert result.report.topology == device.topology
    assert 0 < rates.mfu < 1
    said = any("was held against predictions" in note for note in map(str, result.report.findings))
    told = any(row.generation == device.generation for row in HELD)
    assert said is not told, "a step says so where nothing was held against it"
    assert (rates.error is not None) is any(
        (each.device, each.experts) == (device.name, False)
        for each in HELD
        if rates.framework in each.frameworks.split()
    )


@pytest.mark.parametrize(
    ("device", "precision", "has"),
    [
        ("v100", "bf16", "fp16"),
        ("v100", "fp8", "fp16"),
        ("tpu-v5e", "fp8", "bf16"),
        ("tpu-v6e", "fp16", "bf16"),
        ("tpu-v7x", "nvfp4", "bf16, fp8"),
        ("mi325x", "mxfp8", "bf16, fp16, fp8"),
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
def test_the_record_has_the_error_of_a_public_run(step: PublishedStep) -> None:
    """No constant was set on it: the error is that of a machine whose rates are derived."""
    assert step.measured_s
    error = abs(simulated(step, model_of(step)).step_time_ps / 1e12 / step.measured_s - 1)
    (found,) = (
        each
        for each in HELD
        if (each.source, each.model, each.device)
        == (step.source, step.model, read_device(step.device).name)
    )
    again = "run python benchmarks/model_constants.py ../shared --held"
    assert error <= found.largest + 1e-3, again
    assert found.runs > 1 or error == pytest.approx(found.mean, abs=1e-3), again
    assert error < 0.4
