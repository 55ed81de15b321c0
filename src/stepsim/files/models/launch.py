"""A plan in the form that its training framework is launched with, written and read.

Megatron-LM takes arguments, Megatron-Bridge overrides, torchtitan a TOML file. Of other frameworks
no form is known here: their plans are options of stepsim alone.
"""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct

from stepsim.base.errors import WorkloadError
from stepsim.base.structs import replace
from stepsim.files.models.bridge import bridge_arguments, bridge_plan, is_bridge
from stepsim.files.models.megatron import asked_of
from stepsim.files.models.megatron_plan import broken_by, megatron_lacks, megatron_plan
from stepsim.files.models.megatron_words import megatron_arguments
from stepsim.files.models.torchtitan import (
    torchtitan_asked,
    torchtitan_lacks,
    torchtitan_plan,
)
from stepsim.files.plan_toml import read_plan
from stepsim.files.reading import parse_toml, read_text
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.model import Model
from stepsim.workload.model.plan import ModelPlan


class LaunchForm(StrEnum):
    """What a framework is launched with."""

    MEGATRON_LM = "megatron-lm"
    MEGATRON_BRIDGE = "megatron-bridge"
    TORCHTITAN = "torchtitan"
    NONE = "none"

    @property
    def label(self) -> str:
        """What people call whoever takes it; empty where nobody does."""
        labels = {"megatron-lm": "Megatron-LM", "megatron-bridge": "Megatron-Bridge"}
        return labels.get(self.value, "torchtitan" if self is LaunchForm.TORCHTITAN else "")


_FORMS = {
    "megatron-bridge": LaunchForm.MEGATRON_BRIDGE,
    "megatron-deepspeed": LaunchForm.NONE,
    "megatron": LaunchForm.MEGATRON_LM,
    "mcore": LaunchForm.MEGATRON_LM,
    "nemo": LaunchForm.MEGATRON_LM,
    "torch-fsdp": LaunchForm.TORCHTITAN,
    "torchtitan": LaunchForm.TORCHTITAN,
}
"""The form of frameworks whose name begins so; the first that fits."""


def launch_form(framework: str) -> LaunchForm:
    """The form of a framework by its name."""
    fits = (form for name, form in _FORMS.items() if framework.startswith(name))
    return next(fits, LaunchForm.NONE)


class Launch(Struct, frozen=True, kw_only=True):
    """A plan in a framework's form: its `lines`, or why there are none, one sentence each."""

    form: LaunchForm
    lines: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def launch_of(plan: ModelPlan, architecture: Architecture, framework: str) -> Launch:
    """A model's plan as a framework, by its name, is launched with it."""
    form = launch_form(framework)
    refused = tuple(_refused(plan, architecture, framework))
    if refused or form is LaunchForm.NONE:
        return Launch(form=form, refused=refused)
    if form is LaunchForm.TORCHTITAN:
        lines = torchtitan_plan(plan, architecture, _is_compiled(framework))
    else:
        lines = megatron_plan(plan, plan.stage_slices(architecture))
    if form is LaunchForm.MEGATRON_BRIDGE:
        lines = bridge_plan(lines, plan.chunks)
    return Launch(form=form, lines=lines)


def refused_by(plan: ModelPlan, architecture: Architecture, framework: str) -> tuple[str, ...]:
    """Rules of a framework that the degrees of a plan break.

    What the framework has not at all, such as a schedule, breaks none: it was asked for.
    """
    if launch_form(framework) in (LaunchForm.MEGATRON_LM, LaunchForm.MEGATRON_BRIDGE):
        return broken_by(plan, architecture)
    return ()


def _refused(plan: ModelPlan, architecture: Architecture, framework: str) -> Iterator[str]:
    """What a framework has not, and which of its rules the plan breaks."""
    match launch_form(framework):
        case LaunchForm.TORCHTITAN:
            yield from torchtitan_lacks(plan, architecture, _is_compiled(framework))
        case LaunchForm.MEGATRON_LM | LaunchForm.MEGATRON_BRIDGE:
            yield from megatron_lacks(plan)
            yield from broken_by(plan, architecture)


def _is_compiled(framework: str) -> bool:
    return "compile" in framework


def with_launch(model: Model, path: Path) -> Model:
    """The model with the plan of a file that a framework is launched with.

    The file is a job of torchtitan, overrides of Megatron-Bridge, Megatron-LM's arguments, or what
    `stepsim plan --toml` writes.
    Raises WorkloadError naming the file and the entry at fault.
    """
    text = read_text(path, WorkloadError, "plan", "a plan")
    asked = _asked(path, text, model.architecture)
    return replace(model, asked={**model.asked, **asked})


def _asked(path: Path, text: str, architecture: Architecture) -> dict[str, Any]:
    if path.suffix == ".toml":
        values = _toml(path, text)
        if "options" in values:
            return dict(read_plan(path).options)
        return dict(torchtitan_asked(str(path), values, architecture.depth))
    bridge = is_bridge(text)
    values = dict(bridge_arguments(text) if bridge else megatron_arguments(path, text))
    if "tensor-model-parallel-size" not in values:
        expected = (
            "arguments of Megatron-LM, overrides of Megatron-Bridge, or a job of torchtitan (.toml)"
        )
        raise WorkloadError(f"{path}: no plan of a framework: expected {expected}")
    asked = asked_of(str(path), {**values, "num-layers": str(architecture.depth)})
    return {**asked, "framework": "megatron-bridge"} if bridge else asked


def _toml(path: Path, text: str) -> dict[str, Any]:
    try:
        values = parse_toml(text)
    except ValueError as reason:
        raise WorkloadError(f"{path}: not valid TOML: {reason}") from None
    if not {"parallelism", "options"} & values.keys():
        raise WorkloadError(f"{path}: no job of torchtitan: expected a section [parallelism]")
    return values
