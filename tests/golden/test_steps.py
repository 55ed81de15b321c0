"""Step time and event count of every shipped workload on every shipped topology.

A change here is a change of the model: say in the commit what changed and why.
"""

import json
from pathlib import Path

import pytest

from stepsim.files.asked import read_inputs
from stepsim.files.reading import topology_names
from stepsim.step.prepared import prepare

GOLDEN = Path(__file__).with_name("steps.json")
CASES = [
    (workload, topology)
    for workload in ("gpt_1024", "gpt_tp4", "moe_128")
    for topology in topology_names()
]


def measure(workloads: Path, workload: str, topology: str) -> dict[str, int]:
    found = prepare(read_inputs(workloads / f"{workload}.txt", topology, {})).timeline()
    return {"step_time_ps": found.step_time_ps, "tasks": sum(map(len, found.flat.programs))}


@pytest.mark.parametrize(("workload", "topology"), CASES)
def test_steps_are_as_recorded(workload: str, topology: str, workloads: Path) -> None:
    recorded = json.loads(GOLDEN.read_text())
    assert measure(workloads, workload, topology) == recorded[f"{workload} on {topology}"]


if __name__ == "__main__":
    folder = Path(__file__).parents[2] / "workloads"
    steps = {f"{w} on {t}": measure(folder, w, t) for w, t in CASES}
    GOLDEN.write_text(json.dumps(steps, indent=1) + "\n")
