"""Training logs beside their prediction: the verdict, and the suspects by what they explain."""

from pathlib import Path
from typing import Any

import pytest
from helpers import Run
from logs import BRIDGE, megatron_log, nanotron_log, titan_log

import stepsim
from stepsim.base.errors import PlanError, WorkloadError
from stepsim.files.traces.logged_jobs import read_logged_job
from stepsim.runs.explained import LogExplanation, LogVerdict, explained_log
from stepsim.runs.suspects import LogEvidence

_TITAN: dict[str, Any] = {
    "npus": 8,
    "tp": 1,
    "zero": 3,
    "global_batch": 8,
    "microbatch_size": 1,
    "sequence": 8192,
    "recompute": "operators",
    "framework": "torch-fsdp-compiled",
    "device": "h100",
}
"""The job of `titan_log`."""


def explained(tmp_path: Path, text: str, **options: object) -> LogExplanation:
    path = tmp_path / "train.log"
    path.write_text(text)
    return explained_log(path, options, topology="hgx-h100")


def rates(step_s: float) -> list[int]:
    """Lines of torchtitan for a step of so many seconds, the first one warms up."""
    return [900, *[round(8192 / step_s * x) for x in (1, 1.001, 0.999, 0.8, 1, 1.002)]]


def test_a_log_of_the_predicted_step_is_inside(tmp_path: Path) -> None:
    """What the log says is simulated as if it had been typed."""
    step = stepsim.simulate("llama-3.1-8b", "hgx-h100", **_TITAN).step_time_s
    found = explained(tmp_path, titan_log(rates(step)))
    assert found.predicted_s == pytest.approx(step)
    assert found.verdict is LogVerdict.INSIDE
    assert found.error == pytest.approx(0, abs=2e-3)
    assert (found.steps, found.warm_up, found.out_of_line) == (5, (1,), (5,))
    assert found.low_s is not None
    assert found.high_s is not None
    assert found.low_s < found.measured_s < found.high_s


def test_worth_is_a_simulation(tmp_path: Path) -> None:
    """Every suspect's step is the step that `simulate` gives; it is worth what it adds."""
    found = explained(tmp_path, nanotron_log(("9K", "5K", "5.1K", "4.9K")), device="h100")
    assert found.verdict is LogVerdict.SLOWER
    logged = read_logged_job(tmp_path / "train.log", "nanotron")
    assert logged.model is not None
    job: dict[str, Any] = {**logged.options, "device": "h100"}
    suspects = {each.name: each for each in found.suspects}
    changes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("recompute-full", {"recompute": "full"}),
        ("slow-clocks", {"compute_scale": 1.1}),
    )
    for name, options in changes:
        step = stepsim.simulate(logged.model, "hgx-h100", **(job | options)).step_time_s
        assert suspects[name].step_s == pytest.approx(step)
        assert suspects[name].worth == pytest.approx(step / found.predicted_s - 1)
    assert suspects["recompute-full"].is_contradicted, "the log says recompute_layer=False"
    solved = suspects["slow-gpu"]
    assert solved.is_solved
    step = stepsim.simulate(logged.model, "hgx-h100", **job, slow=f"0:{solved.factor}").step_time_s
    assert solved.step_s == pytest.approx(step)
    assert solved.explains == pytest.approx(1, abs=0.02)


def test_a_faster_log_has_suspects_that_save_time(tmp_path: Path) -> None:
    found = explained(tmp_path, megatron_log((9, 1.0, 1.0), recompute_granularity="full"))
    assert found.verdict is LogVerdict.FASTER
    assert {each.name for each in found.suspects} >= {"recompute-none", "precision-fp8"}
    assert all(each.worth < 0 for each in found.suspects)
    assert {each.evidence for each in found.suspects} == {LogEvidence.NOTHING}


def test_pipelines_and_experts_have_suspects_of_their_own(tmp_path: Path) -> None:
    """The schedule of a pipeline and the exchange of tokens are settings, too."""
    text = megatron_log(
        (9, 0.5, 0.5), num_experts=8, expert_model_parallel_size=8, expert_tensor_parallel_size=1
    )
    found = explained(tmp_path, text, pp=2)
    assert "schedule-interleaved" in {each.name for each in found.suspects}
    slow = explained(tmp_path, text.replace("(ms): 500.0", "(ms): 30000.0"), ep=8)
    assert {"experts-uneven", "host-bound"} <= {each.name for each in slow.suspects}


def test_options_come_before_the_log(tmp_path: Path) -> None:
    text = megatron_log((2, 2))
    as_logged = explained(tmp_path, text)
    other = explained(tmp_path, text, gpus=32, tp=4)
    assert "64 H100" in as_logged.job
    assert "on 32 H100 (hgx-h100): tp 4" in other.job
    assert other.predicted_s > as_logged.predicted_s


