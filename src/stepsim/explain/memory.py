"""What a rank of every stage holds: at most, of what, and over time; bytes."""

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.structs import Noun, Numbers
from stepsim.base.units import format_size_bytes
from stepsim.core.timeline import Timeline
from stepsim.documents.trace import Curves
from stepsim.explain.counters import summed_curves
from stepsim.parallel.schedules import ActionKind, Schedule
from stepsim.parallel.schedules.base import Order


class MemoryPart(StrEnum):
    """What bytes are for: the last three come and go with the microbatches."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    BUFFERS = "buffers"
    RESERVED = "reserved"
    ACTIVATIONS = "activations"
    LOGITS = "logits"
    RECOMPUTED = "recomputed"


_LIVE = (MemoryPart.ACTIVATIONS, MemoryPart.LOGITS, MemoryPart.RECOMPUTED)
_TAKES = (ActionKind.FORWARD,)
_FREES = (ActionKind.BACKWARD, ActionKind.WEIGHT_GRAD)
_WORKS = (ActionKind.BACKWARD, ActionKind.INPUT_GRAD)


class HeldBytes(Noun, eq=False):
    """Bytes of a rank of every stage.

    `fixed` are held throughout, a number per stage. `activations` and `logits`, of shape
    (stages, chunks), are those of one microbatch, from the start of its forward to the end of its
    backward, or of its weight gradient where that is apart. `recomputed`, a number per stage, are
    held while a backward recomputes.
    """

    activations: Ints
    logits: Ints
    recomputed: Ints
    fixed: Mapping[MemoryPart, Ints]


class StagePeak(Noun):
    """A rank of a stage when it holds most: what bytes are for, and microbatches by chunk.

    That is first so when entry `entry` of the stage's order starts.
    """

    parts: Mapping[str, int]
    kept: Numbers
    entry: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.parts.values())


class StepMemory(Noun, eq=False):
    """What ranks hold, and the peak of every stage; `capacity_bytes` are the device's, if known."""

    held: HeldBytes
    peaks: tuple[StagePeak, ...]
    capacity_bytes: int | None = None

    def __repr__(self) -> str:
        """One line, for shells: what the fullest rank holds, and what for."""
        room = (
            "" if self.capacity_bytes is None else f" of {format_size_bytes(self.capacity_bytes)}"
        )
        parts = (f"{part} {format_size_bytes(n)}" for part, n in self.fullest.parts.items() if n)
        return f"<StepMemory {format_size_bytes(self.total_bytes)}{room}: {', '.join(parts)}>"

    @property
    def fullest(self) -> StagePeak:
        """The peak of the stage that holds most."""
        return max(self.peaks, key=lambda peak: peak.total)

    @property
    def total_bytes(self) -> int:
        """What the fullest rank holds when it holds most."""
        return self.fullest.total

    @property
    def fits(self) -> bool | None:
        """Whether the fullest rank holds no more than its device has; None if that is unknown."""
        return None if self.capacity_bytes is None else self.total_bytes <= self.capacity_bytes

    @property
    def activation_bytes(self) -> int:
        """Most bytes of activations at any stage's peak."""
        return max(peak.parts.get(MemoryPart.ACTIVATIONS, 0) for peak in self.peaks)


def step_memory(
    held: HeldBytes, schedule: Schedule, capacity_bytes: int | None = None
) -> StepMemory:
    """What the ranks of a schedule hold, in bytes: entries of an order run one after the other."""
    peaks = (_peak(held, stage, order) for stage, order in enumerate(schedule.columns))
    return StepMemory(held=held, peaks=tuple(peaks), capacity_bytes=capacity_bytes)


def memory_curves(timeline: Timeline, held: HeldBytes, rank: int) -> Curves:
    """Bytes of a rank over time, by what they are for."""
    stage = timeline.graph.plan.stage_of(rank)
    start, end = timeline.entry_times(rank)
    sizes = _sizes(held, stage)
    begun, over = _changes(timeline.graph.schedule.columns[stage], len(sizes) - 1)
    fixed = np.array([[held.fixed[part][stage] for part in held.fixed]])
    table = np.zeros((2 * len(start) + 2, fixed.shape[1] + len(_LIVE)))
    table[:2, : fixed.shape[1]] = np.concatenate([fixed, -fixed])
    table[2:, fixed.shape[1] :] = np.concatenate([begun, -over]) @ sizes
    times = np.concatenate([[0, timeline.step_time_ps], start, end])
    names = tuple(map(str, (*held.fixed, *_LIVE)))
    changes = table.any(axis=1)
    return summed_curves(names, times[changes], table[changes])


def _peak(held: HeldBytes, stage: int, order: Order) -> StagePeak:
    sizes = _sizes(held, stage)
    begun, over = _changes(order, len(sizes) - 1)
    kept = np.cumsum(begun - over, axis=0) + over
    live = kept @ sizes
    at = int(live.sum(axis=1).argmax())
    parts = {str(part): int(fixed[stage]) for part, fixed in held.fixed.items()}
    parts |= {str(part): n for part, n in zip(_LIVE, live[at].tolist(), strict=True) if n}
    return StagePeak(parts=parts, kept=tuple(kept[at, :-1].tolist()), entry=at)


def _sizes(held: HeldBytes, stage: int) -> Ints:
    """Bytes of a microbatch of each chunk, and of a backward in the last row, by live part."""
    sizes = np.zeros((held.activations.shape[1] + 1, len(_LIVE)), np.int64)
    sizes[:-1, 0], sizes[:-1, 1] = held.activations[stage], held.logits[stage]
    sizes[-1, 2] = held.recomputed[stage]
    return sizes


def _changes(order: Order, chunks: int) -> tuple[Ints, Ints]:
    """What is held from the start of every entry on, and what until its end.

    Rows are entries; columns are microbatches of each chunk, and in the last one backwards.
    """
    own = order.chunk[:, :, None] == np.arange(chunks)
    takes, frees = (
        (order.runs(*kinds)[:, :, None] & own).sum(axis=1) for kinds in (_TAKES, _FREES)
    )
    works = order.runs(*_WORKS).sum(axis=1, keepdims=True)
    return np.hstack((takes, works)), np.hstack((frees, works))
