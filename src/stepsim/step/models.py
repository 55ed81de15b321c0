"""A model as a workload: its plan by the options asked for, and the rows that these make.

Device and framework are taken with what was measured of them.
"""

from collections.abc import Iterator
from typing import Any

from stepsim.base.errors import PlanError, TopologyError
from stepsim.base.structs import replace
from stepsim.network.placement import place
from stepsim.network.topology import Topology
from stepsim.network.two_levels import interconnect_of
from stepsim.options import OPTIONS, StepOptions
from stepsim.parallel.modes import RankOrder
from stepsim.parallel.ranks import ParallelPlan
from stepsim.parallel.schedules import parse_name
from stepsim.parallel.schedules.combined_1f1b import PAIRED
from stepsim.step.default_plan import PlanChooser
from stepsim.step.inputs import BuiltModel, MadeWork
from stepsim.step.model_plan import (
    ByRecipe,
    as_jobs_run,
    by_recipe,
    chunks_of,
    model_plan,
    said_of_defaults,
    said_of_recipe,
)
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.build import build_workload
from stepsim.workload.model.calibration import LEAST_JOBS
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.device import Device
from stepsim.workload.model.effort import error_band
from stepsim.workload.model.framework import Framework, RecipeShape
from stepsim.workload.model.interconnect import Interconnect
from stepsim.workload.model.model import Model
from stepsim.workload.model.plan import ModelPlan, check_plan

_MOST_CHUNKS = 1 << 20


def work_of_model(model: Model, topology: Topology, options: StepOptions) -> MadeWork:
    """A model's workload under its plan; raises PlanError, whose text begins with its name."""
    try:
        degrees, said = degrees_of_model(model, topology, options)
        asked = options = replace(options, **degrees)
        device, framework = machine_of(topology, options, model.architecture)
        options = _with_chunks(options, device, framework)
        if options.schedule == PAIRED != asked.schedule and not asked.expert_overlap:
            said = [*said, f"schedule {PAIRED}: so jobs of {framework.name} run"]
        run = as_jobs_run(options, device, framework, model.architecture)
        recipe = _recipe(options, run.options, device, framework, model.architecture)
        plan, notes = model_plan(model, topology, replace(run.options, **recipe.options))
        plan = replace(plan, **recipe.fields, expert_overlap=_is_paired(options))
        if "dp_overlap" in run.assumed and plan.dp * plan.cp == 1:
            plan = replace(plan, dp_overlap=False)
        assumed = {name: run.assumed[name] for name in run.assumed if name not in recipe.options}
        notes += [*said, *said_of_defaults(framework, plan, assumed)]
        notes += said_of_recipe(model.architecture, framework, recipe)
        notes += said_of_calibration(device, framework, options)
        notes += _said_of_interval(model.architecture, plan, device, framework, options)
        check_plan(model.architecture, plan)
        network = place(topology, _parallel_plan(plan, options), options.placement)
        interconnect = _interconnect(network)
        workload = build_workload(model, plan, device, framework, interconnect)
    except PlanError as error:
        raise PlanError(f"{model.source}: {error}") from None
    if _is_ideal(topology) and workload.effort is not None:
        workload = replace(workload, effort=replace(workload.effort, band=None))
        notes.append(
            f"{topology.name}: ideal links, no efficiency, no protocols, so no range (base = "
            '"hgx-h100" in its file takes those of a machine)'
        )
    if plan.dp_overlap and plan.zero < 2:
        options = replace(options, dp_overlap=True)
    sized = replace(
        options,
        npus=plan.npus,
        pp=plan.pp,
        microbatches=plan.microbatches,
        global_batch=None,
        microbatch_size=1,
    )
    built = BuiltModel(
        architecture=model.architecture,
        plan=plan,
        device=device,
        framework=framework,
        interconnect=interconnect,
    )
    return MadeWork(
        workload=workload, options=options, sized=sized, built=built, notes=tuple(notes)
    )


def degrees_of_model(
    model: Model, topology: Topology, options: StepOptions, least_pp: int = 1
) -> tuple[dict[str, Any], list[str]]:
    """What the options do not say of the plan that fits, and a note about it."""
    chooser = plan_chooser(model.architecture, topology, options)
    return replace(chooser, least_pp=least_pp).choose()


def plan_chooser(
    architecture: Architecture, topology: Topology, options: StepOptions
) -> PlanChooser:
    """What finds plans of a model that fit, beside the options; raises PlanError."""
    device, framework = machine_of(topology, options, architecture)
    return PlanChooser(
        architecture=architecture,
        topology=topology,
        device=device,
        framework=framework,
        options=options,
    )


def _recipe(
    asked: StepOptions,
    run: StepOptions,
    device: Device,
    framework: Framework,
    architecture: Architecture,
) -> ByRecipe:
    """What a public recipe sets beside what was asked; `run` has the framework's defaults too."""
    pp, degrees = run.pp or 1, None
    if framework.knows(architecture.name, device.name, asked.precision or Precision.BF16):
        chunks, zero = chunks_of(run, pp), run.zero or 0
        degrees = RecipeShape(tp=run.tp or 1, pp=pp, chunks=chunks, zero=zero)
    return by_recipe(asked, degrees, device, framework, architecture)


def _parallel_plan(plan: ModelPlan, options: StepOptions) -> ParallelPlan:
    """The degrees of a model's plan, and where its ranks lie."""
    return ParallelPlan(
        tp=plan.tp,
        cp=plan.cp,
        dp=plan.dp,
        pp=plan.pp,
        ep=plan.ep,
        expert_tp=plan.expert_degree,
        rank_order=options.rank_order or RankOrder.TP_DP_PP,
    )


