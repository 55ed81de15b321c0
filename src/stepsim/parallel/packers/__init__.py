"""Packers by name: pure functions from lengths of documents to microbatches of ranks."""

from collections.abc import Mapping
from enum import StrEnum
from math import ceil

from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun
from stepsim.parallel.packers.as_drawn import pad, pad_to_sequence
from stepsim.parallel.packers.balanced import balance
from stepsim.parallel.packers.base import BatchShape, Loads, Packer, Packing
from stepsim.parallel.packers.dynamic_cp import dynamic_cp
from stepsim.parallel.packers.grouped import group_by_length
from stepsim.parallel.packers.stream import concatenate, first_fit


class Takes(StrEnum):
    """How many documents a packer takes of a loader.

    `COUNT`: `BatchShape.count` a microbatch. `STREAM`: until all microbatches are full. `STEP`: as
    many a step as fill its microbatches on average.
    """

    COUNT = "count"
    STREAM = "stream"
    STEP = "step"


class PackerEntry(Noun, kw_only=False):
    """A packer of the list: how it packs, and what it takes.

    `shares` says that ranks share documents as it likes: its microbatches do not change ranks by
    themselves, and the ranks of a context-parallel group are ranks of its own.
    """

    pack: Packer
    takes: Takes
    shares: bool = False


PACKERS: Mapping[str, PackerEntry] = {
    # padded to the sequence, or to the longest of a microbatch
    "sequence": PackerEntry(pad_to_sequence, Takes.COUNT),
    "padded": PackerEntry(pad, Takes.COUNT),
    # like lengths together, padded
    "grouped": PackerEntry(group_by_length, Takes.COUNT),
    # end to end, cut at the sequence; whole documents, longest first
    "concat": PackerEntry(concatenate, Takes.STREAM),
    "first-fit": PackerEntry(first_fit, Takes.STREAM),
    # equal time for ranks and microbatches; long documents over several ranks
    "balanced": PackerEntry(balance, Takes.STEP),
    "dynamic-cp": PackerEntry(dynamic_cp, Takes.STEP, shares=True),
}


def packer_of(name: str | Packer | PackerEntry) -> PackerEntry:
    """The packer of a name such as `first-fit`.

    A function of one's own takes the documents of whole steps, an entry what it says. Raises
    PlanError naming the packers that there are.
    """
    if isinstance(name, PackerEntry):
        return name
    if callable(name):
        return PackerEntry(name, Takes.STEP)
    if not isinstance(name, str) or name not in PACKERS:
        raise PlanError(f"packer is {name!r}: expected one of {', '.join(PACKERS)}")
    return PACKERS[name]


def documents_for(entry: PackerEntry, shape: BatchShape, mean_length: float) -> int:
    """How many documents a packer should be given of a law of that mean, in tokens.

    Of a stream a tenth more than fills all microbatches on average.
    """
    if entry.takes is Takes.COUNT:
        return shape.slots * shape.count
    full = shape.step_slots * shape.full_tokens / mean_length
    if entry.takes is Takes.STEP:
        return shape.steps * max(int(full), 1)
    return ceil(1.1 * shape.steps * full) + shape.step_slots


__all__ = [
    "PACKERS",
    "BatchShape",
    "Loads",
    "Packer",
    "PackerEntry",
    "Packing",
    "Takes",
    "documents_for",
    "packer_of",
]
