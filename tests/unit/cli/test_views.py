"""Every form of run has every view: workloads, models, measured runs and profiles."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import Run

VIEWS = ("--plot", "--csv", "--trace", "--report", "--json", "--kineto", "--chakra")
SUFFIXES = (".png", ".csv", ".json.gz", ".html", ".json", "-kineto", "-chakra")
JOB = ("--npus", "16", "--pp", "4", "-m", "4")
Made = Callable[[str], list[str]]


@pytest.fixture
def source(workloads: Path, shared: Path, tmp_path: Path, run: Run) -> Made:
    """Arguments of `simulate` for a form of run; profiles without a file are made here."""

    def made(form: str) -> list[str]:
        text = str(workloads / "gpt_tp4.txt")
        if form in ("kineto", "chakra"):
            folder = str(tmp_path / form)
            assert run("simulate", text, *JOB, f"--{form}", folder)[0] == 0
            return [folder]
        profiles = shared / "reference" / "profiles"
        return {
            "SimAI text": [text, *JOB],
            "model": ["llama-3.2-1b", "--npus", "8", "--tp", "2", "--global-batch", "8"],
            "Megatron trace": [str(workloads / "measured" / "megatron_moe_rank0.txt")],
            "log of leaf modules": [str(workloads / "measured" / "llama_pp8_a40.txt")],
            "Nsight": [str(profiles / "nsys" / "mfu_2gpu_before.sqlite")],
            "NDTimeline": [str(profiles / "ndtimeline" / "trace-ST.parquet")],
        }[form]

    return made


@pytest.mark.parametrize(
    "form",
    [
        *("SimAI text", "model", "Megatron trace", "log of leaf modules"),
        *("kineto", "chakra", "Nsight", "NDTimeline"),
    ],
)
def test_every_form_has_every_view(form: str, source: Made, tmp_path: Path, run: Run) -> None:
    paths = [tmp_path / f"view{suffix}" for suffix in SUFFIXES]
    views = [str(each) for pair in zip(VIEWS, paths, strict=True) for each in pair]
    code, printed, said = run("simulate", *source(form), "-q", *views)
    assert (code, said) == (0, "")
    assert len(printed.splitlines()) > 3
    for path in paths:
        assert any(path.iterdir()) if path.is_dir() else path.stat().st_size > 100, path
    document = paths[VIEWS.index("--json")]
    other = tmp_path / "other.json"
    other.write_text(json.dumps(json.loads(document.read_text())))
    code, printed, said = run("diff", document, other)
    assert (code, said) == (0, "")
    assert "identical" in printed


def test_a_result_and_a_profile_are_not_compared(
    source: Made, workloads: Path, tmp_path: Path, run: Run
) -> None:
    step, profile = tmp_path / "step.json", tmp_path / "profile.json"
    assert run("simulate", workloads / "gpt_tp4.txt", "-q", "--json", step)[0] == 0
    assert run("simulate", *source("kineto"), "-q", "--json", profile)[0] == 0
    code, _, said = run("diff", step, profile)
    assert code == 2
    assert said.endswith("expected two results or two profiles, not one of each\n")


def test_a_difference_of_profiles_sums_up(workloads: Path, tmp_path: Path, run: Run) -> None:
    for name, slow in (("even", ()), ("slow", ("--slow", "5:1.5"))):
        text, folder = workloads / "gpt_tp4.txt", tmp_path / name
        assert run("simulate", text, *JOB, *slow, "--kineto", folder)[0] == 0
        assert run("simulate", folder, "-q", "--json", tmp_path / f"{name}.json")[0] == 0
    code, printed, _ = run("diff", tmp_path / "even.json", tmp_path / "slow.json")
    assert code == 0
    assert "idle" in printed
    assert "step time" in printed
