"""Whether a step of a model can be, and whether its answer can: what ranks hold, and a second look.

What ranks hold fits their device, or what would fit is said. A step is held against the peak of its
device and the closed form of its plan. Where it is further from it than predictions of its kind are
from measured steps, something is wrong with the question or with the answer, and that is said.
"""

from collections.abc import Iterator

import numpy as np

from stepsim.base.option import Panel
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S, format_size_bytes, format_time_ps
from stepsim.explain.memory import HeldBytes, MemoryPart, StepMemory
from stepsim.explain.report import Finding
from stepsim.options import OPTIONS
from stepsim.parallel.schedules import Schedule
from stepsim.parallel.schedules.combined_1f1b import PAIRED
from stepsim.step.default_plan import remedy
from stepsim.step.job import Job
from stepsim.step.size import whole_bytes
from stepsim.workload.model.choices import Recompute, StateFormat
from stepsim.workload.model.device import Device
from stepsim.workload.model.evidence import Evidence, source_of
from stepsim.workload.model.memory import TIGHT_SHARE, rank_parts
from stepsim.workload.model.parts import NO_NETWORK
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan, PlanTable
from stepsim.workload.rows import Workload

_STATES = MemoryPart.WEIGHTS, MemoryPart.GRADIENTS, MemoryPart.OPTIMIZER, MemoryPart.BUFFERS


def bytes_of_ranks(setup: StepModel, plan: Plan, schedule: Schedule) -> HeldBytes:
    """Bytes that ranks hold of a model under a schedule; raises PlanError where they are absurd."""
    placement = schedule.placement
    ranks, chunks = range(placement.ranks), range(placement.chunks)
    places = tuple(tuple(placement.stage(rank, chunk) for chunk in chunks) for rank in ranks)
    parts = rank_parts(setup.architecture, setup.framework, [plan], places)
    return HeldBytes(
        activations=whole_bytes(parts.activations[0], schedule),
        logits=whole_bytes(parts.logits[0], schedule),
        recomputed=whole_bytes(parts.working[0]),
        fixed={
            **{part: whole_bytes(getattr(parts, part)[0]) for part in _STATES},
            MemoryPart.RESERVED: np.full(placement.ranks, setup.device.reserved_bytes),
        },
    )


def too_large(job: Job, memory: StepMemory) -> str:
    """That the step of a model does not fit, and the flags by which it would: plans are looked at.

    Its fullest rank holds more bytes than its device has.
    """
    assert job.setup is not None
    said = f"{_filled(memory.total_bytes, job.setup.device)}: it does not fit"
    flags, states = remedy(job.asked, job.plan), _in_bf16(job.setup, job.plan)
    way = f"fits with {flags}" if flags else "no plan that fits is known"
    way += f"; as it is with {states}" if states else ""
    return f"{said}, times and rates are those if it fitted ({way})"


def _in_bf16(setup: StepModel, plan: Plan) -> str:
    """Flags by which a plan fits with gradients and optimizer in bf16; empty where none."""
    setup = replace(setup, framework=replace(setup.framework, **StateFormat.BF16.held))
    plans = [plan, replace(plan, recompute=Recompute.FULL)]
    share = setup.memory(plans).share_of(setup.device)
    flags = ("--states bf16", "--states bf16 --recompute full")
    fits = (share < TIGHT_SHARE).tolist()
    return next((each for each, fit in zip(flags, fits, strict=True) if fit), "")


def with_memory(memory: StepMemory | None, job: Job) -> tuple[Workload, list[str]]:
    """A model's workload with the memory of its fullest rank, and a warning if there is no room."""
    work, setup = job.workload, job.setup
    if memory is None or setup is None or work.effort is None:
        return work, []
    held, device = memory.total_bytes, setup.device
    effort = replace(work.effort, memory_bytes=held, capacity_bytes=device.memory_bytes)
    tight = TIGHT_SHARE <= held / device.memory_bytes <= 1
    cost = "retries of the allocator cost published runs 20 to 30 % there"
    said = [f"{_filled(held, device)}: {cost}"] if tight else []
    return replace(work, effort=effort), said


def _filled(held: int, device: Device) -> str:
    capacity = device.memory_bytes
    sizes = f"{format_size_bytes(held)} of {format_size_bytes(capacity)}"
    return f"the fullest rank holds {sizes} on {device.name}, {held / capacity:.0%}"


# Options that the other answers know of, too, or that change a step by little.
_COUNTED = frozenset(
    name
    for name, option in OPTIONS.items()
    if option.panel in (Panel.JOB, Panel.MODEL, Panel.RUN)
    or name in ("schedule", "chunks", "dp_overlap", "contention")
)

# Schedules that the closed form of a plan knows.
_CLOSED_FORMS = ("1f1b", "interleaved", PAIRED)

# A guess: factors on a step where nothing is known of predictions of its kind.
_RANGE = (0.8, 1.25)


def second_look(job: Job, step_time_ps: int) -> Iterator[Finding]:
    """Where a step time is further from another answer than predictions are known to be.

    That nothing is known of the device is said first. Nothing is said of a workload file's step.
    """
    setup, effort = job.setup, job.given.effort
    if not (setup and effort and step_time_ps):
        return
    sparse = setup.architecture.is_sparse
    said = _said_of_device(setup.device, setup.framework.name, sparse=sparse)
    if said and effort.band is None:
        yield Finding(text=said)
    step_s = step_time_ps / PS_PER_S
    rate = effort.hardware_flops / job.plan.npus / step_s
    if rate > effort.peak_flops:
        yield Finding(
            text=f"no {effort.device} is so fast: {rate / 1e12:,.0f} TFLOP/s in "
            f"{job.plan.precision}, of which it has {effort.peak_flops / 1e12:,.0f}"
        )
    if not all(option.name in _COUNTED for option in job.asked.options.changed()):
        return
    seconds, band = closed_form_s(job), effort.band
    low, high = (band.low, band.high) if band and band.others else _RANGE
    if seconds is not None and not low <= seconds / step_s <= high:
        said = format_time_ps(round(seconds * PS_PER_S))
        yield Finding(
            text=f"the closed form of this plan says {said}: "
            "what it leaves out (groups that share links, stages that differ) is more than "
            "predictions of this kind are off; the parts of the step say what it is"
        )


def closed_form_s(job: Job) -> float | None:
    """Seconds of the step by the closed form of its plan; None where there is none."""
    setup, known = job.setup, job.options.schedule in _CLOSED_FORMS
    if setup is None or setup.interconnect == NO_NETWORK or not known:
        return None
    return float(setup.seconds(PlanTable([job.plan]))[0])


def _said_of_device(device: Device, framework: str, *, sparse: bool) -> str:
    """That no run on a device told how fast steps on it are; empty where some did.

    The words are of steps with a framework, of models that are `sparse` or dense: no run of that
    kind on the device was compared.
    """
    sustained = source_of(device.sources.get("sustained"))
    if sustained.evidence in (Evidence.UNSAID, Evidence.FITTED):
        return ""
    rate = source_of(device.sources.get("rate"))
    kind = "model with experts" if sparse else "dense model"
    return (
        f"no run of a {kind} on {device.name} with {framework} was held against predictions: the "
        f"error of the step is unknown (rates of products are {rate.brief})"
    )
