"""A model as a job: its plan by the options asked for, and what they leave open.

What nobody says is decided here: what jobs of the framework have, what a public recipe of the model
sets, its layout, its batch. Each has a sentence that says how to pin it. Its closed forms see a
network in two levels: inside a node, and between nodes.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from stepsim.base.errors import PlanError, TopologyError
from stepsim.base.structs import Values, replace
from stepsim.files.asked import StepInputs
from stepsim.network.collectives import Algorithm
from stepsim.network.placement import place
from stepsim.network.topology import DimensionKind, NestedTopology, Topology
from stepsim.options import OPTIONS, StepOptions
from stepsim.parallel.schedules import Schedule, build, needs_times, parse_name
from stepsim.parallel.schedules.combined_1f1b import PAIRED
from stepsim.step.job import Job, check_counts, filled, held_degrees
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.build import build_workload
from stepsim.workload.model.choices import Precision, Recompute
from stepsim.workload.model.context import ContextParallel
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework, Recipe
from stepsim.workload.model.held import check_plan, layout_of_costs
from stepsim.workload.model.layout import LayerLayout, named_layout
from stepsim.workload.model.parts import NO_NETWORK, Interconnect
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan

DEFAULT_SEQUENCE = 4096
"""Tokens of a sample where nobody says it."""
DEFAULT_TOKENS = 4 * 2**20
"""Tokens of a step, about, where nobody says how large its batch is."""
USUAL_SCHEDULE = OPTIONS["schedule"].default

# Options that are the plan's fields of the same name; a layout is not known by its text alone.
_NAMED = [name for name in OPTIONS if name in Plan.__struct_fields__ and name != "layout"]


def assumed(name: str, value: object) -> str:
    """That nobody said an option, what it is taken to be, and the flag that sets it."""
    return f"no {name} given: stepsim assumes {value} ({OPTIONS[name].words('')[0]} sets it)"


SEQUENCE_ASSUMED = assumed("sequence", f"{DEFAULT_SEQUENCE} tokens")


# the job


def made_work(asked: StepInputs, known: dict[Any, Any] | None) -> Job:
    """The job of a model under its plan, as it is made; raises PlanError.

    `known` is as `job_of` takes it.
    """
    model, topology, setup = asked.model, asked.topology, setup_of(asked)
    chosen, said = held_degrees(asked)
    decided = replace(asked.options, **chosen)
    run = with_schedule(decided, setup)
    if run.schedule == PAIRED != decided.schedule and not decided.expert_overlap:
        said = [*said, f"schedule {PAIRED}: so jobs of {setup.framework.name} run"]
    plan, notes = planned(setup, topology, run)
    check_plan(model.architecture, plan)
    network = place(topology, plan, run.placement)
    with suppress(TopologyError):  # one without dimensions has no closed form
        setup = replace(setup, interconnect=interconnect_of(network))
    machine = setup.device, setup.framework, setup.interconnect
    work = build_workload(model, plan, *machine, known)
    lossless = all(link.efficiency == 1 for link in topology.link_classes)
    if lossless and not topology.library.protocols and work.effort is not None:
        work = replace(work, effort=replace(work.effort, band=None))
        notes.append(
            f"{topology.name}: ideal links, no efficiency, no protocols, so no range (base = "
            '"hgx-h100" in its file takes those of a machine)'
        )
    if plan.dp_overlap and plan.zero < 2:
        run = replace(run, dp_overlap=True)
    return Job(
        asked=asked,
        given=work,
        workload=work,
        plan=plan,
        options=run,
        setup=setup,
        notes=(*said, *notes),
    )


# what a model runs on


def setup_of(asked: StepInputs) -> StepModel:
    """What a model runs on and is trained with; raises PlanError where either is not known.

    Counts that nothing can have are refused first.

    The framework is that of such jobs on the device: with the bytes of states that a public recipe
    says, and with the calibration asked for. The network is not known yet.
    """
    options, architecture = asked.options, asked.model.architecture
    check_counts(options)
    device, framework = options.device, options.framework
    if not isinstance(device, Device):
        raise PlanError(
            f"device is missing: topology {asked.topology.name} names none, and compute times are "
            'those of a device: expected --device, e.g. h100, or device = "h100" in its file'
        )
    if not isinstance(framework, Framework):
        raise PlanError(
            "framework: expected a training framework, e.g. megatron-core (--framework)"
        )
    precision = options.precision or Precision.BF16
    framework = framework.of_job(device.name, precision, sparse=architecture.is_sparse)
    if options.recipe:
        framework = framework.of_model(architecture.name, device.name, precision)
    if options.states is not None:
        framework = replace(framework, **options.states.held)
    if options.loss_chunks is not None:
        framework = replace(framework, loss_chunks=options.loss_chunks)
    if options.overlap_cost:  # what gathers take of compute is part of it
        framework = replace(framework, fsdp_slowdown=0.0)
    if options.calibration is not None:
        device, framework = options.calibration.apply(device, framework, precision)
    return StepModel(
        architecture=architecture, device=device, framework=framework, interconnect=NO_NETWORK
    )


# the schedule


def with_schedule(options: StepOptions, setup: StepModel) -> StepOptions:
    """Chunks alone ask for the interleaved schedule, as Megatron-LM's arguments do.

    Of jobs with experts it is the one that overlaps their exchanges, if that is asked for or the
    framework's jobs do; without a pipeline too. Raises PlanError where no schedule overlaps them.
    """
    chunked, given = (options.chunks or 1) > 1, options.schedule != USUAL_SCHEDULE
    pp, ep = options.pp or 1, options.ep or 1
    overlaps = options.expert_overlap
    if overlaps and ep > 1 and pp > 1 and not (chunked or given):
        raise PlanError(
            f"expert_overlap with pp {pp}: expected chunks of at least 2, Megatron-LM overlaps "
            "exchanges between experts in its interleaved schedule alone"
        )
    if given:
        if overlaps is not None and ep > 1 and overlaps != _is_paired(options):
            raise PlanError(
                f"expert_overlap is {'on' if overlaps else 'off'} with schedule "
                f"{OPTIONS['schedule'].text(options.schedule)}: expected {PAIRED} if it is on, "
                "another schedule if it is off"
            )
        return options
    if as_jobs_run(options, setup)[0].expert_overlap and ep > 1 and chunked == (pp > 1):
        return replace(options, schedule=PAIRED)
    return replace(options, schedule="interleaved") if chunked else options


def _is_paired(options: StepOptions) -> bool:
    """Whether the schedule runs a forward and a backward as one."""
    schedule = options.schedule
    name = parse_name(schedule)[0] if isinstance(schedule, str) else schedule.name
    return name == PAIRED


def chunks_of(options: StepOptions, pp: int) -> int:
    """Virtual stages of a rank, as the schedule has them."""
    schedule = options.schedule
    if isinstance(schedule, Schedule):
        return schedule.placement.stages // schedule.placement.ranks
    held = options.chunks or parse_name(schedule)[1]
    if needs_times(schedule) or pp == 1 or (held or 1) > 1:
        return held or 1
    placement = build(schedule, ranks=pp, microbatches=2 * pp, chunks=held).placement
    return placement.stages // placement.ranks


# the plan


def planned(setup: StepModel, topology: Topology, options: StepOptions) -> tuple[Plan, list[str]]:
    """The plan of a model under the options asked for, and what was assumed; raises PlanError.

    What these leave open is as jobs of the framework have it, then as a public recipe of the model
    says.
    """
    run, defaults = as_jobs_run(options, setup)
    plan, notes = _as_asked(run, topology.default_npus)
    plan = replace(plan, layout=asked_layout(setup, run, plan.stages))
    plan, told = with_recipe(options, plan, setup)
    plan = replace(plan, expert_overlap=_is_paired(options))
    if "dp_overlap" in defaults and plan.replicas == 1:
        plan = replace(plan, dp_overlap=False)
    name = plan.layout.text()
    if name in _COUNTED_ENDS and options.layout != name:  # ends that nobody asked to count
        megatron = "" if name == "even" else ", Megatron-LM's --account-for-...-in-pipeline-split"
        notes.append(
            f"{setup.architecture.depth} layers over {plan.stages} virtual stages: "
            f"{_COUNTED_ENDS[name]} (--layout {name}{megatron})"
        )
    own = {name: each for name, each in defaults.items() if getattr(plan, name) == each}
    notes += [*_said_of_defaults(setup.framework, plan, own), *told]
    if options.calibration:
        notes += options.calibration.said(setup.device, setup.framework, plan.precision)
        notes += options.calibration.said_of_interval(
            setup.device, setup.framework, plan, setup.architecture
        )
    return plan, notes


def as_jobs_run(options: StepOptions, setup: StepModel) -> tuple[StepOptions, Mapping[str, object]]:
    """The options with the framework's defaults where nothing was asked, and these defaults.

    Collectives of tp are pipelined with sequence parallelism alone: Transformer Engine refuses it
    without.
    """
    known = setup.framework.job_options
    if not options.sequence_parallel and "tp_comm_overlap" in known:
        known = known | {"tp_comm_overlap": False}
    unsaid: Values = {
        name: value for name, value in known.items() if getattr(options, name) is None
    }
    return replace(options, **unsaid), unsaid


def job_size(options: StepOptions, default_npus: int) -> int:
    """NPUs of a job: those asked for, else so many, rounded up to what its degrees divide.

    Experts lie within a stage. For example tp 8 and pp 4 on a machine of 8 NPUs are 32.
    """
    names = ("tp", "cp", "pp", "ep", "expert_tp")
    tp, cp, pp, ep, expert_tp = (getattr(options, name) or 1 for name in names)
    return options.npus or filled(default_npus, pp, tp * cp, ep * expert_tp)


def _as_asked(options: StepOptions, default_npus: int) -> tuple[Plan, list[str]]:
    """The plan that the options say but its layout, and what was assumed; raises PlanError."""
    notes: list[str] = []
    tp, cp, pp = (getattr(options, name) or 1 for name in ("tp", "cp", "pp"))
    npus = job_size(options, default_npus)
    if options.npus is None:
        notes.append(assumed("npus", npus))
    dp, rest = divmod(npus, tp * cp * pp)
    if rest:
        raise PlanError(f"npus is {npus}: expected a multiple of tp*cp*pp, {tp * cp * pp}")
    if options.sequence is None:
        notes.append(SEQUENCE_ASSUMED)
    batch = batch_of(options, dp * options.samples, pp)
    if options.global_batch is None and options.microbatches is None:
        tokens = batch * (options.sequence or DEFAULT_SEQUENCE) / 1e6
        each = f"{batch // (dp * options.samples)} microbatches of each pipeline"
        said = f"{batch} samples ({tokens:.3g} million tokens, {each}), near 4 million tokens"
        notes.append(assumed("global_batch", said))
    fields = plan_fields(options) | {"dp": dp, "chunks": chunks_of(options, pp)}
    plan = Plan.of_batch(global_batch=batch, **fields)
    check_counts(plan)
    return plan, notes


def plan_fields(options: StepOptions) -> Values:
    """Fields of a plan that options say; none that follow from several of them."""
    found = {name: value for name in _NAMED if (value := getattr(options, name)) is not None}
    sequence = options.sequence or DEFAULT_SEQUENCE
    known = options.framework if isinstance(options.framework, Framework) else None
    context = options.cp_comm or (known.context if known else ContextParallel()).exchange
    return {**found, "context": context, "sequence": sequence}


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


def asked_layout(setup: StepModel, options: StepOptions, stages: int) -> LayerLayout:
    """The layout asked for, else the framework's; it is resolved when the plan is checked.

    A framework that balances stages shares blocks out by cost, others equally, or as evenly as
    layers and virtual stages allow.
    """
    architecture = setup.architecture
    if options.layout is None and setup.framework.balances_stages:
        return layout_of_costs(architecture, stages)
    ahead, depth = len(architecture.prediction_layers), architecture.depth
    found = named_layout(options.layout or "equal", ahead).counting_ends(depth, stages)
    uneven = found.equal and depth % stages and stages < depth
    return named_layout("even") if options.layout is None and uneven else found


_COUNTED_ENDS = {
    "even": "some stages have a layer more than others",
    "ends": "embedding and loss count as layers",
    "embedding": "the embedding counts as a layer",
    "head": "the loss counts as a layer",
}


def _said_of_defaults(
    framework: Framework, plan: Plan, defaults: Mapping[str, object]
) -> Iterator[str]:
    """A sentence about the defaults that a plan has of its framework, and could run without."""
    replicas, experts = plan.replicas > 1, plan.ep > 1
    matters = {
        "zero": replicas,
        "dp_overlap": replicas and plan.zero < 2,
        "reshard": replicas and plan.zero == 3,
        "tp_comm_overlap": plan.tp > 1,
        **dict.fromkeys(("dispatch", "shared_overlap", "delay_wgrad"), experts),
        "cuda_graph": plan.cuda_graph,
    }
    # an overlap of experts is not among them: its schedule says it
    shown = {name: value for name, value in defaults.items() if matters.get(name)}
    if shown:
        texts = ", ".join(f"{name} {OPTIONS[name].text(value)}" for name, value in shown.items())
        yield f"defaults of {framework.name}: {texts} (as its jobs run)"


# public recipes


def with_recipe(asked: StepOptions, plan: Plan, setup: StepModel) -> tuple[Plan, list[str]]:
    """A plan with what a public recipe of its model sets beside the options asked for.

    What it sets is told; nothing where there is no recipe. A layout that is not of so many layers
    is left out, and modules where anything else is recomputed.
    """
    framework, model = setup.framework, setup.architecture.name
    recipes = framework.recipes
    if not (asked.recipe and recipes):
        return plan, []
    degrees = {"tp": plan.tp, "pp": plan.pp, "chunks": plan.chunks, "zero": plan.zero}
    nothing = Recipe(model=model)
    found = next((each for each in recipes if each.suits(**degrees)), nothing)
    states = next((each for each in recipes if each.states), nothing)
    fields = dict(_set_by(found, asked, plan, setup.architecture))
    held = states.states.changed if states.states else {}
    told = ", ".join(_said({name: getattr(found, name) for name in fields} | held))
    if not told:
        return plan, []
    source = (found if fields else states).source
    where = f"{source}; " if source else ""
    return replace(plan, **fields), [
        f"public recipe of {model} for {framework.name}: {told} ({where}--no-recipe turns it off)"
    ]


def _set_by(
    recipe: Recipe, asked: StepOptions, plan: Plan, architecture: Architecture
) -> Iterator[tuple[str, Any]]:
    """Fields of a plan that a recipe sets where nobody asked."""
    if asked.zero is None and recipe.zero not in (None, plan.zero):
        yield "zero", recipe.zero
    if asked.dispatch is None and recipe.dispatch not in (None, plan.dispatch) and plan.ep > 1:
        yield "dispatch", recipe.dispatch
    if asked.recompute is None and plan.recompute is Recompute.NONE:
        if recipe.recompute_modules:
            yield "recompute_modules", recipe.recompute_modules
        if recipe.offload_layers:
            yield "offload_layers", recipe.offload_layers
    if asked.layout is None and recipe.layout is not None:
        ahead = len(architecture.prediction_layers)
        with suppress(PlanError):  # one of so many layers and virtual stages
            layout = named_layout(recipe.layout, ahead)
            layout.resolve(architecture.depth, ahead, plan.stages)
            yield "layout", layout


def _said(values: Mapping[str, Any]) -> Iterator[str]:
    """Words about values that a recipe sets, of a plan or of its framework."""
    for name, words in _SET.items():
        if name in values:
            value, between = values[name], " and " if name == "recompute_modules" else ", "
            yield words.format(between.join(value) if isinstance(value, tuple) else value)


# Words about the fields that a recipe sets, in the order in which they are said.
_SET = {
    "zero": "zero {}",
    "dispatch": "dispatch {}",
    "layout": "layout {}",
    "recompute_modules": "recompute {}",
    "offload_layers": "activations of {} layers wait in the host's memory (no time)",
    "gradient_bytes": "gradients of {} bytes",
    "optimizer_bytes": "optimizer of {:g} bytes a parameter",
    "gate_bytes": "inputs of experts' activations of {:g} bytes",
    "result_bytes": "results of attention of {:g} bytes",
    "casts_weights": "weights in 8 bits alone",
    "drops_cast_norms": "nothing kept of what norms make",
    "graph_scopes": "CUDA graphs of {}",
    "pads_experts": "experts with as many tokens as fit",
    "free_sms": "products that leave {} SMs free",
}


def interconnect_of(topology: Topology) -> Interconnect:
    """The innermost dimension, and the slowest of those outside it.

    Where NPUs of a domain are cabled to each other, an NPU has all its cables; of a ring or a torus
    it has the two of one axis, where the library sends both ways.
    Raises TopologyError for listed links: they have no dimensions.
    """
    if not isinstance(topology, NestedTopology):
        raise TopologyError(f"{topology.name}: a closed form needs nested dimensions, not links")
    # payload bytes/s of an NPU's links, one way
    rates = [
        each.link.capacity * each.ports.nics / each.ports.npus_per_nic
        for each in topology.dimensions
    ]
    inside = topology.dimensions[0]
    slowest = min(range(1, len(rates)) or [0], key=rates.__getitem__)
    match inside.kind:  # cables of an NPU that carry a collective; 1 where it is cabled to a switch
        case DimensionKind.FULLY_CONNECTED:
            cables: float = max(inside.size - 1, 1)
        case DimensionKind.CABLES if inside.cables:
            cables = 2 * len(inside.cables) / inside.size
        case DimensionKind.RING | DimensionKind.TORUS:
            known = topology.algorithms  # those of the library, none for all of them
            cables = 1 if known and Algorithm.BIDIRECTIONAL_RING not in known else 2
        case _:
            cables = 1
    links = inside.link, topology.dimensions[slowest].link
    inner_ps, outer_ps = (each.endpoint_latency_ps + 2 * each.latency_ps for each in links)
    return Interconnect(
        domain=inside.size,
        inner=rates[0] * cables,
        outer=rates[slowest],
        launch_ps=topology.launch_latency_ps,
        inner_ps=inner_ps,
        outer_ps=outer_ps,
        meshed=inside.kind is DimensionKind.FULLY_CONNECTED and inside.size > 1,
        cables=cables,
    )
