"""Models from Python: read by name or file, and made workloads under a plan on a device."""

from pathlib import Path

from stepsim.base.arguments import checked
from stepsim.base.errors import PlanError
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.models.launch import with_launch
from stepsim.files.models.load import read_model
from stepsim.files.shipped import DEFAULT_FRAMEWORK
from stepsim.workload.model.building.build import build_workload
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.model import Model
from stepsim.workload.model.plan import ModelPlan, check_plan
from stepsim.workload.rows import Workload

__all__ = ["ModelPlan", "TrainableModel", "model"]


class TrainableModel(Model, frozen=True):
    """A model and the ways to use it; everything that takes a workload takes it too."""

    @checked
    def workload(
        self,
        plan: ModelPlan,
        device: Device | str | Path,
        framework: Framework | str | Path = DEFAULT_FRAMEWORK,
    ) -> Workload:
        """The workload of this model under a plan on a device, as `stepsim.simulate` takes it.

        Raises PlanError where plan, model and device do not go together.
        """
        if not isinstance(device, Device):
            device = read_device(device)
        if not isinstance(framework, Framework):
            framework = read_framework(framework)
        try:
            check_plan(self.architecture, plan)
            return build_workload(self, plan, device, framework)
        except PlanError as error:
            raise PlanError(f"{self.source}: {error}") from None


@checked
def model(name: str | Path, plan_file: str | Path | None = None) -> TrainableModel:
    """A public model by name, or one that a file describes: `config.json`, TOML, arguments.

    A `plan_file` gives it its plan: what `stepsim plan` prints, or a framework's own file. Raises
    WorkloadError naming the file, the key and what is allowed.
    """
    found = read_model(name)
    if plan_file is not None:
        found = with_launch(found, Path(plan_file))
    return TrainableModel(
        source=found.source,
        architecture=found.architecture,
        asked=found.asked,
        warnings=found.warnings,
    )
