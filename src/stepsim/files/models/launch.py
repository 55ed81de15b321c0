"""A plan in the form that its training framework is launched with, written and read.

Megatron-LM takes arguments, Megatron-Bridge overrides, torchtitan a TOML file. Of other frameworks
no form is known here: their plans are options of stepsim alone. A plan file of stepsim's own is a
TOML file: a model, a topology, and the options of `stepsim simulate`.

An override of Megatron-Bridge is `group.field=value`, as its training scripts take them behind a
recipe. The fields are those of the guide "Megatron-LM to Megatron Bridge" and of
`megatron/bridge/training/config.py` in NVIDIA-NeMo/Megatron-Bridge. They mean what Megatron-LM's
arguments mean, so that both ways go through these. Everything that a recipe may set is written,
also what is off.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from stepsim.base.errors import PlanError, WorkloadError
from stepsim.base.structs import Names, Noun, TomlTable, replace, shipped, toml_text
from stepsim.base.units import NameWithFields
from stepsim.base.writing import write_whole
from stepsim.files.models.megatron import asked_of
from stepsim.files.models.megatron_plan import (
    argument_texts,
    broken_by,
    megatron_lacks,
    megatron_plan,
    sizes_of,
)
from stepsim.files.models.recipes import (
    RECIPES,
    ForeignRecipe,
    job_notes,
    recipe_forms,
    recipe_of_file,
)
from stepsim.files.models.scripts import Arguments, script_arguments
from stepsim.files.models.torchtitan import torchtitan_asked, torchtitan_lacks, torchtitan_plan
from stepsim.files.reading import read_text, read_toml, toml_values
from stepsim.files.shell.words import Environment
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.held import stage_slices
from stepsim.workload.model.model import AskedOptions, Model
from stepsim.workload.plan import Plan


class LaunchForm(NameWithFields):
    """What a framework is launched with; `label` is what people call whoever takes it."""

    label: str

    MEGATRON_LM = "megatron-lm", "Megatron-LM"
    MEGATRON_BRIDGE = "megatron-bridge", "Megatron-Bridge"
    TORCHTITAN = "torchtitan", "torchtitan"
    NONE = "none", ""


def launch_form(framework: str) -> LaunchForm:
    """The form of a framework by its name."""
    forms = shipped(__file__, "launch_forms.toml", dict[str, LaunchForm])
    fits = (form for name, form in forms.items() if framework.startswith(name))
    return next(fits, LaunchForm.NONE)


class Launch(Noun):
    """A plan in a framework's form: its `lines`, or why there are none, one sentence each."""

    form: LaunchForm
    lines: Names = ()
    refused: Names = ()


def launch_of(plan: Plan, architecture: Architecture, framework: str) -> Launch:
    """A model's plan as a framework, by its name, is launched with it."""
    form, compiled = launch_form(framework), "compile" in framework
    if form is LaunchForm.NONE:
        return Launch(form=form)
    if form is LaunchForm.TORCHTITAN:
        refused = tuple(torchtitan_lacks(plan, architecture, compiled))
        lines = () if refused else torchtitan_plan(plan, architecture, compiled)
        return Launch(form=form, lines=lines, refused=refused)
    refused = *megatron_lacks(plan), *broken_by(plan, architecture)
    arguments = megatron_plan(plan, stage_slices(architecture, plan))
    bridge = form is LaunchForm.MEGATRON_BRIDGE
    lines = tuple(_overrides(arguments, plan)) if bridge else argument_texts(arguments)
    return Launch(form=form, lines=() if refused else lines, refused=refused)


def refused_by(plan: Plan, architecture: Architecture, framework: str) -> Names:
    """Rules of a framework that the degrees of a plan break.

    What the framework has not at all, such as a schedule, breaks none: it was asked for.
    """
    if launch_form(framework) in (LaunchForm.MEGATRON_LM, LaunchForm.MEGATRON_BRIDGE):
        return broken_by(plan, architecture)
    return ()


