"""What ranks of a model hold, whether it fits, and what would."""

import numpy as np

from stepsim.base.structs import Noun, replace
from stepsim.base.units import format_size_bytes
from stepsim.explain.memory import HeldBytes, MemoryPart, StepMemory
from stepsim.network.topology import Topology
from stepsim.parallel.schedules import Schedule
from stepsim.step.default_plan import remedy
from stepsim.step.job import Job
from stepsim.step.model_plan import setup_of
from stepsim.step.size import whole_bytes
from stepsim.workload.model.choices import Recompute, StateFormat
from stepsim.workload.model.device import Device
from stepsim.workload.model.memory import TIGHT_SHARE, rank_parts
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Workload


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
            MemoryPart.WEIGHTS: whole_bytes(parts.weights[0]),
            MemoryPart.GRADIENTS: whole_bytes(parts.gradients[0]),
            MemoryPart.OPTIMIZER: whole_bytes(parts.optimizer[0]),
            MemoryPart.BUFFERS: whole_bytes(parts.buffers[0]),
            MemoryPart.RESERVED: np.full(placement.ranks, setup.device.reserved_bytes),
        },
    )


class TooLarge(Noun):
    """A step of a model whose fullest rank holds more bytes than its device has.

    `job` is that on a `topology`.
    """

    job: Job
    setup: StepModel
    topology: Topology
    bytes_of_ranks: int

    def text(self) -> str:
        """That the step does not fit, and the flags by which it would: plans are looked at."""
        said = f"{_filled(self.bytes_of_ranks, self.setup.device)}: it does not fit"
        setup = setup_of(self.topology, self.job.asked, self.setup.architecture)
        flags = remedy(setup, self.topology, self.job.asked, self.job.plan)
        way = f"fits with {flags}" if flags else "no plan that fits is known"
        way += f"; as it is with {self._in_bf16}" if self._in_bf16 else ""
        return f"{said}, times and rates are those if it fitted ({way})"

    @property
    def _in_bf16(self) -> str:
        """Flags by which the plan fits with gradients and optimizer in bf16; empty where none."""
        setup, plan = self.setup, self.job.plan
        setup = replace(setup, framework=replace(setup.framework, **StateFormat.BF16.held))
        plans = [plan, replace(plan, recompute=Recompute.FULL)]
        share = setup.memory(plans).share_of(setup.device)
        flags = ("--states bf16", "--states bf16 --recompute full")
        fits = (share < TIGHT_SHARE).tolist()
        return next((each for each, fit in zip(flags, fits, strict=True) if fit), "")


def too_large(memory: StepMemory | None, job: Job, topology: Topology) -> TooLarge | None:
    """That a model's step takes more memory than there is; None where it fits."""
    setup = job.setup
    if memory is None or setup is None or memory.fullest.total <= setup.device.memory_bytes:
        return None
    held = memory.fullest.total
    return TooLarge(job=job, setup=setup, topology=topology, bytes_of_ranks=held)


def with_memory(memory: StepMemory | None, job: Job) -> tuple[Workload, list[str]]:
    """A model's workload with the memory of its fullest rank, and a warning where it is tight."""
    work, setup = job.workload, job.setup
    if memory is None or setup is None or work.effort is None:
        return work, []
    held, device = memory.fullest.total, setup.device
    effort = replace(work.effort, memory_bytes=held, capacity_bytes=device.memory_bytes)
    if not TIGHT_SHARE <= held / device.memory_bytes <= 1:
        return replace(work, effort=effort), []
    cost = "retries of the allocator cost published runs 20 to 30 % there"
    return replace(work, effort=effort), [f"{_filled(held, device)}: {cost}"]


def _filled(held: int, device: Device) -> str:
    capacity = device.memory_bytes
    sizes = f"{format_size_bytes(held)} of {format_size_bytes(capacity)}"
    return f"the fullest rank holds {sizes} on {device.name}, {held / capacity:.0%}"