def test_a_plan_file_comes_before_the_log(tmp_path: Path) -> None:
    path, plan = tmp_path / "train.log", tmp_path / "plan.sh"
    path.write_text(megatron_log((2, 2)))
    plan.write_text(
        "--tensor-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 128 "
        "--seq-length 8192 --bf16 --sequence-parallel --use-distributed-optimizer"
    )
    found = explained_log(path, {"npus": 64}, plan_file=plan, topology="hgx-h100")
    assert "tp 8" in found.job


def test_what_is_missing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="the log does not say its model: expected --config"):
        explained(tmp_path, BRIDGE)
    path = tmp_path / "train.log"
    with pytest.raises(PlanError, match="the log does not say its GPUs: expected --gpus"):
        explained_log(path, {"global_batch": 8}, config="llama-3.1-8b")
    found = explained_log(path, {"gpus": 8, "tp": 8, "global_batch": 8}, config="llama-3.1-8b")
    assert "llama-3.1-8b on 8" in found.job


def test_a_log_that_counts_otherwise_is_told(tmp_path: Path) -> None:
    """843.5 TFLOP of a step and GPU are those of Llama 3 8B within a tenth."""
    assert not any("counts" in text for text in explained(tmp_path, megatron_log((2, 2))).warnings)
    found = explained(tmp_path, megatron_log((2, 2), num_layers=16))
    assert any("times as many operations in a step" in text for text in found.warnings)


def test_the_command_prints_the_answer_first(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(titan_log(rates(1.4)))
    code, out, _ = run("explain", path, "-q")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("1.4 s per step measured   ")
    assert " tokens/s per GPU   MFU " in lines[0]
    assert lines[0].endswith(" x the prediction")
    assert lines[1].startswith("llama-3.1-8b on 8 H100 (hgx-h100): tp 1")
    assert "median of 5 steps; left out: warm-up: 1; out of line: 5" in lines[2]
    assert "what could make the difference, simulated" in lines
    code, _, err = run("explain", tmp_path / "absent")
    assert (code, err.count("\n")) == (2, 1)


def test_python_has_it_too(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(titan_log(rates(1.4)))
    found = stepsim.explain_log(path, "hgx-h100", tp=2)
    assert "tp 2" in found.job
    assert list(found.to_frame()["name"]) == [each.name for each in found.suspects]


def test_timers_in_the_log_speak_for_a_suspect(tmp_path: Path) -> None:
    lines = megatron_log((9, 6.0, 6.0, 6.0)).splitlines()
    timers = (
        "(min, max) time across ranks (ms):\n"
        "    batch-generator ................: (3500.0, {batch})\n"
        "    forward-compute ................: (900.0, {compute})\n"
    )
    for batch, compute, cause in ((4000.0, 905.0, "data-loader"), (5.0, 2400.0, "slow-gpu")):
        told = timers.format(batch=batch, compute=compute)
        found = explained(tmp_path, "\n".join([*lines, told]))
        assert found.suspects[0].name == cause
        assert found.suspects[0].evidence is LogEvidence.FOR


def test_slow_steps_that_come_back_have_a_period(tmp_path: Path) -> None:
    step = explained(tmp_path, megatron_log((9, 6.0, 6.0))).predicted_s
    seconds = [9 if n == 0 else step + 6.0 if n % 25 == 0 else step for n in range(101)]
    found = explained(tmp_path, megatron_log(seconds))
    assert found.verdict is LogVerdict.INSIDE
    assert found.period is not None
    assert found.period.every == 25
    assert found.period.longer * step == pytest.approx(6.0, rel=1e-3)
    assert found.period.share == pytest.approx(6.0 / (25 * step + 6.0), rel=1e-3)
    uneven = [9 if n == 0 else step + 6.0 if n in (25, 40, 80) else step for n in range(101)]
    assert explained(tmp_path, megatron_log(uneven)).period is None


def test_a_log_that_grows_is_judged_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every time that it has grown the first line is printed, the whole answer in the end."""
    path = tmp_path / "train.log"
    growing = [megatron_log((9, *[seconds] * n)) for n, seconds in ((2, 2.0), (3, 30.0))]
    path.write_text(growing.pop(0))

    def slept(_: float) -> None:
        if growing:
            path.write_text(growing.pop(0))

    monkeypatch.setattr("stepsim.cli.explain.time.sleep", slept)
    code, out, err = run("explain", path, "--follow", "--check", "-q")
    assert code == 1, err
    lines = [line for line in out.splitlines() if "per step measured" in line]
    assert [line.partition(" per step")[0] for line in lines] == ["2 s", "30 s", "30 s"]
