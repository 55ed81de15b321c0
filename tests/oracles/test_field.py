"""What people really bring (`reference/field`): every case gives its value, or the right line."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import Run

SCRIPTS: tuple[tuple[str, str, float], ...] = (
    ("branch_precision.sh", "--gpus 8", 2.752),
    ("branch_model.sh", "--gpus 8", 2.971),
    ("torchrun_gpus.sh", "", 1.724),
    ("self_default.sh", "", 3.282),
    ("positional.sh", "--gpus 16 --tp 2 --pp 1", 1.805),
    ("arithmetic.sh", "", 1.909),
)
LOGS: tuple[tuple[str, str, float], ...] = (
    (
        "maxtext.log",
        "--config llama-3-8b --gpus 8 --global-batch 8 --seq 8192 -t tpu-v5e",
        2.950,
    ),
    ("deepspeed_zero.log", "--config llama-3-8b --gpus 8 --global-batch 64 --seq 4096", 10.0),
    (
        "megatron_ds_seconds.log",
        "--config bloom-176b --gpus 384 --tp 4 --pp 12 --global-batch 64 --seq 2048 -t hgx-a100",
        105.1,
    ),
    ("hf_trainer.log", "--config llama-3-8b --gpus 8 --global-batch 64 --seq 4096", 10.0),
)


@pytest.fixture
def field(shared: Path) -> Path:
    folder = shared / "reference/field"
    if not folder.exists():
        pytest.skip("the reference material has no field cases")
    return folder


@pytest.mark.parametrize(("name", "flags", "seconds"), SCRIPTS)
def test_a_script_is_the_job_that_it_starts(
    run: Run, field: Path, name: str, flags: str, seconds: float
) -> None:
    code, out, err = run("simulate", field / "scripts" / name, *flags.split(), "-q", "--json", "-")
    assert code == 0, err
    assert json.loads(out)["step_time_s"] == pytest.approx(seconds, rel=0.01)


@pytest.mark.parametrize(("name", "flags", "seconds"), LOGS)
def test_a_log_is_read(run: Run, field: Path, name: str, flags: str, seconds: float) -> None:
    code, out, err = run("explain", field / "logs" / name, *flags.split(), "-q", "--json", "-")
    assert code == 0, err
    assert json.loads(out)["measured_s"] == pytest.approx(seconds, rel=0.002)


def explained(run: Run, path: Path, *flags: str) -> dict[str, Any]:
    code, out, err = run("explain", path, *flags, "-q", "--json", "-")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


LLAMA = ("--config", "llama-2-7b", "--gpus", "8", "--seq", "4096", "-t", "hgx-a100")


def test_a_step_above_the_peak_is_impossible(run: Run, field: Path) -> None:
    path = field / "logs/beyond_peak.log"
    flags = (*LLAMA, "--tp", "1", "--global-batch", "256")
    found = explained(run, path, *flags)
    assert found["verdict"] == "impossible"
    assert found["mfu"] == pytest.approx(1.19, abs=0.02)
    assert found["tokens_per_s"] == pytest.approx(8690, rel=0.01)
    code, out, _ = run("explain", path, *flags, "--check", "-q")
    assert code == 3
    assert "impossible, above the peak" in out.splitlines()[0]


def test_a_run_that_slows_down_is_not_steady(run: Run, field: Path) -> None:
    found = explained(run, field / "logs/drift.log", *LLAMA, "--tp", "2", "--global-batch", "64")
    assert found["verdict"] == "unsteady"
    assert found["trend_s"] == pytest.approx([14.08, 44.08], abs=0.1)


def test_a_slow_fabric_is_found_with_its_size(run: Run, field: Path) -> None:
    first = explained(run, field / "logs/slow_fabric.log")["suspects"][0]
    assert first["name"] == "slow-fabric"
    assert first["what"].startswith("fabric links carry 5.")
    assert first["explains"] == pytest.approx(1.0, abs=0.1)


def test_all_ranks_in_one_log_are_one_run(run: Run, field: Path) -> None:
    _, out, _ = run("inspect", field / "logs/titan_all_ranks.log")
    assert out.startswith("10,040 tokens/s per GPU")


def test_overlapping_steps_and_pointers_of_rocm_are_read(run: Run, field: Path) -> None:
    _, out, _ = run("inspect", field / "traces/overlapping_steps_rank0.json")
    assert out.startswith("100 ms per step")
    code, out, _ = run("inspect", field / "traces/hip_stream_rank0.json")
    assert code == 0
    assert "Cijk_Alik_Bljk_BBS_BH_MT128x128x32     0  800 us" in out


def test_configurations_are_read_or_named(run: Run, field: Path) -> None:
    _, out, _ = run("inspect", field / "configs/no_architectures.json")
    assert "6.738 billion parameters; 32 layers" in out
    _, out, _ = run("simulate", field / "other/maxtext.yml", "-q")
    assert out.startswith("maxtext.yml on 16 H100 (hgx-h100)   tp 1  dp 16")
    for command in ("inspect", "simulate"):
        code, _, err = run(command, field / "other/ds_zero3.json")
        assert code == 2
        assert "this looks like a configuration of DeepSpeed: give a model and this as its" in err
        assert err.count("\n") == 1
