"""Models and schedules of one's own from Python.

A model is read by name or file, and made a workload under a plan on a device. A schedule is given
as the orders of its actions.
"""

from collections.abc import Sequence
from pathlib import Path

from stepsim.base.errors import PlanError, one_line
from stepsim.base.fields import checked
from stepsim.base.structs import File
from stepsim.face.described import opened
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.load import read_model
from stepsim.files.models.launch import with_launch
from stepsim.files.reading import DEFAULT_FRAMEWORK
from stepsim.files.schedule_csv import parse_schedule
from stepsim.parallel.schedules import Schedule
from stepsim.workload.model.build import build_workload
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.held import check_plan
from stepsim.workload.model.model import Model
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Workload

__all__ = ["Plan", "TrainableModel", "make_schedule", "model"]


class TrainableModel(Model):
    """A model and the ways to use it; everything that takes a workload takes it too."""

    @checked
    def workload(
        self,
        plan: Plan,
        device: Device | File,
        framework: Framework | File = DEFAULT_FRAMEWORK,
    ) -> Workload:
        """The workload of this model under a plan on a device, as `stepsim.simulate` takes it.

        Raises PlanError where plan, model and device do not go together.
        """
        device, framework = opened(device, read_device), opened(framework, read_framework)
        try:
            check_plan(self.architecture, plan)
            return build_workload(self, plan, device, framework)
        except PlanError as error:
            raise PlanError(f"{self.source}: {error}") from None


@checked
def model(name: File, plan_file: File | None = None) -> TrainableModel:
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


@checked
def make_schedule(name: str, orders: Sequence[Sequence[str]]) -> Schedule:
    """A schedule of a name, from what each pipeline rank runs in order, in torch's notation.

    `orders` has a list of tokens per rank: `0F1` is the forward of stage 0 for microbatch 1; B is a
    full backward, I the input gradient and W the weight gradient. `simulate` and `compare` take the
    schedule where they take a name. Raises ScheduleError naming rank, place and token unless every
    stage runs every microbatch once, forward and backward, after all that it needs.
    """
    text = "".join(f"{','.join(tokens)}\n" for tokens in orders)
    shown = one_line(name)
    return parse_schedule(text, source=f"orders of {shown}", name=shown)
