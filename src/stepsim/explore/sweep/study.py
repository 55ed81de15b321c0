"""What all scenarios of a sweep have in common, and how a worker receives it."""

import pickle
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from stepsim import __version__
from stepsim.base.digest import content_hash
from stepsim.base.quantities import Quantity, Value
from stepsim.explore.sweep.axes import ARGUMENT_AXES
from stepsim.explore.sweep.grid import Grid
from stepsim.explore.sweep.links import check_axis
from stepsim.files.reading import read_bytes
from stepsim.network.topology import Topology
from stepsim.parallel.schedules import options_of
from stepsim.workload.rows import Workload
from stepsim.workload.scaling import ComputeScale


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A workload, a topology, the arguments of `stepsim.simulate` that stay, and the grid.

    With `breakdown` the parts of the step time are kept of every scenario. Raises SweepError for
    axes that this topology does not have.
    """

    workload: Workload
    topology: Topology
    grid: Grid
    options: Mapping[str, Any] = field(default_factory=dict)
    breakdown: bool = False

    def __post_init__(self) -> None:
        for axis in self.grid.axes:
            check_axis(self.topology, axis)

    def arguments(self, settings: Mapping[str, Value]) -> dict[str, Any]:
        """Arguments of `stepsim.simulate` for values of axes, link and topology axes left out.

        Schedule options go to the schedules that have them, where the schedule is an axis.
        """
        arguments = dict(self.options)
        for name, value in settings.items():
            if name in ARGUMENT_AXES:
                arguments[_ARGUMENTS.get(name, name)] = _argument(name, value)
        if "schedule" in settings and arguments.get("schedule_options"):
            accepted = options_of(str(settings["schedule"]))
            chosen = arguments["schedule_options"].items()
            arguments["schedule_options"] = {k: v for k, v in chosen if k in accepted}
        return arguments


_LONGEST = 60
_ARGUMENTS = {"expert_skew": "expert_load"}
_UNITS = {Quantity.TIME: "ps", Quantity.SIZE: "B"}


def _argument(name: str, value: Value) -> Any:
    if name == "compute_scale":
        factor = float(value)
        return ComputeScale(forward=factor, input_grad=factor, weight_grad=factor)
    unit = _UNITS.get(ARGUMENT_AXES[name].quantity)
    return f"{value} {unit}" if unit else value


def identity(study: Study) -> dict[str, str]:
    """What must be the same for results to belong to one sweep, by what the user calls it."""
    shown = {
        "stepsim": __version__,
        "workload": f"{study.workload.source} {content_hash(study.workload)}",
        "topology": f"{study.topology.name} {content_hash(study.topology)}",
        "breakdown": "on" if study.breakdown else "off",
        "stages": str(_stages(study)),
    }
    for name, value in sorted(study.options.items()):
        shown[f"option {name}"] = _shown(value)
    shown["axes"] = ", ".join(axis.name for axis in study.grid.axes)
    for axis in study.grid.axes:
        ends = f"{axis.texts[0]} to {axis.texts[-1]}"
        shown[f"axis {axis.name}"] = f"{len(axis)} values, {ends} {content_hash(axis.texts)}"
    for name in _schedule_files(study):
        shown[f"file {name}"] = content_hash(read_bytes(Path(name)))
    return shown


def _stages(study: Study) -> int:
    """Pipeline stages of a job where they are no axis."""
    plan = study.options.get("plan")
    return int(plan.pp if plan else study.options.get("pp") or study.workload.made_for.pp)


def _schedule_files(study: Study) -> Iterator[str]:
    names = [str(study.options.get("schedule", ""))]
    names += [text for axis in study.grid.axes if axis.name == "schedule" for text in axis.texts]
    yield from (name for name in names if name.endswith(".csv"))


def _shown(value: object) -> str:
    """An option as messages show it, with the hash of its content where that may be more."""
    text = repr(value)
    if value is None or isinstance(value, str | int | float):
        return text
    return f"{text if len(text) <= _LONGEST else f'{text[:_LONGEST]} ...'} {content_hash(value)}"


def pack(document: object) -> bytes:
    """A document as a few kilobytes, small enough to go with every task."""
    return zlib.compress(pickle.dumps(document, protocol=5), level=1)


@lru_cache(maxsize=1)
def unpack(data: bytes) -> Any:
    """The document that was packed; made once per worker, not once per task."""
    return pickle.loads(zlib.decompress(data))
