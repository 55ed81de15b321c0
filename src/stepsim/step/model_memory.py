"""Whether a model fits: memory of its fullest rank, with what the schedule keeps."""

from dataclasses import replace

from stepsim.base.units import format_size_bytes
from stepsim.parallel.memory import live_chunks
from stepsim.parallel.schedules import PlacementKind, Schedule
from stepsim.step.models import MadeWork
from stepsim.workload.model.memory import TIGHT_SHARE, rank_memory
from stepsim.workload.rows import Workload


def with_memory(work: Workload, made: MadeWork, schedule: Schedule) -> tuple[Workload, list[str]]:
    """The workload of a model with the memory of its fullest rank, and a warning where it is full.

    Nothing is said of schedules that do not hand virtual stages round: a rank of theirs holds
    others than the formulas take it to.
    """
    loop = schedule.placement.kind is PlacementKind.LOOP
    if made.built is None or work.effort is None or not loop:
        return work, []
    built = made.built
    kept = [live_chunks(schedule)]
    found = rank_memory(built.architecture, built.device, built.framework, [built.plan], kept=kept)
    held, capacity = round(float(found.total[0])), built.device.memory_bytes
    effort = replace(work.effort, memory_bytes=held, capacity_bytes=capacity)
    return replace(work, effort=effort), _warnings(held, capacity, built.device.name)


def _warnings(held: int, capacity: int, device: str) -> list[str]:
    share = held / capacity
    if share < TIGHT_SHARE:
        return []
    said = (
        f"the fullest rank holds {format_size_bytes(held)} of {format_size_bytes(capacity)} on "
        f"{device}, {share:.0%}"
    )
    if share > 1:
        return [f"{said}: it does not fit"]
    return [f"{said}: retries of the allocator cost published runs 20 to 30 % there"]
