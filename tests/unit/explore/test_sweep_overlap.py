"""Sweeps say what overlap costs as `simulate` does, scenario by scenario."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from stepsim.base.structs import replace
from stepsim.explore.sweep import Grid, Study, open_for_reading, parse_axis, run_sweep
from stepsim.files.asked import read_inputs
from stepsim.files.sweep_table import SweepTable
from stepsim.network.topology.nested import with_values
from stepsim.step.prepared import prepare

DENSE: dict[str, Any] = {"npus": 64, "global_batch": 128, "sequence": 4096, "tp": 4, "pp": 4}
DEEPEP: dict[str, Any] = {"npus": 64, "global_batch": 256, "sequence": 4096, "ep": 8}
DEEPEP |= {"dispatch": "deepep", "microbatch_size": 1}


@pytest.mark.parametrize(
    ("model", "options"),
    [("llama-3-70b", DENSE), ("qwen3-30b-a3b", DEEPEP)],
    ids=["1f1b", "deepep"],
)
def test_a_sweep_takes_what_each_scenario_takes(
    model: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Also of a model whose rows are others on every network."""
    job = read_inputs(model, "hgx-h100", options | {"overlap_cost": True})
    grid = Grid(axes=(parse_axis("fabric.bandwidth=12.5,25,50,100 GB/s"),))
    study = Study(**asdict(job), grid=grid)
    run_sweep(study, tmp_path / "swept.sqlite", jobs=1)
    with open_for_reading(tmp_path / "swept.sqlite") as store:
        table = SweepTable(store=store)
        rows = table.by_value(table.axes[0])
    found = [row[1] for row in rows]
    networks = [
        with_values(job.topology, {"fabric.bandwidth": gb * 1e9}) for gb in (12.5, 25, 50, 100)
    ]
    steps = [prepare(replace(job, topology=each)).step_time_ps() for each in networks]
    assert found == pytest.approx(steps, rel=1e-9)
    assert sorted(steps, reverse=True) == steps
