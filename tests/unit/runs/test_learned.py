"""What traces of models tell: factors of kernels, and the interval that steps left out give."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Run
from scipy import stats

import stepsim
from stepsim.base.structs import replace
from stepsim.explain.as_profile import profile_of_step
from stepsim.files.accelerators import read_device
from stepsim.files.asked import read_inputs
from stepsim.files.calibrations import read_calibration, write_calibration
from stepsim.files.measured import load_profile
from stepsim.files.traces.kineto import read_kineto
from stepsim.files.traces.kineto_write import write_kineto
from stepsim.measured.calibration.calibration import Calibration
from stepsim.measured.profile.events import Profile
from stepsim.runs.learned import calibrate_profiles
from stepsim.workload.model.calibration import LEAST_JOBS, HeldStep, bands_of
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.device import Device
from stepsim.workload.model.evidence import Throughput

JOBS: dict[str, dict[str, Any]] = {
    "llama-2-7b": {"npus": 8, "tp": 1, "pp": 1, "microbatches": 1},
    "mixtral-8x7b": {"npus": 8, "tp": 1, "pp": 1, "ep": 8, "microbatches": 1},
    "llama-3.1-8b": {"npus": 8, "tp": 2, "pp": 2, "microbatches": 4},
    "qwen3-8b": {"npus": 8, "tp": 4, "microbatches": 1, "framework": "torch-fsdp-compiled"},
    "qwen3-30b-a3b": {"npus": 16, "tp": 1, "pp": 2, "ep": 8, "microbatches": 2, "chunks": 1},
    "gemma-2-9b": {"npus": 8, "tp": 2, "pp": 2, "microbatches": 4, "framework": "nanotron"},
    "mistral-7b": {"npus": 8, "tp": 2, "microbatches": 1, "framework": "megatron-bridge"},
    "nemotron-nano-9b-v2": {"npus": 8, "tp": 2, "microbatches": 1},
    "phi-4": {"npus": 8, "tp": 1, "pp": 4, "microbatches": 4, "chunks": 1, "precision": "fp8"},
}
DENSE = ("llama-2-7b", "llama-3.1-8b", "phi-4", "gemma-2-9b")


def slower_device() -> Device:
    """An H100 with 0.7 of its rate of attention and 0.8 of what kernels reach of its memory."""
    usual = read_device("h100")
    attention = {n: replace(rate, rate=0.7 * rate.rate) for n, rate in usual.attention.items()}
    return replace(
        usual,
        attention=attention,
        memory_share=0.8 * usual.memory_share,
    )


def traced(
    model: str, folder: Path, job: dict[str, Any] | None = None, **more: Any
) -> tuple[stepsim.Result, Profile]:
    """A simulated step, and its profile as it is read from the trace that was written of it."""
    result = stepsim.simulate(model, **(job or JOBS[model]), **more)
    write_kineto(profile_of_step(result.timeline, source=model, kernels=True), folder)
    return result, read_kineto(folder)


def held_out(
    jobs: dict[str, dict[str, Any]], folder: Path, device: Device
) -> tuple[Calibration, list[str]]:
    """What the traces of jobs on a device teach, each held against the others."""
    profiles = [traced(model, folder / model, job, device=device)[1] for model, job in jobs.items()]
    asked = [read_inputs(model, None, job) for model, job in jobs.items()]
    return calibrate_profiles(profiles, jobs=asked)


def learned(model: str, profile: Profile) -> Calibration:
    return calibrate_profiles([profile], jobs=[read_inputs(model, None, JOBS[model])])[0]


def factors(found: Calibration) -> dict[str, float]:
    return {each.kernels: each.factor for each in found.kernels}


@pytest.mark.parametrize("model", JOBS)
def test_a_trace_of_the_unchanged_device_teaches_nothing_new(model: str, tmp_path: Path) -> None:
    result, profile = traced(model, tmp_path / "run")
    found = learned(model, profile)
    assert {"products", "attention", "norms", "optimizer", "loss"} <= {*factors(found)}
    assert all(factor == pytest.approx(1, abs=0.005) for factor in factors(found).values())
    again = stepsim.simulate(model, **JOBS[model], calibration=saved(found, tmp_path))
    assert again.report.step_time_ps == pytest.approx(result.report.step_time_ps, rel=0.005)


def saved(found: Calibration, folder: Path) -> Path:
    write_calibration(found, folder / "machine.toml")
    return folder / "machine.toml"


@pytest.mark.parametrize("model", JOBS)
def test_a_trace_of_a_changed_device_gives_its_step(model: str, tmp_path: Path) -> None:
    result, profile = traced(
        model, tmp_path / "run", device=slower_device(), host_overhead="100 us"
    )
    found = learned(model, profile)
    assert factors(found)["attention"] == pytest.approx(1 / 0.7, rel=0.005)
    assert factors(found)["norms"] == pytest.approx(1 / 0.8, rel=0.005)
    assert factors(found)["optimizer"] == pytest.approx(1 / 0.8, rel=0.005)
    assert all(each.count >= 3 for each in found.kernels)
    calibrated = stepsim.simulate(model, **JOBS[model], calibration=saved(found, tmp_path))
    step_ps = result.report.step_time_ps
    assert calibrated.report.step_time_ps == pytest.approx(step_ps, rel=0.01)
    before = stepsim.simulate(model, **JOBS[model])
    assert before.report.step_time_ps != pytest.approx(step_ps, rel=0.02)


def test_a_file_keeps_what_was_learned(tmp_path: Path) -> None:
    _, profile = traced("llama-2-7b", tmp_path / "run")
    found = learned("llama-2-7b", profile)
    again = read_calibration(saved(found, tmp_path))
    attention = next(each for each in again.kernels if each.kernels == "attention")
    assert attention.rate == "583 TFLOP/s of long sequences"
    assert (attention.device, attention.framework) == ("H100", "megatron-core")


def test_what_was_learned_holds_for_its_machine_alone(tmp_path: Path) -> None:
    _, profile = traced("llama-2-7b", tmp_path / "run", device=slower_device())
    file = saved(learned("llama-2-7b", profile), tmp_path)
    other: dict[str, Any] = {"npus": 8, "global_batch": 8, "framework": "nanotron"}
    plain = stepsim.simulate("llama-2-7b", **other)
    again = stepsim.simulate("llama-2-7b", **other, calibration=file)
    assert compute_ps(again) == compute_ps(plain)
    assert any("no factor of H100, nanotron" in text for text in again.report.warnings)


def compute_ps(result: stepsim.Result) -> int:
    return result.report.breakdown_ps["compute"]


def test_a_trace_of_another_model_teaches_no_kernels(tmp_path: Path) -> None:
    _, profile = traced("llama-2-7b", tmp_path / "run")
    job = read_inputs("llama-3.1-8b", None, {"npus": 8, "tp": 1, "pp": 1, "global_batch": 64})
    found, _ = calibrate_profiles([profile], jobs=[job])
    assert not found.kernels
    assert "is it " in dict(found.unidentified)["kernels"]


def test_products_faster_than_the_device_are_refused(tmp_path: Path) -> None:
    _, profile = traced("llama-2-7b", tmp_path / "run", device="b200", topology="hgx-h100")
    found = learned("llama-2-7b", profile)
    assert "products" not in factors(found)
    assert "is it the device and the precision" in dict(found.unidentified)["rate of products"]


@pytest.mark.parametrize("changed", [False, True])
def test_steps_left_out_give_the_interval(changed: bool, tmp_path: Path) -> None:
    jobs = {model: {"npus": 8, "tp": 2, "microbatches": 1} for model in DENSE}
    device = slower_device() if changed else read_device("h100")
    found, notes = held_out(jobs, tmp_path, device)
    assert len(found.held) == len(DENSE)
    assert all(abs(step.error) < 0.01 for step in found.held)
    assert notes[-1].startswith("held against 4 traces of 4 jobs, each predicted from the other")
    assert read_calibration(saved(found, tmp_path)).held == found.held
    file = tmp_path / "machine.toml"
    job: dict[str, Any] = {"npus": 8, "tp": 4, "microbatches": 8}
    truth = stepsim.simulate("mistral-7b", **job, device=device).report.step_time_s
    rates, published = (
        stepsim.simulate("mistral-7b", **job, calibration=each).report.throughput
        for each in (file, None)
    )
    assert rates
    assert published
    (low_s, high_s), (least_s, most_s) = limits(rates), limits(published)
    assert high_s - low_s < (most_s - least_s) / 2
    assert low_s * 0.99 <= truth <= high_s * 1.01
    assert rates.range_of == "80 % of steps by the errors of 4 jobs that the calibration left out"
    assert "of the steps of" in published.range_of
    larger = stepsim.simulate("mistral-7b", npus=64, global_batch=64, calibration=file)
    assert larger.report.throughput
    assert larger.report.throughput.range_of == published.range_of
    assert any("step is larger" in text for text in larger.report.warnings)


def test_a_device_of_another_law_is_in_the_interval(tmp_path: Path) -> None:
    """Factors do not say that starts of products are longer: the steps left out show the error."""
    slower = slower_device()
    own = replace(slower.rate_of(Precision.BF16), rate=600e12, start_ps=9_000_000)
    device = replace(slower, rates={**slower.rates, Precision.BF16: own})
    size: dict[str, Any] = {"npus": 8, "global_batch": 8}
    jobs: dict[str, dict[str, Any]] = {
        "llama-2-7b": {**size, "tp": 1},
        "llama-3.1-8b": {**size, "tp": 8, "sequence": 1024},
        "gemma-2-9b": {**size, "tp": 2, "pp": 2, "sequence": 2048},
        "mistral-7b": {**size, "tp": 4},
        "phi-4": {**size, "tp": 1, "pp": 4},
    }
    found, _ = held_out(jobs, tmp_path, device)
    assert 0.005 < max(abs(step.error) for step in found.held) < 0.04
    file = saved(found, tmp_path)
    for job in ({**size, "tp": 2}, {**size, "tp": 8, "sequence": 1024}):
        truth = stepsim.simulate("qwen3-8b", **job, device=device).report.step_time_s
        rates = stepsim.simulate("qwen3-8b", **job, calibration=file).report.throughput
        assert rates is not None
        low_s, high_s = limits(rates)
        assert low_s <= truth <= high_s < 1.1 * low_s


def limits(rates: Throughput) -> tuple[float, float]:
    assert rates.low_s is not None
    assert rates.high_s is not None
    return rates.low_s, rates.high_s


def held(errors: Iterable[float], jobs: Iterable[str] | None = None) -> list[HeldStep]:
    every = [*errors]
    return [
        HeldStep(
            source=f"trace {number}",
            job=job,
            device="H100",
            framework="megatron-core",
            precision=Precision.BF16,
            experts=False,
            npus=8,
            sequence=4096,
            predicted_s=1 + error,
            measured_s=1.0,
        )
        for number, (error, job) in enumerate(
            zip(every, jobs or map(str, range(len(every))), strict=False)
        )
    ]


@pytest.mark.parametrize("count", [3, 4, 6, 10, 30])
def test_the_interval_is_that_of_a_further_normal_draw(count: int) -> None:
    errors = np.random.default_rng(count).normal(0.02, 0.05, count)
    (band,) = bands_of(held(errors.tolist()))
    logs = -np.log1p(errors)
    wide = stats.t.ppf(0.9, count - 1) * logs.std(ddof=1) * np.sqrt(1 + 1 / count)
    assert band.low == pytest.approx(np.exp(logs.mean() - wide), rel=2e-3)
    assert band.high == pytest.approx(np.exp(logs.mean() + wide), rel=2e-3)
    assert band.error == pytest.approx(np.abs(errors).mean())
    assert (band.runs, band.others, band.traced) == (count, count, True)


def test_an_interval_needs_jobs_of_one_kind() -> None:
    assert bands_of(held([0.1] * (LEAST_JOBS - 1))) == ()
    assert bands_of(held([0.1, 0.2, 0.3, 0.1], "aabb")) == ()
    mixed = held([0.1, 0.2, 0.3])
    assert bands_of([*mixed[:2], replace(mixed[2], experts=True)]) == ()


def test_the_command_learns_and_simulate_applies(tmp_path: Path, run: Run) -> None:
    traced("llama-2-7b", tmp_path / "run", device=slower_device())
    file, job = tmp_path / "machine.toml", "--npus 8 --tp 1 --global-batch 8"
    code, out, err = run(
        *f"calibrate trace {tmp_path / 'run'} --model llama-2-7b {job} -o {file}".split()
    )
    assert code == 0
    assert "attention     1.429      512  408.1 TFLOP/s of long sequences" in out
    assert "all traces are of one job" in err
    code, _, err = run(*f"simulate llama-2-7b {job} --calibration {file} -v".split())
    assert code == 0
    assert "attention 1.429" in err
    assert "held against 0 jobs" in err


def test_options_of_a_job_need_its_model(tmp_path: Path, run: Run) -> None:
    traced("llama-2-7b", tmp_path / "run")
    trace = f"calibrate trace {tmp_path / 'run'} -o {tmp_path / 'machine.toml'}"
    code, _, err = run(*f"{trace} --tp 2".split())
    assert code == 2
    assert "--model is missing: these options do nothing: leave out --tp" in err
    code, _, err = run(*f"{trace} --model llama-2-7b --model llama-2-7b".split())
    assert code == 2
    assert "--model: 2 for 1 traces: expected one, or one for each" in err


def test_unfused_attention_teaches_nothing_of_fused_attention(tmp_path: Path) -> None:
    _, profile = traced("llama-2-7b", tmp_path / "run", attention="unfused", sequence=1024)
    job = read_inputs("llama-2-7b", None, {**JOBS["llama-2-7b"], "sequence": 1024})
    found, _ = calibrate_profiles([profile], jobs=[job])
    assert "attention" not in factors(found)
    assert "fused in the prediction" in dict(found.unidentified)["rate of attention"]


def test_deepseeks_trace_teaches_eight_classes(shared: Path, tmp_path: Path) -> None:
    config = tmp_path / "four_layers.toml"
    config.write_text(
        'based_on = "deepseek-v3"\nnum_hidden_layers = 4\nfirst_k_dense_replace = 0\n'
        "num_nextn_predict_layers = 0\n"
    )
    asked = {"npus": 64, "ep": 64, "device": "h800", "global_batch": 64, "precision": "fp8"}
    asked["dispatch"] = "deepep_fp8"
    job = read_inputs(config, None, asked)
    trace = shared / "reference/profiles/kineto/deepseek_train.json.gz"
    found, _ = calibrate_profiles([load_profile(trace)], jobs=[job])
    expected = {"products", "products of experts", "attention", "norms", "activations"}
    assert expected < {*factors(found)}
    assert len(factors(found)) == 8
    assert all(0.7 < factors(found)[work] < 1.3 for work in expected)
    reasons = dict(found.unidentified)
    assert reasons["rate of optimizer"] == "no kernel of 2 predicted ones was recorded"