def _with_chunks(options: StepOptions, device: Device, framework: Framework) -> StepOptions:
    """Chunks alone ask for the interleaved schedule, as Megatron-LM's arguments do.

    Of jobs with experts it is the one that overlaps their exchanges, if that is asked for or the
    framework's jobs do; without a pipeline too. Raises PlanError where no schedule overlaps them.
    """
    chunked, given = (options.chunks or 1) > 1, options.schedule != OPTIONS["schedule"].default
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
    if overlaps is None:
        overlaps = framework.overlaps_experts_on(device.name, options.precision or Precision.BF16)
    if overlaps and ep > 1 and chunked == (pp > 1):
        return replace(options, schedule=PAIRED)
    return replace(options, schedule="interleaved") if chunked else options


def _is_paired(options: StepOptions) -> bool:
    """Whether the schedule runs a forward and a backward as one."""
    schedule = options.schedule
    name = parse_name(schedule)[0] if isinstance(schedule, str) else schedule.name
    return name == PAIRED


def machine_of(
    topology: Topology, options: StepOptions, architecture: Architecture | None = None
) -> tuple[Device, Framework]:
    """What a model runs on and is trained with; raises PlanError where either is not known.

    Of an `architecture` the framework has the bytes of states that its public recipe says.
    """
    device, framework = options.device, options.framework
    if not isinstance(device, Device):
        raise PlanError(
            f"device is missing: topology {topology.name} names none, and compute times are those "
            'of a device: expected --device, e.g. h100, or device = "h100" in the topology file'
        )
    if not isinstance(framework, Framework):
        raise PlanError(
            "framework: expected a training framework, e.g. megatron-core (--framework)"
        )
    precision = options.precision or Precision.BF16
    framework = framework.of_casts if precision.casts else framework
    if architecture is not None:
        framework = framework.of_job(device.name, precision, sparse=architecture.is_sparse)
    if architecture is not None and options.recipe:
        framework = framework.of_model(architecture.name, device.name, precision)
    if options.states is not None:
        framework = replace(framework, **options.states.held)
    if options.loss_chunks is not None:
        if not 1 <= options.loss_chunks <= _MOST_CHUNKS:
            raise PlanError(f"loss_chunks is {options.loss_chunks}: expected 1 to {_MOST_CHUNKS}")
        framework = replace(framework, loss_chunks=options.loss_chunks)
    if options.overlap_cost:  # what gathers take of compute is part of it
        framework = replace(framework, fsdp_slowdown=0.0)
    return as_measured(device, framework, options)


def _is_ideal(topology: Topology) -> bool:
    """Whether links carry all that they are said to, by a library of no cost."""
    lossless = all(link.efficiency == 1 for link in topology.link_classes)
    return lossless and not topology.library.protocols


def _interconnect(network: Topology) -> Interconnect | None:
    """The network in two levels; None where it has no dimensions."""
    try:
        return interconnect_of(network)
    except TopologyError:
        return None


def as_measured(
    device: Device, framework: Framework, options: StepOptions
) -> tuple[Device, Framework]:
    """Both with the calibration asked for, in the precision asked for."""
    if options.calibration is None:
        return device, framework
    return options.calibration.apply(device, framework, options.precision or Precision.BF16)


def said_of_calibration(device: Device, framework: Framework, options: StepOptions) -> list[str]:
    """What the calibration asked for rests on."""
    if options.calibration is None:
        return []
    precision = options.precision or Precision.BF16
    machine = f"{device.name}, {framework.name}, {precision}"
    found = options.calibration.factor_of(device, framework, precision)
    rates = [
        f"calibrated: products of {device.name} in {precision} at {each.rate / 1e12:.0f} "
        f"TFLOP/s, from {each.shapes} shapes"
        for each in options.calibration.rates
        if (each.device, each.precision) == (device.name, precision)
    ]
    rates += _said_of_kernels(device, framework, options)
    if found:
        return [
            *rates,
            f"calibrated: compute takes {found.factor:.3f} of the prediction on {machine}, from "
            f"{found.runs} steps, each within {found.spread:.1%}",
        ]
    return rates or [f"the calibration has no factor of {machine}: predicted without"]


def _said_of_kernels(device: Device, framework: Framework, options: StepOptions) -> Iterator[str]:
    """What the calibration asked for learned of kernels."""
    precision = options.precision or Precision.BF16
    known = options.calibration
    kernels = known.kernels_of(device, framework, precision) if known else ()
    if kernels:
        factors = ", ".join(f"{each.kernels} {each.factor:.3f}" for each in kernels)
        count = sum(each.count for each in kernels)
        yield f"calibrated: kernels take of their prediction, from {count:,} kernels: {factors}"


def _said_of_interval(
    architecture: Architecture,
    plan: ModelPlan,
    device: Device,
    framework: Framework,
    options: StepOptions,
) -> Iterator[str]:
    """Why the interval of a step that traces calibrated is not theirs."""
    known = options.calibration
    if not (known and known.kernels_of(device, framework, plan.precision)):
        return
    kind = {"sparse": architecture.is_sparse, "mixes": architecture.mixes}
    if any(
        band.traced and (band.sparse, band.mixes) == (*kind.values(),) for band in framework.errors
    ):
        band = error_band(framework, device, plan, **kind)
        if not (band and band.traced):
            yield (
                "the interval is not that of the calibration: the step is larger, its sequence "
                "longer or its cp higher than those of the traces that it was held against"
            )
        return
    jobs = {s.job for s in known.held if (s.experts, s.mixes) == (*kind.values(),)}
    yield (
        f"the interval is not that of the calibration: it was held against {len(jobs)} jobs of "
        f"this kind of model, and {LEAST_JOBS} are needed"
    )
