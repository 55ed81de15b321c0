"""A model written as a SimAI text takes the same time when it is read back."""

from pathlib import Path
from typing import Any

import pytest

from stepsim import simulate
from stepsim.base.errors import PlanError
from stepsim.files.asked import read_inputs
from stepsim.files.simai.write import write_simai_text
from stepsim.step.job import job_of

APART: dict[str, Any] = {"dp_overlap": False, "microbatch_size": 1, "chunks": 1}
"""A text cannot say that gradients and parameters move beside compute, as models run by default."""


def write(path: Path, model: str, **options: Any) -> list[str]:
    job = read_inputs(model, "hgx-h100", options)
    return write_simai_text(job_of(job).given, path)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("llama-3-8b", {"tp": 4, "cuda_graph": True}),
        ("llama-3-8b", {"npus": 8, "zero": 0, "global_batch": 8}),
        ("llama-3-8b", {"tp": 2, "recompute": "full"}),
        ("gpt3-5b", {"tp": 8, "sequence_parallel": False, "cuda_graph": True}),
        ("mixtral-8x7b", {"ep": 8}),
    ],
)
def test_what_is_written_takes_the_same_picoseconds(
    model: str, options: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "workload.txt"
    usual = {"npus": 16, "tp": 1, "global_batch": 16, "sequence": 4096}
    options = {**usual, **options, **APART}
    write(path, model, **options)
    expected = simulate(model, "hgx-h100", **options).report
    found = simulate(path, "hgx-h100", microbatches=expected.microbatches).report
    assert found.npus == expected.npus
    assert found.step_time_ps == expected.step_time_ps


def test_stages_that_are_alike_keep_their_pipeline(tmp_path: Path) -> None:
    options: dict[str, Any] = {"npus": 32, "tp": 4, "pp": 4, "global_batch": 32, **APART}
    options["cuda_graph"] = True
    path = tmp_path / "workload.txt"
    notes = write(path, "llama-3-8b", **options)
    expected = simulate("llama-3-8b", "hgx-h100", **options).report
    found = simulate(path, "hgx-h100", microbatches=16).report
    assert found.pipeline_time_ps == expected.pipeline_time_ps
    assert found.step_time_ps == pytest.approx(expected.step_time_ps, rel=0.02)
    assert any("--microbatches 16" in note for note in notes)


def test_launches_that_the_format_cannot_say_are_told(tmp_path: Path) -> None:
    options: dict[str, Any] = {"npus": 16, "tp": 8, "global_batch": 16, "sequence": 2048, **APART}
    path = tmp_path / "workload.txt"
    assert any("launches are left out" in note for note in write(path, "llama-3-8b", **options))
    launched = simulate("llama-3-8b", "hgx-h100", **options).report
    found = simulate(path, "hgx-h100", microbatches=8).report
    assert found.step_time_ps < launched.step_time_ps


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"zero": 3}, "gathered beside compute"),
        ({"dp_overlap": True}, "gathered beside compute"),
        ({"cp": 2}, "cp or tp_comm_overlap"),
        ({"pp": 2, "layout": "20+12"}, "stages have 12 to 20 layers"),
    ],
)
def test_what_the_format_cannot_say_is_refused(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=words):
        write(tmp_path / "a.txt", "llama-3-8b", npus=16, tp=1, **{**APART, **options})
    assert not (tmp_path / "a.txt").exists()
