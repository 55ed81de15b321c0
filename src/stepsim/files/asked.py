"""Options as people type them: texts with units, names, numbers, files to read.

The smallest of these files is the expert load: the tokens of each expert, a number a line; `#`
begins a comment.
"""

from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Union, cast

from stepsim.base.errors import PlanError, WorkloadError
from stepsim.base.option import Option
from stepsim.base.structs import File, Names, Noun, Values, replace
from stepsim.base.units import Value
from stepsim.files.expert_counts import is_expert_counts, read_expert_counts, read_expert_load
from stepsim.files.load import (
    infinite,
    is_model,
    load_work,
    shadowed,
    topology_of,
    with_numbers,
)
from stepsim.files.reading import DEFAULT_FRAMEWORK, DEFAULT_TOPOLOGY
from stepsim.files.traces.forms import is_recorded
from stepsim.network.topology import Topology
from stepsim.options import ALIASES, OPTIONS, StepOptions
from stepsim.parallel.schedules import Schedule
from stepsim.workload.expert_load import (
    ExpertCounts,
    ExpertLaw,
    ExpertLoad,
    ExpertSkew,
    is_expert_law,
    parse_expert_law,
)
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.model import AskedOptions, Model, Unread
from stepsim.workload.rows import Workload

if TYPE_CHECKING:
    from stepsim.files.shell.words import Environment
    from stepsim.measured.calibration.calibration import Calibration
    from stepsim.measured.work import RecordedWork
    from stepsim.network.measured_times import CommTable
    from stepsim.network.topology.network import TopologyLike
    from stepsim.workload.model.calibration import ModelCalibration
    from stepsim.workload.model.device import Device


def read_options(
    typed: Mapping[str, object], *, comm_source: str = ""
) -> tuple[StepOptions, list[str]]:
    """The options of what a person typed, by name, and what was noticed in the files they name.

    None stands for the default. `comm_source` chooses curves of a comm_table.
    Raises PlanError naming the option at fault, and the errors of the files' readers.
    """
    notes: list[str] = []
    fields: Values = {}
    given = _given(typed)
    for name, value in given.items():
        option = OPTIONS[name]
        fields[option.field] = _read(option, value, comm_source, notes)
    if fields.get("schedule") == OPTIONS["schedule"].default:
        fields.setdefault("chunks", 1)  # who names it wants no virtual stages
    calibration = fields.get("calibration")
    is_traced = calibration and not OPTIONS["calibration"].holds(calibration)
    traced = fields.pop("calibration") if is_traced else None
    if comm_source and not fields.get("comm_table"):
        raise PlanError("--comm-source chooses curves of a --comm-table: name one")
    options = StepOptions(**fields)
    if traced is None:
        return options, notes
    from stepsim.measured.calibration.applied import with_calibration, workload_notes

    if options.comm_table and traced.comm_table():
        notes.append("--comm-table replaces the calibration's collectives and messages")
    named = given.get("calibration")
    file = str(named) if isinstance(named, File) else ""
    return with_calibration(options, traced, file), [*workload_notes(traced), *notes]


def _given(typed: Mapping[str, object]) -> AskedOptions:
    """What a person typed, by the options' own names, without what stands for the default.

    Raises PlanError for an option that does not exist or is given twice.
    """
    found: AskedOptions = {}
    for given, value in typed.items():
        name = ALIASES.get(given, given)
        if name != given and name in typed:
            raise PlanError(f"{given} and {name} are one option: give one of them")
        if name not in OPTIONS:
            raise PlanError(f"unknown option {name!r}: expected one of {', '.join(OPTIONS)}")
        if value is not None and not (isinstance(value, list | tuple) and not value):
            found[name] = value
    return found


def with_axis_values(options: StepOptions, values: Mapping[str, Value]) -> StepOptions:
    """The options with values of axes, by name: picoseconds, bytes, factors, names.

    Names of anything else are passed over.
    """
    fields: Values = {}
    for name, value in values.items():
        if name in OPTIONS:
            option = OPTIONS[name]
            named = option.read or option.offers
            fields[option.field] = _read(option, str(value), "", []) if named else value
    return replace(options, **fields)


WorkSource = Union[Workload, Model, "RecordedWork"]
"""What a step is made of: a workload, a model that becomes one under a plan on a device, or a
recorded run that becomes one in some order."""


