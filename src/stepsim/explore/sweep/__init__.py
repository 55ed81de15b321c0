"""Sweeps: every combination of some axes, stored as it comes, continued where it stopped.

grid = Grid(axes=(parse_axis("fabric.bandwidth=100..800 Gbps:8"),))
study = Study(workload=load_workload(FILE), topology=load_topology("hgx-h100"), grid=grid)
run_sweep(study, "sweep.sqlite")
"""

from stepsim.base.executors import ExecutorKind
from stepsim.explore.sweep.run import run_sweep, swept
from stepsim.explore.sweep.study import ScenarioGroup, Study
from stepsim.files.axes import Axis, Grid, axis_of, make_axis, parse_axis
from stepsim.files.sweep_table import SweepProgress, SweepTable, open_for_reading

__all__ = [
    "Axis",
    "ExecutorKind",
    "Grid",
    "ScenarioGroup",
    "Study",
    "SweepProgress",
    "SweepTable",
    "axis_of",
    "make_axis",
    "open_for_reading",
    "parse_axis",
    "run_sweep",
    "swept",
]
