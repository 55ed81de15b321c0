"""Steps of real batches as a document: what `stepsim simulate --lengths ... --json` writes."""

from typing import Annotated, Self

from msgspec import Meta

from stepsim.base.structs import Bytes, Document, Entry, Names, Picoseconds
from stepsim.explore.batches.draws import BatchSteps, BatchStudy

_Share = Annotated[float, Meta(description="share, 0 to 1")]


class _PackerEntry(Entry):
    """Steps under one packer; `waiting` is the share of time spent for the longest microbatches.

    Work, padding and waiting in ps add up to the mean step. `fullest` is the largest microbatch, in
    parts of a full one; `memory_bytes` is what the fullest rank holds with it.
    """

    packer: str
    mean_ps: Picoseconds
    p50_ps: Picoseconds
    p90_ps: Picoseconds
    p99_ps: Picoseconds
    work_ps: int
    padding_ps: int
    waiting_ps: int
    waiting: _Share
    padding: _Share
    tokens_per_s: Annotated[float, Meta(description="net of padding, of all ranks")]
    fullest: float
    memory_bytes: Bytes
    step_time_ps: tuple[Picoseconds, ...]

    @classmethod
    def of(cls, steps: BatchSteps) -> Self:
        """The entry of a packer's steps."""
        times = tuple(steps.step_time_ps.tolist())
        return cls.taken_from(steps, **steps.numbers, step_time_ps=times)


class BatchDocument(Document):
    """`stepsim simulate --lengths --json`: steps of drawn batches, packer by packer.

    `planned_ps` is the step whose microbatches are full of one document a sample, `capacity_bytes`
    the memory of an NPU.
    """

    job: str
    lengths: str
    seed: int
    planned_ps: Picoseconds
    capacity_bytes: Bytes
    packers: tuple[_PackerEntry, ...]
    warnings: Names

    @classmethod
    def of(cls, study: BatchStudy) -> Self:
        """The document of a study."""
        packers = tuple(map(_PackerEntry.of, study.packed))
        return cls.taken_from(study, lengths=study.source, packers=packers)
