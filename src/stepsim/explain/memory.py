"""What a rank of every stage holds: at most, of what, and over time; bytes."""

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.structs import Noun
from stepsim.base.units import format_size_bytes
from stepsim.core.timeline import Timeline
from stepsim.explain.counters import Curves, summed_curves
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

    parts: Mapping[MemoryPart, int]
    kept: tuple[int, ...]
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
    start, end = (times[:, 0] for times in timeline.of_rank(rank).entry_times)
    moments, changes = _changes(held, stage, timeline.graph.schedule.columns[stage])
    times = np.where(moments % 2, end[moments // 2], start[moments // 2])
    fixed = np.array([[held.fixed[part][stage] for part in held.fixed]])
    bounds = np.array([0, timeline.step_time_ps])
    table = np.zeros((len(times) + 2, fixed.shape[1] + changes.shape[1]))
    table[:2, : fixed.shape[1]] = np.concatenate([fixed, -fixed])
    table[2:, fixed.shape[1] :] = changes
    names = (*held.fixed, *_LIVE)
    return summed_curves(tuple(map(str, names)), np.concatenate([bounds, times]), table)


def _peak(held: HeldBytes, stage: int, order: Order) -> StagePeak:
    moments, changes = _changes(held, stage, order)
    turns = np.argsort(moments, kind="stable")
    live = np.cumsum(changes[turns], axis=0)
    most = int(live.sum(axis=1).argmax()) if len(live) else -1
    at = int(moments[turns[most]]) // 2 if len(live) else 0
    parts = {part: int(sizes[stage]) for part, sizes in held.fixed.items()}
    found = live[most].tolist() if len(live) else (0, 0, 0)
    parts |= {part: size for part, size in zip(_LIVE, found, strict=True) if size}
    chunks = held.activations.shape[1]
    taken = np.bincount(order.chunk[: at + 1][order.runs(*_TAKES)[: at + 1]], minlength=chunks)
    freed = np.bincount(order.chunk[:at][order.runs(*_FREES)[:at]], minlength=chunks)
    return StagePeak(parts=parts, kept=tuple((taken - freed).tolist()), entry=at)


def _changes(held: HeldBytes, stage: int, order: Order) -> tuple[Ints, Ints]:
    """What every action adds and takes away, of shape (changes, live parts), and when.

    Moment 2 i is the start of entry i, moment 2 i + 1 its end.
    """
    runs = (order.runs(*kinds).nonzero() for kinds in (_TAKES, _FREES, _WORKS))
    (takes, taken), (frees, freed), (works, _) = (
        (2 * place, order.chunk[place, part].astype(np.int64)) for place, part in runs
    )
    kept = np.zeros((*held.activations.shape[1:], len(_LIVE)), np.int64)
    kept[:, 0], kept[:, 1] = held.activations[stage], held.logits[stage]
    work = np.broadcast_to([0, 0, held.recomputed[stage]], (len(works), len(_LIVE)))
    moments = (takes, frees + 1, works, works + 1)
    changes = (kept[taken], -kept[freed], work, -work)
    return np.concatenate(moments), np.concatenate(changes)
