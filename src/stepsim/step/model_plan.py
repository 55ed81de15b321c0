"""The plan of a model by the options asked for, and what is assumed where they say nothing."""

from collections.abc import Iterator, Mapping
from math import lcm
from types import MappingProxyType
from typing import Any

from stepsim.base.errors import PlanError
from stepsim.base.structs import Names, Noun, replace
from stepsim.network.topology import Topology
from stepsim.options import OPTIONS, StepOptions
from stepsim.parallel.schedules import Schedule, build, needs_times, parse_name
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.choices import ContextParallelKind, Precision, Recompute
from stepsim.workload.model.context import ContextParallel
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework, Recipe, RecipeShape
from stepsim.workload.model.layout import LayerLayout, named_layout
from stepsim.workload.model.model import Model
from stepsim.workload.model.plan import ModelPlan, layout_of_costs
from stepsim.workload.model.slowing import Slowing

DEFAULT_SEQUENCE = 4096
"""Tokens of a sample where nobody says it."""
SEQUENCE_ASSUMED = (
    f"no sequence given: stepsim assumes {DEFAULT_SEQUENCE} tokens (--sequence sets it)"
)
DEFAULT_TOKENS = 4 * 2**20
"""Tokens of a step, about, where nobody says how large its batch is."""

_NAMED = (
    *("expert_tp", "precision", "recompute", "recompute_layers", "zero", "shard_ranks"),
    *("attention", "dispatch", "sequence_parallel", "reshard", "tp_comm_overlap"),
    *("dp_overlap", "cuda_graph", "expert_overlap", "shared_overlap", "delay_wgrad", "packed"),
)
_MOST = MappingProxyType({"microbatch_size": 1 << 20, "sequence": 1 << 30})
"""Largest values: samples of a microbatch as in workload files, tokens of a sample."""
_COUNTED = ("tp", "cp", "pp", "ep", "expert_tp", "npus", "sequence", "shard_ranks", "packed")


class AsRun(Noun):
    """Options of a model's step with what the jobs of its framework have where nobody said it.

    `assumed` are those values, by the names of the options.
    """

    options: StepOptions
    assumed: Mapping[str, object]


def as_jobs_run(
    options: StepOptions, device: Device, framework: Framework, architecture: Architecture
) -> AsRun:
    """The options with the framework's defaults in place of those that were not asked for.

    Collectives of tp are pipelined with sequence parallelism alone: Transformer Engine refuses it
    without.
    """
    precision = options.precision or Precision.BF16
    known = framework.defaults_on(device.name, sparse=architecture.is_sparse, precision=precision)
    if not options.sequence_parallel and "tp_comm_overlap" in known:
        known = known | {"tp_comm_overlap": False}
    assumed: dict[str, Any] = {
        name: value for name, value in known.items() if getattr(options, name) is None
    }
    return AsRun(options=replace(options, **assumed), assumed=MappingProxyType(assumed))


class ByRecipe(Noun):
    """What a public recipe of a model sets where nobody asked: nothing, if there is none.

    `options` are of a step, `fields` of its plan; `said` are words about both, and about what the
    framework's memory is of the model; `source` says where they are from.
    """

    options: Mapping[str, Any]
    fields: Mapping[str, Any]
    said: Names = ()
    source: str = ""


