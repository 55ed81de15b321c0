"""What all scenarios of a sweep have in common, and how a worker receives it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from stepsim import __version__
from stepsim.base.digest import content_hash
from stepsim.base.errors import SweepError, TopologyError
from stepsim.base.option import Option
from stepsim.base.structs import Noun, replace
from stepsim.base.units import Value
from stepsim.explore.sweep.axes import Axis, Grid
from stepsim.files.accelerators import read_device
from stepsim.files.asked import with_axis_values
from stepsim.files.load import topology_of
from stepsim.files.reading import read_bytes
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import OVERSUBSCRIPTION, split_link
from stepsim.network.topology.nested import with_link, with_uplinks, with_values
from stepsim.options import StepOptions
from stepsim.parallel.schedules import needs_times
from stepsim.step.job import WorkSource, for_schedule
from stepsim.workload.rows import Workload

_DEFAULTS = StepOptions()


class Study(Noun):
    """A workload, a topology, the options that stay, and the grid.

    With `breakdown` the parts of the step time are kept of every scenario. With `own_machines`
    devices of an axis run in the machines that they ship in, as where one is asked for and no
    topology. Raises SweepError for axes that this topology does not have.
    """

    workload: WorkSource
    topology: Topology
    grid: Grid
    options: StepOptions = _DEFAULTS
    breakdown: bool = False
    own_machines: bool = False

    def __post_init__(self) -> None:
        names = {axis.name for axis in self.grid.axes}
        for axis in self.grid.axes:
            _check_axis(self.topology, axis)
            link, _, field = axis.name.rpartition(".")
            if field == OVERSUBSCRIPTION.name and f"{link}-up.bandwidth" in names:
                raise SweepError(f"{axis.name} and {link}-up.bandwidth are one number: sweep one")

    def network(self, settings: Mapping[str, Value]) -> Topology:
        """The network of scenarios with these values of axes, their numbers of links left out."""
        device = settings.get("device") if self.own_machines else None
        machine = read_device(str(device)).topology if device else None
        return topology_of(machine) if machine else self.topology

    def step_options(self, settings: Mapping[str, Value]) -> StepOptions:
        """The options of a scenario for values of axes, link and topology axes left out.

        Schedule options go to the schedules that have them, where the schedule is an axis.
        """
        options = self.options
        if "schedule" in settings:
            options = for_schedule(options, str(settings["schedule"]))
        return with_axis_values(options, settings)

    def job(self, scenario: int) -> tuple[WorkSource, Topology, StepOptions]:
        """What a scenario simulates; axes of anything else change nothing of it."""
        values: dict[str, Any] = self.grid.parsed(scenario)
        network = with_values(self.network(values), values)
        return self.workload, network, self.step_options(values)

    def adds_up(self, settings: Mapping[str, Value]) -> bool:
        """Whether many scenarios can be evaluated together.

        Their order is then the same at all prices, communication slows no compute, and no
        memory is asked for.
        """
        schedule = settings.get("schedule", self.options.schedule)
        overlap = settings.get("overlap_cost", self.options.overlap_cost)
        remembers = self.options.activation_size_bytes is not None
        searches = isinstance(schedule, str) and needs_times(schedule)
        return not (overlap or remembers or searches)


def _check_axis(topology: Topology, axis: Axis) -> None:
    """Raise the error that a value of a link axis would cause on this topology."""
    name, field = split_link(axis.name)
    try:
        if not field:
            with_uplinks(topology, {axis.name: 1.0})
            return
        with_link(topology, name)
    except TopologyError as error:
        raise SweepError(str(error)) from None
    link = next(link for link in topology.link_classes if link.name == name)
    for value in axis.values:
        replace(link, **cast(Any, {field.attribute: value}))


def identity(study: Study) -> dict[str, str]:
    """What must be the same for results to belong to one sweep, by what the user calls it."""
    shown = {
        "stepsim": __version__,
        "workload": f"{study.workload.source} {content_hash(study.workload)}",
        "topology": f"{study.topology.name} {content_hash(study.topology)}",
        "breakdown": "on" if study.breakdown else "off",
        "stages": str(_stages(study)),
    }
    for option in study.options.changed():
        shown[f"option {option.name}"] = _shown(option, getattr(study.options, option.field))
    if study.own_machines and any(axis.name == "device" for axis in study.grid.axes):
        shown["machines"] = "those of the devices"
    shown["axes"] = ", ".join(axis.name for axis in study.grid.axes)
    for axis in study.grid.axes:
        ends = f"{axis.texts[0]} to {axis.texts[-1]}"
        shown[f"axis {axis.name}"] = f"{len(axis)} values, {ends} {content_hash(axis.texts)}"
    for name in _schedule_files(study):
        shown[f"file {name}"] = content_hash(read_bytes(Path(name)))
    return shown


def _stages(study: Study) -> int:
    """Pipeline stages of a job where they are no axis."""
    own = study.workload.degrees["pp"] if isinstance(study.workload, Workload) else 1
    return study.options.pp or own


def _schedule_files(study: Study) -> Iterator[str]:
    names = [text for axis in study.grid.axes if axis.name == "schedule" for text in axis.texts]
    yield from (name for name in names if name.endswith(".csv"))


def _shown(option: Option, value: object) -> str:
    """An option as messages show it, with the hash of its content where that may be more."""
    text = option.text(value)
    return text if isinstance(value, str | int | float) else f"{text} {content_hash(value)}"
