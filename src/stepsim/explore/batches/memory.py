"""What ranks hold where microbatches are not alike."""

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.explain.memory import MemoryPart, StagePeak, StepMemory


def fullest_bytes(memory: StepMemory, filled: Floats) -> int:
    """What the fullest rank holds at most, in bytes.

    `filled` are the tokens of microbatches in parts of a full one, of shape (steps, ranks,
    microbatches). A stage keeps the activations of some microbatches that follow each other, and
    works on one: logits and what is recomputed are those of the fullest.
    """
    most = [_most_together(filled, max(peak.kept, default=1)) for peak in memory.peaks]
    largest = float(filled.max())
    held = (
        _held(peak, together, largest) for peak, together in zip(memory.peaks, most, strict=True)
    )
    return round(max(held))


def _held(peak: StagePeak, together: float, largest: float) -> float:
    """Bytes of a stage whose kept microbatches are so full on average, the fullest `largest`."""
    kept = peak.parts.get(MemoryPart.ACTIVATIONS, 0)
    worked = sum(peak.parts.get(p, 0) for p in (MemoryPart.LOGITS, MemoryPart.RECOMPUTED))
    return peak.total + kept * (together - 1) + worked * (largest - 1)


def _most_together(filled: Floats, kept: int) -> float:
    """The largest mean of so many microbatches of a rank, one behind the other."""
    width = min(max(kept, 1), filled.shape[2])
    windows = np.lib.stride_tricks.sliding_window_view(filled, width, axis=2)
    return float(windows.mean(axis=-1).max())