def by_recipe(
    asked: StepOptions,
    degrees: RecipeShape | None,
    device: Device,
    framework: Framework,
    architecture: Architecture,
) -> ByRecipe:
    """What the model's public recipe for a device sets beside the options asked for.

    There is none without `degrees`. A layout that is not of so many layers is left out, and modules
    where the options say what is recomputed.
    """
    model, precision = architecture.name, asked.precision or Precision.BF16
    if degrees is None or not (asked.recipe and framework.knows(model, device.name, precision)):
        return ByRecipe(options={}, fields={})
    found = framework.recipe_of(model, device.name, precision, degrees)
    states = framework.states_recipe(model, device.name, precision)
    options: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    if found and asked.zero is None and found.zero not in (None, degrees.zero):
        options["zero"] = found.zero
    if found and asked.dispatch is None and found.dispatch is not None and (asked.ep or 1) > 1:
        options["dispatch"] = found.dispatch
    if found and asked.layout is None and _divides(found, architecture, degrees):
        options["layout"] = found.layout
    if found and asked.recompute is None:
        fields = recomputed_by(found)
    said = [f"{name} {value}" for name, value in options.items()]
    told = (*said, *_said_of_fields(fields))
    return ByRecipe(
        options=options,
        fields=fields,
        said=(*told, *_said_of_states(states)),
        source=next((each.source for each in (told and found, states) if each), ""),
    )


def planned_by_recipe(
    asked: StepOptions,
    plan: ModelPlan,
    device: Device,
    framework: Framework,
    architecture: Architecture,
) -> ModelPlan:
    """A plan with what the model's public recipe sets for its degrees beside the options asked for.

    Modules are its own where the plan recomputes nothing else.
    """
    said = None if plan.recompute is Recompute.NONE else plan.recompute
    asked = replace(asked, ep=plan.ep, recompute=said or asked.recompute)
    degrees = RecipeShape(tp=plan.tp, pp=plan.pp, chunks=plan.chunks, zero=plan.zero)
    found = by_recipe(asked, degrees, device, framework, architecture)
    fields = {**found.options, **found.fields}
    if "layout" in fields:
        ahead = len(architecture.prediction_layers)
        fields["layout"] = named_layout(fields["layout"], ahead)
    return replace(plan, **fields) if fields else plan


def recomputed_by(recipe: Recipe) -> dict[str, Any]:
    """Fields of a plan that say what a recipe recomputes and offloads; none where it does not."""
    found = {
        "recompute_modules": recipe.recompute_modules,
        "offload_layers": recipe.offload_layers,
    }
    return {name: value for name, value in found.items() if value}


def said_of_recipe(architecture: Architecture, framework: Framework, found: ByRecipe) -> list[str]:
    """A sentence about what a public recipe sets, and how to leave it out."""
    if not found.said:
        return []
    where = f"{found.source}; " if found.source else ""
    return [
        f"public recipe of {architecture.name} for {framework.name}: {', '.join(found.said)} "
        f"({where}--no-recipe turns it off)"
    ]


def _divides(recipe: Recipe, architecture: Architecture, degrees: RecipeShape) -> bool:
    """Whether a recipe has a layout of a model's layers over the virtual stages."""
    if recipe.layout is None:
        return False
    stages = degrees.pp * degrees.chunks
    ahead = len(architecture.prediction_layers)
    try:
        named_layout(recipe.layout, ahead).resolve(architecture.depth, ahead, stages)
    except PlanError:
        return False
    return True


def _said_of_fields(fields: Mapping[str, Any]) -> Iterator[str]:
    if modules := fields.get("recompute_modules"):
        yield f"recompute {' and '.join(modules)}"
    if layers := fields.get("offload_layers"):
        yield f"activations of {layers} layers wait in the host's memory (no time)"


def _said_of_states(recipe: Recipe | None) -> Iterator[str]:
    for name, value in (recipe.states.changed if recipe and recipe.states else {}).items():
        parts = ", ".join(value) if isinstance(value, tuple) else value
        yield _STATES[name].format(parts)


def slowing_of(options: StepOptions, device: Device, framework: Framework) -> Slowing | None:
    """What communication takes from compute in the closed form; None where nobody asks for it."""
    if not options.overlap_cost:
        return None
    return Slowing.on(device, framework, options.overlap_cost.count)