def with_launch(model: Model, path: Path, environment: Environment | None = None) -> Model:
    """The model with the plan of a file that a framework is launched with.

    The file is a job of torchtitan, overrides of Megatron-Bridge, Megatron-LM's arguments, or what
    `stepsim plan --toml` writes. A script has the variables of the `environment`.
    Raises WorkloadError naming the file and the entry at fault.
    """
    text = read_text(path, WorkloadError, "plan", "a plan")
    if path.suffix == ".toml":
        values = toml_values(path, text, WorkloadError)
        if not {"parallelism", "options"} & values.keys():
            raise WorkloadError(f"{path}: no job of torchtitan: expected a section [parallelism]")
        if "options" in values:
            asked: AskedOptions = dict(read_plan(path).options)
        else:
            asked = torchtitan_asked(str(path), values, model.architecture.depth)
        notes = job_notes(path, values)
    else:
        recipe = recipe_of_file(path, environment or {}) if path.suffix in RECIPES else None
        asked = _asked(path, text, model.architecture, recipe, environment)
        notes = tuple(recipe.notes) if recipe else ()
    return replace(model, asked={**model.asked, **asked}, warnings=(*model.warnings, *notes))


def _asked(
    path: Path,
    text: str,
    architecture: Architecture,
    recipe: ForeignRecipe | None,
    environment: Environment | None,
) -> AskedOptions:
    """What a recipe, overrides of Megatron-Bridge or Megatron-LM's arguments ask."""
    if recipe and not recipe.form.megatron:
        return recipe.asked_of(architecture)
    values = recipe.arguments if recipe else script_arguments(path, text, environment).values
    bridge = "model.tensor_model_parallel_size" in values
    if bridge:  # they say what the same keys say in a configuration of Megatron-Bridge
        form = recipe_forms()["Megatron-LM's arguments"]
        said = {"mixed_precision": "bf16_mixed", **values}
        values = ForeignRecipe(path, form, said, environment or {}).arguments
    if "tensor-model-parallel-size" not in values:
        expected = (
            "arguments of Megatron-LM, overrides of Megatron-Bridge, a job of torchtitan (.toml), "
            "or a recipe"
        )
        raise WorkloadError(f"{path}: no plan of a framework: expected {expected}")
    asked = asked_of(str(path), {**values, **sizes_of(architecture)})
    return {**asked, "framework": "megatron-bridge"} if bridge else asked


class PlanFile(TomlTable, omit_defaults=True):
    """A plan file: `options` by name, as people type them."""

    model: str
    topology: str
    options: dict[str, str | int | float | bool]


def read_plan(path: Path) -> PlanFile:
    """The plan in a file; raises PlanError naming the entry at fault."""
    return read_toml(path, PlanFile, PlanError, "plan")


def write_plan(path: Path, model: str, topology: str, options: Mapping[str, str]) -> None:
    """Write a plan; raises OutputError."""
    found = PlanFile(model=model, topology=topology, options=dict(options))
    write_whole(path, toml_text(found).encode())


def _bridge(table: str) -> Mapping[str, str]:
    return shipped(__file__, "bridge.toml", dict[str, dict[str, str]])[table]


def _overrides(arguments: Arguments, plan: Plan) -> Iterator[str]:
    values = {**_bridge("off"), **arguments}
    if plan.chunks > 1:  # beside a layout too: a recipe may have set another number
        values["num-virtual-stages-per-pipeline-rank"] = str(plan.chunks)
    for name, key in _bridge("keys").items():
        if name not in values:
            continue
        value = values[name] or "true"
        if name == "recompute-modules":
            value = f"[{','.join(value.split())}]"
        yield f"'{key}=\"{value}\"'" if "(" in value or "|" in value else f"{key}={value}"
        if name == "seq-length":
            yield f"dataset.sequence_length={value}"
    if "moe-enable-deepep" in values:
        yield "model.moe_flex_dispatcher_backend=deepep"
    if "cpu-offloading-num-layers" in values:
        yield "model.cpu_offloading=true"
    yield f"mixed_precision={_bridge('precision')[plan.precision]}"
