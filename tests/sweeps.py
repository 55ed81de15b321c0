"""What tests of sweeps need: a small study, groups that are quick, interrupted or deadly."""

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from jobs import asked
from msgspec.structs import asdict

import stepsim
from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError
from stepsim.explore.sweep import Grid, ScenarioGroup, Study, open_for_reading, parse_axis
from stepsim.files.axes import AxisColumn
from stepsim.files.sweep_document import write_table
from stepsim.files.sweep_table import SweepTable

ROOT = Path(__file__).resolve().parents[1]
SMALL = ROOT / "workloads" / "gpt_tp4.txt"
AXES = ("fabric.bandwidth=100..800 Gbps:5", "microbatches=2,4,8", "compute_scale=0.5,1")


def study(*axes: str, breakdown: bool = False, **options: Any) -> Study:
    return Study(
        workload=stepsim.load_workload(SMALL),
        topology=stepsim.load_topology("hgx-h100"),
        grid=Grid(axes=tuple(map(parse_axis, axes or AXES))),
        options=asked(**options),
        breakdown=breakdown,
    )


class _Made(Study):
    """A study whose groups are made by a test."""

    make: Callable[..., ScenarioGroup]

    def group(self, number: int) -> ScenarioGroup:
        return self.make(study=self, settings=self.grid.settings(number))


def grouped(make: Callable[..., ScenarioGroup], asked: Study | None = None) -> Study:
    return _Made(**asdict(asked or study()), make=make)


class Alone(ScenarioGroup):
    """Scenarios that are simulated one by one."""

    _together = False


class Quick(ScenarioGroup):
    """Results made of the values themselves; fails for `failing` microbatches.

    With a `folder` it writes what it was asked for into `log` there; a file `stop` makes it raise
    KeyboardInterrupt, and a file `kill` makes it kill its process, once.
    """

    at_once: int = 3
    folder: str = ""
    failing: int = -1

    @property
    def microbatches(self) -> int:
        return int(self.settings.get("microbatches", 1))

    @property
    def chunk(self) -> int:
        return self.at_once

    def seconds(self, scenarios: int) -> float:
        return scenarios / self.at_once

    def evaluate(self, columns: Mapping[str, AxisColumn]) -> dict[str, list[Any]]:
        if self.microbatches == self.failing:
            raise PlanError(f"microbatches is {self.microbatches}: refused")
        if self.folder:
            self._obey(Path(self.folder), columns)
        bandwidth, scale = columns["fabric.bandwidth"], columns["compute_scale"]
        steps = (1e21 / bandwidth * self.microbatches * scale).astype(np.int64)
        return {
            "step_time_ps": steps.tolist(),
            "pipeline_time_ps": (steps // 2).tolist(),
            "bubble_fraction": (scale / 4).tolist(),
        }

    def _obey(self, folder: Path, columns: Mapping[str, AxisColumn]) -> None:
        with suppress(FileNotFoundError):  # of several workers the one that takes the file
            (folder / "kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if (folder / "stop").exists():
            raise KeyboardInterrupt
        with (folder / "log").open("a") as log:
            for row in zip(*(column.tolist() for column in columns.values()), strict=True):
                print(self.microbatches, *row, file=log)


class Wrong(Quick):
    """Groups with a fault that the second of them shows as soon as it is asked."""

    def total_bandwidth(self, columns: Mapping[str, AxisColumn]) -> Floats:
        if self.microbatches == 4:
            raise ZeroDivisionError("of our own making")
        return super().total_bandwidth(columns)


class WrongLater(Quick):
    """Groups with a fault that evaluating the second of them shows."""

    def evaluate(self, columns: Mapping[str, AxisColumn]) -> dict[str, list[Any]]:
        if self.microbatches == 4:
            raise ZeroDivisionError("of our own making")
        return super().evaluate(columns)


class Deadly(Quick):
    """Groups that no process survives."""

    def evaluate(self, columns: Mapping[str, AxisColumn]) -> dict[str, list[Any]]:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().evaluate(columns)


def exported(database: Path, suffix: str = ".csv") -> bytes:
    target = database.with_suffix(suffix)
    with open_for_reading(database) as store:
        write_table(SweepTable(store=store), target)
    return target.read_bytes()


def rows_of(database: Path) -> list[dict[str, Any]]:
    """What a sweep stored of each scenario, by the names of the columns of its table."""
    names = exported(database).decode().splitlines()[0].split(",")
    with open_for_reading(database) as store:
        (columns,) = SweepTable(store=store).pieces()
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
