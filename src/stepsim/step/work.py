"""What a step is made of: a workload as it is, or a model that becomes one."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stepsim.base.errors import CalibrationError, PlanError
from stepsim.base.option import Panel
from stepsim.base.structs import replace
from stepsim.network.topology import Topology
from stepsim.options import OPTIONS, StepOptions
from stepsim.workload.model.model import Model
from stepsim.workload.rows import Workload

if TYPE_CHECKING:
    from stepsim.workload.model.architecture import Architecture
    from stepsim.workload.model.device import Device
    from stepsim.workload.model.framework import Framework
    from stepsim.workload.model.interconnect import Interconnect
    from stepsim.workload.model.plan import ModelPlan

WorkSource = Workload | Model
"""What a step is made of: a workload, or a model that becomes one under a plan on a device."""

_USUAL: Mapping[str, bool | int] = MappingProxyType(
    {
        **dict.fromkeys(("dp_overlap", "tp_comm_overlap", "cuda_graph"), False),
        "reshard": True,
        "microbatch_size": 1,
    }
)
"""What a workload file's step has of options that are not asked for."""
_MODEL_ALONE = tuple(name for name, option in OPTIONS.items() if option.panel is Panel.MODEL)


class BuiltModel(Struct, frozen=True, kw_only=True):
    """What a workload was made of: a model, its plan, what it runs on.

    `interconnect` is the network in two levels, None where it has no dimensions.
    """

    architecture: "Architecture"
    plan: "ModelPlan"
    device: "Device"
    framework: "Framework"
    interconnect: "Interconnect | None"


class MadeWork(Struct, frozen=True, kw_only=True):
    """A workload and the options it is run with; `sized` say its size.

    `built` is what the workload of a model was made of, `notes` are what was assumed.
    """

    workload: Workload
    options: StepOptions
    sized: StepOptions
    built: BuiltModel | None = None
    notes: tuple[str, ...] = ()


def make_work(source: WorkSource, topology: Topology, options: StepOptions) -> MadeWork:
    """The workload of a source under the options asked for; raises PlanError.

    A workload is taken as it is, and refuses what only a model can be asked. The errors of a model
    begin with its name.
    """
    if isinstance(source, Workload):
        options = _of_a_file(options)
        if options.device is not None:
            raise PlanError(
                f"device: only a model can be asked that; compute times of {source.source} are of "
                "an unknown device, and nothing says which operators they are of: scale them with "
                "compute_scale"
            )
        why = "only a model can be asked that, and this is a workload file"
        options.refuse(_MODEL_ALONE, why)
        if options.calibration is not None:
            raise CalibrationError(
                "this calibration is of predictions of models: expected a model on a known device"
            )
        return MadeWork(workload=source, options=options, sized=options)
    from stepsim.step.models import work_of_model

    return work_of_model(source, topology, options)


def held_degrees(
    source: WorkSource, topology: Topology, options: StepOptions
) -> tuple[dict[str, Any], list[str]]:
    """Options of the plan that a model's step takes where none of its degrees is given, and a note.

    Steps that are compared are held to one plan by it. Raises PlanError.
    """
    if isinstance(source, Workload):
        return {}, []
    from stepsim.step.models import degrees_of_model

    return degrees_of_model(source, topology, options)


def _of_a_file(options: StepOptions) -> StepOptions:
    """The options of a workload file's step: what it has anyway is as good as not asked for."""
    usual: dict[str, Any] = {
        name: None for name, value in _USUAL.items() if getattr(options, name) == value
    }
    return replace(options, **usual) if usual else options
