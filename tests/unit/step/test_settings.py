"""Results record what was set, so that two of them can be compared."""

import json
import re
from pathlib import Path

import pytest
from helpers import Run
from jobs import asked

from stepsim import simulate
from stepsim.network.measured_times import CommTable
from stepsim.options import OPTIONS, StepOptions
from stepsim.workload.scaling import ComputeScale


def test_defaults_are_no_settings() -> None:
    assert StepOptions().settings() == {}
    said = asked(algorithm=(), host_overhead="0 ns", slow=None)
    assert said.settings() == {}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("slow", "12:1.3", "12:1.3"),
        ("dp_overlap", True, "on"),
        ("algorithm", ["all_reduce=ring", "all_gather=ring"], "all_reduce=ring, all_gather=ring"),
        ("compute_scale", ComputeScale(forward=0.5), "forward=0.5"),
        ("host_overhead", 0.00025, "250 us"),
        ("dp_bucket", "25MB", "25 MB"),
        ("comm_table", CommTable(source="h100.csv", curves=()), "h100.csv"),
        ("expert_load", [1.0, 3.0], "1.0, 3.0"),
    ],
)
def test_what_was_set_is_text(name: str, value: object, text: str) -> None:
    assert asked(**{name: value}).settings() == {name: text}


def test_a_report_shows_what_is_not_recorded(moe: Path) -> None:
    step = simulate(moe, "ideal")
    report = step.report
    shown = {name for name, option in OPTIONS.items() if option.is_reported}
    by_plan = {"npus", "pp", "microbatches", "rank_order", "ep_layout", "global_batch"}
    of_models = {"tp", "cp", "ep", "device", "framework"}
    assert shown == by_plan | of_models | {"schedule", "chunks", "p2p", "contention"} | {
        "activation_size",
    }
    assert all(hasattr(report, name) for name in ("plan", "schedule", "p2p", "contention"))
    assert hasattr(step, "memory")


def test_settings_reach_results_and_differences(run: Run, moe: Path, tmp_path: Path) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    assert run("simulate", moe, "-q", "--json", a)[0] == 0
    out = run("simulate", moe, "-q", "--slow", "0:1.5", "--dp-overlap", "--json", b, "--full")[1]
    assert re.search("settings +dp_overlap on; slow 0:1.5", out)
    assert json.loads(a.read_text())["settings"] == {}
    assert json.loads(b.read_text())["settings"] == {"dp_overlap": "on", "slow": "0:1.5"}
    explained = run("diff", a, b)[1]
    assert "slow        default -> 0:1.5" in explained
    assert "dp_overlap  default -> on" in explained