_STATES = MappingProxyType(
    {
        "gradient_bytes": "gradients of {} bytes",
        "optimizer_bytes": "optimizer of {:g} bytes a parameter",
        "gate_bytes": "inputs of experts' activations of {:g} bytes",
        "result_bytes": "results of attention of {:g} bytes",
        "casts_weights": "weights in 8 bits alone",
        "graph_scopes": "CUDA graphs of {}",
        "pads_experts": "experts with as many tokens as fit",
        "free_sms": "products that leave {} SMs free",
        "drops_cast_norms": "nothing kept of what norms make",
    }
)
"""Words about the fields of a framework that a recipe says."""


def said_of_defaults(
    framework: Framework, plan: ModelPlan, assumed: Mapping[str, object]
) -> list[str]:
    """A sentence about the defaults that a plan has of its framework; none where none matters."""
    texts = [
        f"{name} {OPTIONS[name].text(value)}"
        for name, value in assumed.items()
        if _matters(name, plan)
    ]
    return [f"defaults of {framework.name}: {', '.join(texts)} (as its jobs run)"] if texts else []


def _matters(name: str, plan: ModelPlan) -> bool:
    """Whether a plan could run otherwise without the value that it has of an option."""
    match name:
        case "zero" | "dp_overlap":
            return plan.dp * plan.cp > 1 and (name == "zero" or plan.zero < 2)
        case "reshard":
            return plan.dp * plan.cp > 1 and plan.zero == 3
        case "tp_comm_overlap":
            return plan.tp > 1
        case "dispatch" | "shared_overlap" | "delay_wgrad":
            return plan.ep > 1
        case "expert_overlap":
            return False  # its schedule says it
        case _:
            return plan.cuda_graph


def model_plan(
    model: Model, topology: Topology, options: StepOptions
) -> tuple[ModelPlan, list[str]]:
    """The plan of a model under the options asked for, and what was assumed; raises PlanError."""
    notes: list[str] = []
    for name in _COUNTED:
        if getattr(options, name) == 0:
            raise PlanError(f"{name} is 0: expected at least 1")
    for name, most in _MOST.items():
        if (getattr(options, name) or 1) > most:
            raise PlanError(f"{name} is {getattr(options, name)}: expected 1 to {most}")
    tp, cp, pp, ep = (getattr(options, name) or 1 for name in ("tp", "cp", "pp", "ep"))
    dp = _replicas(topology, options, tp * cp * pp, ep, notes)
    if options.sequence is None:
        notes.append(SEQUENCE_ASSUMED)
    chunks = chunks_of(options, pp)
    layout = asked_layout(model.architecture, options, pp * chunks)
    notes += _said_of_layout(model.architecture, options, layout, pp * chunks)
    batch = batch_of(options, dp * options.samples, pp)
    if options.global_batch is None and options.microbatches is None:
        notes.append(_said_of_batch(options, batch, dp))
    plan = ModelPlan(
        tp=tp,
        cp=cp,
        dp=dp,
        pp=pp,
        ep=ep,
        chunks=chunks,
        microbatch_size=options.samples,
        global_batch=batch,
        layout=layout,
        **plan_fields(options),
    )
    return plan, notes


def plan_fields(options: StepOptions) -> dict[str, Any]:
    """Fields of a plan that options say beside degrees, batch and layout."""
    found = {name: value for name in _NAMED if (value := getattr(options, name)) is not None}
    sequence = options.sequence or DEFAULT_SEQUENCE
    return {**found, "context": exchange_of(options), "sequence": sequence}


def exchange_of(options: StepOptions) -> ContextParallelKind:
    """How ranks share a sequence: as asked, else as jobs of the framework do."""
    if options.cp_comm is not None:
        return options.cp_comm
    known = options.framework if isinstance(options.framework, Framework) else None
    return (known.context if known else ContextParallel()).exchange


