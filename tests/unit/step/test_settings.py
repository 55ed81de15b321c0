"""Results record what was set, so that two of them can be compared."""

import json
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest
from helpers import Run

from stepsim import simulate
from stepsim.network.measured_times import CommTable
from stepsim.parallel.p2p import P2POptions
from stepsim.step.settings import changed_settings
from stepsim.workload.scaling import ComputeScale

DEFAULTS = {p.name: p.default for p in signature(simulate).parameters.values()}


def test_defaults_are_no_settings() -> None:
    assert changed_settings(DEFAULTS, DEFAULTS) == {}
    said = {"compute_scale": ComputeScale(), "p2p_options": P2POptions(), "algorithm": ()}
    assert changed_settings(said, DEFAULTS) == {}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("slow", "12:1.3", "12:1.3"),
        ("dp_overlap", True, "on"),
        ("tp_overlap", False, "off"),
        ("fused_factor", 0.8, "0.8"),
        ("algorithm", ["all_reduce=ring", "all_gather=ring"], "all_reduce=ring, all_gather=ring"),
        ("compute_scale", ComputeScale(forward=0.5), "forward 0.5"),
        ("compute_scale", ComputeScale(forward=2, input_grad=2, weight_grad=2), "2"),
        ("p2p_options", replace(P2POptions(), warmup_flush=True), "warmup_flush on"),
        ("schedule_options", {"group_size": 8}, "group_size 8"),
        ("comm_table", CommTable(source="h100.csv", curves=()), "h100.csv"),
        ("expert_load", [1.0, 3.0], "1.0, 3.0"),
    ],
)
def test_what_was_set_is_text(name: str, value: object, text: str) -> None:
    assert changed_settings({name: value}, DEFAULTS) == {name: text}


def test_every_argument_is_recorded_or_shown_by_the_report(moe: Path) -> None:
    """An argument that is added later must be one or the other."""
    unseen = {name for name in DEFAULTS if changed_settings({name: "x"}, DEFAULTS) == {}}
    report = simulate(moe, "ideal").report
    shown = {"workload", "topology", "plan", "schedule", "p2p", "contention", "activation_size"}
    by_plan = {"npus", "pp", "microbatches", "rank_order", "global_batch", "microbatch_size"}
    assert unseen == shown | by_plan | {"chunks", "fold_ranks", "progress"}
    assert all(hasattr(report, name) for name in shown - {"activation_size"})
    assert hasattr(report, "activation_bytes")


def test_settings_reach_results_and_differences(run: Run, moe: Path, tmp_path: Path) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    assert run("simulate", moe, "-q", "--json", a)[0] == 0
    out = run("simulate", moe, "-q", "--slow", "0:1.5", "--dp-overlap", "--json", b)[1]
    assert "settings   dp_overlap on; slow 0:1.5" in out
    assert json.loads(a.read_text())["settings"] == {}
    assert json.loads(b.read_text())["settings"] == {"dp_overlap": "on", "slow": "0:1.5"}
    explained = run("diff", a, b)[1]
    assert "slow        default -> 0:1.5" in explained
    assert "dp_overlap  default -> on" in explained
