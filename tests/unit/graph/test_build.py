"""Graphs of one schedule share what depends on it alone, and nothing else."""

from pathlib import Path
from typing import Any

from stepsim.files.load import load_topology, load_workload
from stepsim.graph.build import TaskGraph
from stepsim.options import StepOptions
from stepsim.step.simulate import prepare, simulate_step


def test_plans_of_one_schedule_share_their_segments(moe: Path) -> None:
    workload, topology = load_workload(moe), load_topology("hgx-h100")

    def graph(**options: Any) -> TaskGraph:
        return prepare(workload, topology, StepOptions(microbatches=8, **options)).graph

    first, larger, overlapped = graph(), graph(npus=256), graph(dp_overlap=True)
    assert first.plan.dp != larger.plan.dp
    assert [a.shape for a in first.programs] == [b.shape for b in larger.programs]
    assert all(
        a.shape is not b.shape for a, b in zip(first.programs, overlapped.programs, strict=True)
    )
    slower = graph(host_overhead_ps=7)
    assert first.programs[0].shape is slower.programs[0].shape
    assert first.programs[0] is not slower.programs[0]


def test_a_step_does_not_remember_those_before_it(moe: Path) -> None:
    """Steps of one schedule with other work, asked for in any order, take what they take alone."""
    workload, topology = load_workload(moe), load_topology("hgx-h100")
    asked = [
        StepOptions(microbatches=8, host_overhead_ps=ps) for ps in (0, 5_000_000, 0, 5_000_000)
    ]
    first, second, third, fourth = (
        simulate_step(workload, topology, options).report for options in asked
    )
    assert first.step_time_ps == third.step_time_ps < second.step_time_ps == fourth.step_time_ps
    assert first.mean_breakdown_ps() == third.mean_breakdown_ps()