def default_size(topology: Topology, options: StepOptions, unit: int = 1) -> int:
    """NPUs of the job: those asked for, else the topology's, a multiple of `unit`."""
    if options.npus is not None:
        return options.npus
    return -(-topology.default_npus // unit) * unit


def _replicas(
    topology: Topology, options: StepOptions, split: int, ep: int, notes: list[str]
) -> int:
    """Data-parallel degree of the NPUs asked for, else of the topology's."""
    npus = default_size(topology, options, lcm(split, ep))
    if options.npus is None:
        notes.append(f"no npus given: stepsim assumes {npus} (--npus sets it)")
    if npus % split:
        raise PlanError(f"npus is {npus}: expected a multiple of tp*cp*pp, {split}")
    return npus // split


def batch_of(options: StepOptions, samples: int, pp: int) -> int:
    """Samples of a step, of which a microbatch of all has some.

    Raises PlanError where two options say it.
    """
    if options.global_batch is not None:
        if options.microbatches is not None:
            raise PlanError("global_batch and microbatches contradict each other: give one of them")
        return options.global_batch
    if options.microbatches is not None:
        return options.microbatches * samples
    return default_batch(samples, pp, options.sequence or DEFAULT_SEQUENCE)


def default_batch(samples: int, pp: int, sequence: int) -> int:
    """Samples of a step of about `DEFAULT_TOKENS` tokens, of which a microbatch of all has some.

    Each pipeline runs a multiple of its ranks, at least one microbatch for each of them: what the
    interleaved schedules of Megatron-LM need. Of two that are equally near the larger is taken.
    """
    unit = samples * pp
    return max(1, (2 * DEFAULT_TOKENS + unit * sequence) // (2 * unit * sequence)) * unit


def _said_of_batch(options: StepOptions, batch: int, dp: int) -> str:
    tokens = batch * (options.sequence or DEFAULT_SEQUENCE)
    count = batch // (dp * options.samples)
    return (
        f"no global_batch given: stepsim assumes {batch} samples ({tokens / 1e6:.3g} million "
        f"tokens, {count} microbatches of each pipeline), near 4 million tokens "
        "(--global-batch sets it)"
    )


def chunks_of(options: StepOptions, pp: int) -> int:
    """Virtual stages of a rank, as the schedule has them."""
    schedule = options.schedule
    if isinstance(schedule, Schedule):
        return schedule.placement.stages // schedule.placement.ranks
    held = options.chunks or parse_name(schedule)[1]
    if needs_times(schedule) or pp == 1:
        return held or 1
    placement = build(schedule, ranks=pp, microbatches=2 * pp, chunks=held).placement
    return placement.stages // placement.ranks


def asked_layout(architecture: Architecture, options: StepOptions, stages: int) -> LayerLayout:
    """The layout asked for, else the framework's; it is resolved when the plan is checked.

    A framework that balances stages shares blocks out by cost, others equally, or as evenly as
    layers and virtual stages allow.
    """
    framework = options.framework
    if options.layout is None and isinstance(framework, Framework) and framework.balances_stages:
        return layout_of_costs(architecture, stages)
    ahead, depth = len(architecture.prediction_layers), architecture.depth
    found = named_layout(options.layout or "equal", ahead).counting_ends(depth, stages)
    uneven = found.equal and depth % stages and stages < depth
    return named_layout("even") if options.layout is None and uneven else found


def _said_of_layout(
    architecture: Architecture, options: StepOptions, layout: LayerLayout, stages: int
) -> list[str]:
    """That ends count as layers, where nobody asked for it."""
    name = layout.text()
    if name is None or options.layout == name or name not in _COUNTED_ENDS:
        return []
    megatron = "" if name == "even" else ", Megatron-LM's --account-for-...-in-pipeline-split"
    return [
        f"{architecture.depth} layers over {stages} virtual stages: {_COUNTED_ENDS[name]} "
        f"(--layout {name}{megatron})"
    ]


_COUNTED_ENDS = MappingProxyType(
    {
        "even": "some stages have a layer more than others",
        "ends": "embedding and loss count as layers",
        "embedding": "the embedding counts as a layer",
        "head": "the loss counts as a layer",
    }
)
