"""What ranks hold: of a model all that is known, of a workload what its user said of its chunks."""

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.base.units import MAX_INT64, format_size_bytes
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.schedules import Placement, Schedule
from stepsim.parallel.stages import Stages
from stepsim.step.work import BuiltModel, MadeWork
from stepsim.workload.rows import Workload

if TYPE_CHECKING:
    from stepsim.results.memory import HeldBytes, StepMemory

_LARGEST = MAX_INT64 >> 4
"""Bytes of one part of a rank's memory, so that the sum of all parts has 64 bits."""


def memory_of(
    work: Workload, made: MadeWork, schedule: Schedule, stages: Stages, options: StepOptions
) -> "StepMemory | None":
    """Memory of a rank of every stage; None where neither a model nor the options say it."""
    placement, asked = schedule.placement, options.activation_bytes
    shares = None if asked is None else asked * _chunk_shares(work, stages, placement)
    if made.built is None:
        return None if shares is None else _of_chunks(_whole(shares, schedule), schedule)
    from stepsim.results.memory import step_memory

    held = _held(made.built, schedule)
    if shares is not None:
        held = replace(held, activations=_whole(shares, schedule))
    return step_memory(held, schedule, made.built.device.memory_bytes)


class TooLarge(Struct, frozen=True, kw_only=True):
    """A step of a model whose fullest rank holds more bytes than its device has.

    `options` are those that were asked for on a `topology`.
    """

    built: BuiltModel
    options: StepOptions
    topology: Topology
    held_bytes: int

    def text(self) -> str:
        """That the step does not fit, and the flags by which it would: plans are looked at."""
        from stepsim.step.models import plan_chooser

        device = self.built.device
        said = f"{_filled(self.held_bytes, device.memory_bytes, device.name)}: it does not fit"
        chooser = plan_chooser(self.built.architecture, self.topology, self.options)
        flags = chooser.remedy(self.built.plan)
        remedy = f"fits with {flags}" if flags else "no plan that fits is known"
        return f"{said}, times and rates are those if it fitted ({remedy})"


def too_large(
    memory: "StepMemory | None", built: BuiltModel | None, topology: Topology, options: StepOptions
) -> TooLarge | None:
    """That a model's step takes more memory than there is; None where it fits."""
    if memory is None or built is None or memory.fullest.total <= built.device.memory_bytes:
        return None
    held = memory.fullest.total
    return TooLarge(built=built, options=options, topology=topology, held_bytes=held)


def with_memory(
    work: Workload, memory: "StepMemory | None", built: BuiltModel | None
) -> tuple[Workload, list[str]]:
    """A model's workload with the memory of its fullest rank, and a warning where it is tight."""
    if memory is None or built is None or work.effort is None:
        return work, []
    held, capacity = memory.fullest.total, built.device.memory_bytes
    effort = replace(work.effort, memory_bytes=held, capacity_bytes=capacity)
    return replace(work, effort=effort), _warnings(held, capacity, built.device.name)


def _of_chunks(kept: Ints, schedule: Schedule) -> "StepMemory":
    """Memory of ranks that hold nothing but activations: bytes of every chunk."""
    from stepsim.results.memory import HeldBytes, step_memory

    nothing = np.zeros(schedule.placement.ranks, dtype=np.int64)
    held = HeldBytes(activations=kept, logits=0 * kept, recomputed=nothing, fixed={})
    return step_memory(held, schedule)


def _held(built: BuiltModel, schedule: Schedule) -> "HeldBytes":
    from stepsim.results.memory import HeldBytes, MemoryPart
    from stepsim.workload.model.memory import rank_parts

    placement = schedule.placement
    ranks, chunks = range(placement.ranks), range(placement.chunks)
    places = tuple(tuple(placement.stage(rank, chunk) for chunk in chunks) for rank in ranks)
    parts = rank_parts(built.architecture, built.framework, built.plan, places)
    return HeldBytes(
        activations=_whole(parts.activations[0], schedule),
        logits=_whole(parts.logits[0], schedule),
        recomputed=_whole(parts.working[0]),
        fixed={
            MemoryPart.WEIGHTS: _whole(parts.weights[0]),
            MemoryPart.GRADIENTS: _whole(parts.gradients[0]),
            MemoryPart.OPTIMIZER: _whole(parts.optimizer[0]),
            MemoryPart.BUFFERS: _whole(parts.buffers[0]),
            MemoryPart.RESERVED: np.full(placement.ranks, built.device.reserved_bytes),
        },
    )


def _chunk_shares(work: Workload, stages: Stages, placement: Placement) -> Floats:
    """Layers of every chunk over those that a stage has on average; shape (ranks, chunks).

    Rows of layers are counted, for a chunk may have a part of a layer.
    """
    blocks = work.microbatches
    layers = [layer for block in blocks for layer in (*block.layers, *block.prediction)]
    names = {row.name for layer in layers for row in layer}
    rows = np.array(
        [
            [sum(row.name in names for row in blocks[0]) for blocks in each.chunks]
            for each in stages.works
        ],
        dtype=np.float64,
    )
    held_by = placement.ranks * placement.chunks / placement.stages
    return rows * placement.ranks * held_by / max(float(rows.sum()), 1.0)


def _whole(sizes: Floats, schedule: Schedule | None = None) -> Ints:
    """Sizes as whole bytes; a schedule keeps at most those of all its microbatches and chunks.

    Raises PlanError where a rank could hold more bytes than 64 bits count.
    """
    kept = schedule.microbatches * schedule.placement.chunks if schedule else 1
    most = float(np.max(sizes, initial=0)) * kept
    if not most <= _LARGEST:
        raise PlanError(
            f"memory of a rank is up to {most:.3g} bytes of one kind: expected at most 2**59 "
            "(microbatch_size, sequence and activation_size set it)"
        )
    return np.asarray(np.rint(sizes), dtype=np.int64)


def _warnings(held: int, capacity: int, device: str) -> list[str]:
    from stepsim.workload.model.memory import TIGHT_SHARE

    if not TIGHT_SHARE <= held / capacity <= 1:
        return []
    cost = "retries of the allocator cost published runs 20 to 30 % there"
    return [f"{_filled(held, capacity, device)}: {cost}"]


def _filled(held: int, capacity: int, device: str) -> str:
    sizes = f"{format_size_bytes(held)} of {format_size_bytes(capacity)}"
    return f"the fullest rank holds {sizes} on {device}, {held / capacity:.0%}"
