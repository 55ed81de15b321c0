"""Every benchmark that is a command of its own still runs; `pytest benchmarks --small` only."""

import ast
import os
import runpy
import sys
from pathlib import Path

import pytest
import ratios
from helpers import few

HERE = Path(__file__).parent
ROOT = HERE.parent
SHARED = Path(os.environ.get("STEPSIM_SHARED", ROOT.parent / "shared"))
MEASURED = SHARED / "reference" / "measured"

PRINTED = {
    "large_profiles": "| 2 | 1,200 |",
    "performance": "| scenarios/s, with the breakdown |",
    "ratios": "| sweep of 9 bandwidths to a database |",
    "speed": "| gpt_1024, 131072 NPUs |",
    "sweep_times": "two workers:",
    "trace_times": "step.json.gz:",
    "dispatch_times": "hybridep H100, 64 ranks",
    "interleaving": "| interleaved:8 at 100 Gbps, overlap | step |",
    "accuracy_cards": "| mb-card-pretrain | 11 |",
    "accuracy_collectives": "| no | aware | Switch | direct | all |",
    "accuracy_context": "| usp40 | 65,536 | 8 | ring |",
    "accuracy_kernels": "| simumax | experts, weight gradient | B200 |",
    "accuracy_memory": "| bigscience | 27 | 27 |",
    "accuracy_models": "stepsim inspect nanotron",
    "accuracy_nccl": "## Sizes between",
    "accuracy_order": "| vtrain",
    "accuracy_overlap": "## Published kernels",
    "accuracy_releases": "| other models |",
    "accuracy_runs": "## Logs of leaf modules",
    "model_constants": "hopper                    sustained",
    "published_plans": "| llama3-70b, ",
    "stragglers": "| replay of every step |",
    "step_size": "gpt_tp4.txt",
    "zero_bubble": "largest difference",
}
"""What each command prints near its end."""

DATA = {
    "accuracy_cards": SHARED / "reference" / "steps" / "cards_dev.csv",
    "accuracy_collectives": SHARED / "reference" / "collectives" / "astra_sim_1d.csv",
    "accuracy_context": SHARED / "reference" / "batches" / "context_parallel.csv",
    "accuracy_kernels": SHARED,
    "accuracy_memory": SHARED / "reference" / "steps" / "dev.csv",
    "accuracy_models": SHARED,
    "accuracy_nccl": SHARED / "reference",
    "accuracy_order": SHARED / "reference" / "steps" / "dev.csv",
    "accuracy_overlap": SHARED / "reference" / "overlap",
    "accuracy_releases": SHARED / "reference" / "steps" / "releases.csv",
    "accuracy_runs": SHARED,
    "dispatch_times": SHARED / "reference" / "kernels" / "moe_dispatch.csv",
    "model_constants": SHARED,
    "published_plans": SHARED / "reference" / "steps" / "published_plans.csv",
    "stragglers": SHARED / "reference" / "profiles" / "ndtimeline",
    "zero_bubble": MEASURED / "zero_bubble.csv",
}
"""Reference material that a command reads."""

PAGES = {
    "interleaving": ("interleaving.md", 10),
    "accuracy_nccl": ("nccl.md", 8),
    "accuracy_overlap": ("overlap.md", 25),
    "zero_bubble": ("zero_bubble.md", 4),
}
"""Commands that print rows of a page of the docs also at a small size, and how many."""


def output(name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> str:
    """What a command prints."""
    data = [str(DATA[name])] if name in DATA else []
    monkeypatch.setattr(sys, "argv", [name, "--small", *data])
    runpy.run_path(str(HERE / f"{name}.py"), run_name="__main__")
    return capfd.readouterr().out


def test_every_command_is_here() -> None:
    commands = {path.stem for path in HERE.glob("*.py") if "__main__" in path.read_text()}
    assert commands - {Path(__file__).stem} == set(PRINTED)


def test_ratios_stand_beside_those_of_the_page_or_take_their_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("| a | 1.00 |\n| a b | 2.00 | 30 |\n")
    monkeypatch.setattr(ratios, "PAGE", page)
    for fill in ([], ["--fill"]):
        monkeypatch.setattr(sys, "argv", ["ratios", *fill])
        ratios.tell("a b", "4.00", "50")
        ratios.tell("c", "6.00")
    assert capsys.readouterr().out == "| a b | 4.00 | 50 | 2.00, 30 |\n| c | 6.00 |  |\n" * 2
    assert page.read_text() == "| a | 1.00 |\n| a b | 4.00 | 50 |\n"


@pytest.mark.parametrize("name", PRINTED)
def test_a_command_runs_from_anywhere(name: str) -> None:
    """What tests share is not on its path."""
    tree = ast.parse((HERE / f"{name}.py").read_text())
    imported = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    assert not imported & {path.stem for path in (ROOT / "tests").glob("*.py")}


LONG = {"ratios", "accuracy_kernels", "accuracy_runs", "sweep_times"}
"""Commands that take many seconds even on little: they run with the slow tests."""


@pytest.mark.parametrize("name", few(PRINTED, *(PRINTED.keys() - LONG)))
def test_command(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    if not request.config.getoption("--small"):
        pytest.skip("takes long: with --small only")
    if name in DATA and not DATA[name].exists():
        pytest.skip(f"reference material not found: {DATA[name]} (set STEPSIM_SHARED)")
    printed = output(name, monkeypatch, capfd)
    assert PRINTED[name] in printed
    if name in PAGES:
        page, least = PAGES[name]
        shown = set((ROOT / "docs" / page).read_text().splitlines())
        rows = [line for line in printed.splitlines() if line.startswith("| ")]
        assert len(rows) >= least
        assert not [row for row in rows if row not in shown and not row.startswith("| all ")]