class StepInputs(Noun, kw_only=False):
    """What is asked of a step: its workload, a network, options, and what was assumed before."""

    workload: WorkSource
    topology: Topology
    options: StepOptions = StepOptions()
    notes: Names = ()

    @property
    def model(self) -> Model:
        """The workload, where it is a model; raises PlanError for what is none."""
        if not isinstance(self.workload, Model):
            raise PlanError(
                f"{self.workload.source} has one plan and no operators: expected a model"
            )
        return self.workload

    def identity(self) -> dict[str, str]:
        """What must be the same for results to belong together, by what the user calls it.

        Contents are hashes, those of options only where their text may not say all.
        """
        from stepsim.base.digest import content_hash  # of studies alone: a step needs no hashlib

        shown = {
            "workload": f"{self.workload.source} {content_hash(self.workload)}",
            "topology": f"{self.topology.name} {content_hash(self.topology)}",
        }
        for option in self.options.changed():
            value = getattr(self.options, option.field)
            more = "" if isinstance(value, str | int | float) else f" {content_hash(value)}"
            shown[f"option {option.name}"] = f"{option.text(value)}{more}"
        return shown

    def asking(self, *said: str, **options: Any) -> Self:
        """The same with some options changed, and what is `said` of them."""
        changed = replace(self.options, **options)
        return replace(self, options=changed, notes=(*self.notes, *said))


def read_inputs(
    workload: WorkSource | File,
    topology: "TopologyLike | None",
    typed: Mapping[str, object],
    *,
    comm_source: str = "",
    strict: bool = False,
    numbers: Mapping[str, object] = {},
    environment: Mapping[str, str] = {},
) -> StepInputs:
    """Everything that a person named, read; raises the errors of the readers.

    `numbers` replace those of the topology, see `with_numbers`; `environment` is a script's. A
    recorded run has its own network, order and host time where nobody names others.
    """
    work, given = _opened(workload, _given(typed), strict=strict, environment=environment)
    recorded = None if isinstance(work, Workload | Model) else work
    topology = recorded.topology if recorded and topology is None else topology
    asked = {**work.asked, **given} if isinstance(work, Model) else {}
    device: Any = asked.get("device")  # of the compute times of a file none is known
    device = None if device is None else _read(OPTIONS["device"], device, "", [])
    network, assumed = _topology_or_default(topology, device)
    named = {"model": workload, "topology": topology, **given}
    for kind in ("model", "topology", "device", "framework"):
        assumed += shadowed(kind, named.get(kind))
    if numbers:
        network = with_numbers(network, numbers)
        bandwidths = {f"{link.name}.bandwidth": link.bandwidth for link in network.link_classes}
        assumed += infinite(name for name in numbers if bandwidths.get(name) == inf)
    if isinstance(work, Model):
        given, said = _asked_of(work, network, device, given)
        assumed += said
    options, noticed = read_options(given, comm_source=comm_source)
    if recorded:
        names = given.keys() | {option.name for option in options.changed()}
        fields = (OPTIONS[name].field for name in names)
        options = replace(recorded.options, **{field: getattr(options, field) for field in fields})
    return StepInputs(work, network, options, (*assumed, *noticed))


def _opened(
    workload: WorkSource | File,
    typed: AskedOptions,
    *,
    strict: bool,
    environment: "Environment",
) -> tuple[WorkSource, AskedOptions]:
    """What a person named, and what else they typed: a recorded run takes the calibration."""
    if not isinstance(workload, File):
        return workload, typed
    path = Path(workload)
    if is_model(workload) or not is_recorded(path):
        return load_work(workload, strict=strict, environment=environment), typed
    from stepsim.files.measured import recorded_work
    from stepsim.measured.calibration.calibration import Calibration

    named = typed.get("calibration")
    known = None if named is None else _calibration(named)
    if not isinstance(known, Calibration):
        return recorded_work(path), typed
    del typed["calibration"]
    return recorded_work(path, known), typed


def _asked_of(
    model: Model,
    topology: Topology,
    device: "Device | None",
    typed: Mapping[str, object],
) -> tuple[AskedOptions, list[str]]:
    """What a person typed, and what the model's description asks where they say nothing.

    The device is the topology's, the framework the device's, or Megatron-Core, and the precision
    bf16 where the device has it, unless they say others. What a device decides is noted: what jobs
    on it have that those on others have not.
    """
    own = dict(model.asked)
    if "microbatches" in typed:
        own.pop("global_batch", None)
    if "global_batch" in typed:
        own.pop("microbatches", None)
    if "chunks" in typed and own.get("schedule") == OPTIONS["schedule"].default:
        own.pop("schedule")
    defaults: AskedOptions = {"framework": DEFAULT_FRAMEWORK}
    if topology.device:
        defaults["device"] = topology.device
    said = {**own, **typed}
    for value in said.values():
        if isinstance(value, Unread):
            raise WorkloadError(value.why)
    if device is None and topology.device:
        from stepsim.files.accelerators import read_device

        device = read_device(topology.device)
    usual = {"framework": device.framework} if device and device.framework else {}
    if device and device.usual_precision is not Precision.BF16:
        usual["precision"] = device.usual_precision.value
    notes = [
        f"no {name} given: stepsim assumes {value}, as jobs on {device.name} run (--{name} sets it)"
        for name, value in usual.items()
        if device and name not in said
    ]
    return {**defaults, **usual, **said}, notes


