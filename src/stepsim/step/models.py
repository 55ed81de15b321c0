"""A model as a workload: its plan by the options asked for, and the rows that these make."""

from dataclasses import replace
from math import lcm
from typing import Any

from stepsim.base.errors import PlanError, TopologyError
from stepsim.network.topology import Topology
from stepsim.network.two_levels import interconnect_of
from stepsim.options import OPTIONS, StepOptions
from stepsim.parallel.schedules import Schedule, build, needs_times, parse_name
from stepsim.step.calibrated import as_measured, said_of_calibration
from stepsim.step.work import BuiltModel, MadeWork
from stepsim.workload.model.building.build import build_workload
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.interconnect import Interconnect
from stepsim.workload.model.layout import named_layout
from stepsim.workload.model.model import Model
from stepsim.workload.model.plan import ModelPlan, check_plan

DEFAULT_SEQUENCE = 4096
"""Tokens of a sample where nobody says it."""
_PLAN_FIELDS = (
    *("expert_tp", "precision", "recompute", "recompute_layers", "zero", "shard_ranks"),
    *("attention", "dispatch"),
)
_PLAN_SWITCHES = ("sequence_parallel", "reshard", "tp_comm_overlap", "dp_overlap", "cuda_graph")


def work_of_model(model: Model, topology: Topology, options: StepOptions) -> MadeWork:
    """A model's workload under its plan; raises PlanError, whose text begins with its name."""
    options = _with_chunks(options)
    try:
        plan, notes = model_plan(model, topology, options)
        device, framework = machine_of(topology, options)
        notes += said_of_calibration(device, framework, options)
        check_plan(model.architecture, plan)
        network = topology.fit(plan.npus)
        workload = build_workload(model, plan, device, framework, _interconnect(network))
    except PlanError as error:
        raise PlanError(f"{model.source}: {error}") from None
    if not framework.overlaps_input_gradient:
        options = replace(options, tp_overlap=False)
    sized = replace(
        options,
        npus=plan.npus,
        pp=plan.pp,
        microbatches=plan.microbatches,
        global_batch=None,
        microbatch_size=1,
    )
    built = BuiltModel(
        architecture=model.architecture, plan=plan, device=device, framework=framework
    )
    return MadeWork(
        workload=workload, options=options, sized=sized, built=built, notes=tuple(notes)
    )


def _with_chunks(options: StepOptions) -> StepOptions:
    """Chunks alone ask for the interleaved schedule, as Megatron-LM's arguments do."""
    default = OPTIONS["schedule"].default
    if (options.chunks or 1) > 1 and options.schedule == default:
        return replace(options, schedule="interleaved")
    return options


def model_plan(
    model: Model, topology: Topology, options: StepOptions
) -> tuple[ModelPlan, list[str]]:
    """The plan of a model under the options asked for, and what was assumed; raises PlanError."""
    if options.plan is not None:
        raise PlanError("plan: a model takes its degrees one by one (tp, cp, pp, ...)")
    notes: list[str] = []
    tp, cp, pp, ep = (getattr(options, name) or 1 for name in ("tp", "cp", "pp", "ep"))
    for name in ("tp", "cp", "pp", "ep", "expert_tp", "npus", "sequence", "shard_ranks"):
        if getattr(options, name) == 0:
            raise PlanError(f"{name} is 0: expected at least 1")
    dp = _replicas(topology, options, tp * cp * pp, ep, notes)
    sequence = options.sequence
    if sequence is None:
        sequence = DEFAULT_SEQUENCE
        notes.append(f"no sequence given: stepsim assumes {sequence} tokens (--sequence sets it)")
    named: dict[str, Any] = {
        name: value for name in _PLAN_FIELDS if (value := getattr(options, name)) is not None
    }
    if options.cp_comm is not None:
        named["context"] = options.cp_comm
    switches: dict[str, Any] = {name: getattr(options, name) for name in _PLAN_SWITCHES}
    size = options.microbatch_size
    layout = named_layout(options.layout or "equal", len(model.architecture.prediction_layers))
    plan = ModelPlan(
        tp=tp,
        cp=cp,
        dp=dp,
        pp=pp,
        ep=ep,
        chunks=_chunks(options, pp),
        microbatch_size=size,
        global_batch=_global_batch(options, dp, pp, notes),
        sequence=sequence,
        layout=layout,
        **named,
        **switches,
    )
    return plan, notes


def _replicas(
    topology: Topology, options: StepOptions, split: int, ep: int, notes: list[str]
) -> int:
    """Data-parallel degree of the NPUs asked for, else of the topology's."""
    npus = options.npus
    if npus is None:
        unit = lcm(split, ep)
        npus = -(-topology.default_npus // unit) * unit
        notes.append(f"no npus given: stepsim assumes {npus} (--npus sets it)")
    if npus % split:
        raise PlanError(f"npus is {npus}: expected a multiple of tp*cp*pp, {split}")
    return npus // split


def _global_batch(options: StepOptions, dp: int, pp: int, notes: list[str]) -> int:
    """Samples of a step; without any, four microbatches for each pipeline stage."""
    samples = dp * options.microbatch_size
    if options.global_batch is not None:
        if options.microbatches is not None:
            raise PlanError("global_batch and microbatches contradict each other: give one of them")
        return options.global_batch
    if options.microbatches is not None:
        return options.microbatches * samples
    batch = default_batch(samples, pp)
    notes.append(
        f"no global_batch given: stepsim assumes {batch} samples, {batch // samples} microbatches "
        "of each pipeline (--global-batch sets it)"
    )
    return batch


def default_batch(samples: int, pp: int) -> int:
    """Samples of a step where nobody says it; a microbatch of all pipelines has `samples`."""
    return (4 * pp if pp > 1 else 1) * samples


def _chunks(options: StepOptions, pp: int) -> int:
    """Virtual stages of a rank, as the schedule has them."""
    schedule = options.schedule
    if isinstance(schedule, Schedule):
        return schedule.placement.stages // schedule.placement.ranks
    held = options.chunks or parse_name(schedule)[1]
    if needs_times(schedule) or pp == 1:
        return held or 1
    placement = build(schedule, ranks=pp, microbatches=2 * pp, chunks=held).placement
    return placement.stages // placement.ranks


def machine_of(topology: Topology, options: StepOptions) -> tuple[Device, Framework]:
    """What a model runs on and is trained with; raises PlanError where either is not known."""
    device, framework = options.device, options.framework
    if not isinstance(device, Device):
        raise PlanError(
            f"device: topology {topology.name} names none, so no time of an operator is known: "
            "expected a device, e.g. h100 (--device)"
        )
    if not isinstance(framework, Framework):
        raise PlanError(
            "framework: expected a training framework, e.g. megatron-core (--framework)"
        )
    precision = options.precision
    framework = framework.of_casts if precision and precision.casts else framework
    return as_measured(device, framework, options)


def _interconnect(network: Topology) -> Interconnect | None:
    """The network in two levels; None where it has no dimensions."""
    try:
        return interconnect_of(network)
    except TopologyError:
        return None