def read_schedules(
    schedules: Iterable[File | Schedule],
) -> list[tuple[str, str | Schedule]]:
    """Schedules as a person called them, and what they are; raises ScheduleError."""
    found: list[tuple[str, str | Schedule]] = []
    for each in schedules:
        if isinstance(each, Schedule):
            found.append((each.name, each))
        else:
            text = str(each).strip()
            read = _read(OPTIONS["schedule"], text, "", [])
            found.append((text, read if isinstance(read, Schedule) else text))
    return found


def foreign_links(network: Topology, devices: Iterable[object]) -> list[str]:
    """What to say of devices on an axis of which no machine is known."""
    from stepsim.files.accelerators import read_device

    others = [str(device) for device in devices if not read_device(str(device)).topology]
    if not others:
        return []
    said = ", ".join(others)
    return [f"device: no machine of {said} is known: the links of {network.name} are assumed"]


def _topology_or_default(
    topology: "TopologyLike | None", device: "Device | None"
) -> tuple[Topology, list[str]]:
    """A topology of what a person named, and a note where it was nothing.

    Then it is the machine that the device ships in.
    """
    if topology is not None:
        return topology_of(topology), []
    assumed, why = DEFAULT_TOPOLOGY, ""
    if device and device.topology:
        assumed, why = device.topology, f", the machine of {device.name}"
    elif device:
        why = f", whose links are not those of {device.name}"
    note = f"no topology given: stepsim assumes {assumed}{why} (--topology sets it)"
    return topology_of(assumed), [note]


def _read(option: Option, value: Any, comm_source: str, notes: list[str]) -> object:
    match None if option.holds(value) else option.name:
        case "schedule" if str(value).endswith(".csv"):
            from stepsim.files.schedule_csv import read_schedule

            return read_schedule(Path(value))
        case "comm_table":
            several = value if isinstance(value, list | tuple) else [value]
            if not all(isinstance(each, File) for each in several):
                raise PlanError(f"comm_table is {value!r}: expected files, or a CommTable")
            from stepsim.files.collectives.measurements import load_benchmarks

            named = cast("CommTable", load_benchmarks(several, comm_source))
            table, outliers = named.without_outliers()
            notes += [*table.warnings, *(f"outlier left out: {each}" for each in outliers)]
            return table
        case "device" | "framework":
            from stepsim.files.accelerators import read_device, read_framework

            if not isinstance(value, File) or not str(value).strip():
                raise PlanError(
                    f"{option.name} is {value!r}: expected a shipped name or a TOML file"
                )
            return (read_device if option.name == "device" else read_framework)(value)
        case "calibration":
            return _calibration(value)
        case "expert_load":
            return _expert_load(value)
        case _:
            return option.of(value)


def _calibration(value: object) -> "ModelCalibration | Calibration":
    """What a file of stepsim calibrate holds: of predictions, or of measured runs.

    What reads it is imported when there is one: most steps have none.
    """
    from stepsim.files.calibrations import (
        is_model_calibration,
        read_calibration,
        read_model_calibration,
    )
    from stepsim.measured.calibration.calibration import Calibration

    if isinstance(value, Calibration):
        return value
    if not isinstance(value, File):
        raise PlanError(f"calibration is {value!r}: expected a file of stepsim calibrate")
    path = Path(value)
    return read_model_calibration(path) if is_model_calibration(path) else read_calibration(path)


def _expert_load(value: object) -> "ExpertLoad | None":
    """A law, a router's counts, or the tokens of every expert."""
    if isinstance(value, File):
        if is_expert_law(str(value)):
            return parse_expert_law(str(value))
        path = Path(value)
        return read_expert_counts(path) if is_expert_counts(path) else tuple(read_expert_load(path))
    if isinstance(value, ExpertLaw | ExpertSkew | ExpertCounts):
        return value
    if isinstance(value, list | tuple) and all(isinstance(each, int | float) for each in value):
        return tuple(map(float, value))
    raise PlanError(
        f"expert_load is {value!r}: expected a law, the tokens of each expert, or a file with them "
    )
