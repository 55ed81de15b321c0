"""Steps of real batches: documents drawn, packed into microbatches, and how long that takes."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Self

import numpy as np
from msgspec import Meta
from msgspec.structs import astuple

from stepsim.base.arrays import Floats, Ints, median_place
from stepsim.base.errors import PlanError, within
from stepsim.base.structs import Bytes, Document, Entry, File, Names, Noun, Picoseconds
from stepsim.explain.memory import MemoryPart, StepMemory
from stepsim.explore.batch.samples import StepSamples
from stepsim.explore.batches.prices import MicrobatchPrices, microbatch_prices, spread_prices
from stepsim.files.asked import StepInputs
from stepsim.files.lengths import lengths_of
from stepsim.parallel.packers import (
    BatchShape,
    Loads,
    Packer,
    PackerEntry,
    Packing,
    Takes,
    documents_for,
    packer_of,
)
from stepsim.workload.documents import Lengths

# Most microbatches of all steps and ranks: what their columns hold is 3 GB.
_MOST_LOADS = 1 << 27
# Steps whose documents are drawn and packed together: a loader's window, and part of a seed.
_WINDOW = 50
USUAL_PACKERS = ("padded", "grouped", "concat", "first-fit", "balanced")
"""Packers that are compared where nobody names some."""


class DrawnBatches(Noun):
    """Steps that are drawn: documents of `lengths`, packed in some ways, from a seed.

    A packer is a name of the list or a function of one's own, which takes the documents of whole
    steps. `source` says where the lengths are from. Raises PlanError for a packer, a number of
    steps or a seed that cannot be.
    """

    lengths: Lengths
    source: str = ""
    packers: tuple[str | Packer | PackerEntry, ...]
    steps: int
    seed: int

    def __post_init__(self) -> None:
        within("steps", self.steps, 1)
        within("seed", self.seed, 0)
        for packer in self.packers:
            packer_of(packer)

    @classmethod
    def named(
        cls,
        lengths: File | Sequence[int],
        packers: Iterable[str | Packer | PackerEntry],
        steps: int,
        seed: int,
    ) -> Self:
        """Batches of lengths as people give them; raises the errors of `lengths_of`."""
        law, source = lengths_of(lengths)
        return cls(lengths=law, source=source, packers=tuple(packers), steps=steps, seed=seed)


class BatchSteps(StepSamples, eq=False):
    """Steps of drawn batches under one packer.

    `even_ps` are the times of the same steps if every microbatch took the mean of its step,
    `work_ps` those without padding, too: a step is its work, its padding, and waiting for the
    longest microbatches. `tokens` are computed and `real` of them no padding, by step. `fullest` is
    the largest microbatch in parts of a full one, `memory_bytes` what the fullest rank holds with
    it. `typical` is the work of microbatches in the step in the middle, `slowest` in the longest
    one, of shape (ranks, microbatches): that of a full one is 1.
    """

    packer: str
    even_ps: Ints
    work_ps: Ints
    tokens: Ints
    real: Ints
    fullest: float
    memory_bytes: int
    typical: Floats
    slowest: Floats

    @property
    def parts_ps(self) -> dict[str, int]:
        """Parts of the mean step, which add up to it: work, padding, waiting for the longest."""
        every = self.work_ps, self.even_ps, self.step_time_ps
        work, even, step = (round(float(times.mean())) for times in every)
        return {"work": work, "padding": even - work, "waiting": step - even}

    @property
    def waiting(self) -> float:
        """Share of the steps' time in which ranks wait for the longest microbatches."""
        return 1.0 - float(self.even_ps.sum()) / float(self.step_time_ps.sum())

    @property
    def padding(self) -> float:
        """Share of the computed tokens that is padding."""
        return 1.0 - float(self.real.sum()) / float(self.tokens.sum())

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of all ranks, net of padding."""
        return float(self.real.sum()) / float(self.step_time_ps.sum()) * 1e12

    @property
    def numbers(self) -> dict[str, int]:
        """Parts, mean and percentiles as documents have them."""
        parts = {f"{name}_ps": time for name, time in self.parts_ps.items()}
        return parts | self.rounded(50, 90, 99)


class BatchStudy(Noun, eq=False):
    """Real batches of a job: one entry of `packed` for each packer.

    `planned_ps` is the step whose microbatches are full of one document a sample, as `simulate`
    has it. `job` says in a line what was simulated, `source` where the lengths `drawn` are from.
    `capacity_bytes` is the memory of an NPU.
    """

    job: str
    source: str
    drawn: Lengths
    seed: int
    planned_ps: int
    capacity_bytes: int
    packed: tuple[BatchSteps, ...]
    warnings: Names

    @property
    def best(self) -> BatchSteps:
        """The steps with most tokens per second net of padding."""
        return max(self.packed, key=lambda steps: steps.tokens_per_s)


def simulate_batches(job: StepInputs, drawn: DrawnBatches) -> BatchStudy:
    """Steps of drawn batches of a model under each packer; equal arguments give equal steps.

    Raises PlanError for a packer that loses or makes tokens, and the errors of `make_batch`.
    Packers that fill microbatches are compared with others on equally many documents a step.
    """
    entries: dict[str, PackerEntry] = {}
    for packer in drawn.packers:
        entry = packer_of(packer)
        own = getattr(entry.pack, "__name__", "own")  # a function's name
        entries[packer if isinstance(packer, str) else own] = entry
    lengths, seed = drawn.lengths, drawn.seed
    prices = microbatch_prices(job)
    of_kind: dict[object, MicrobatchPrices] = dict.fromkeys(Takes, prices)
    if any(entry.shares for entry in entries.values()):
        of_kind[True] = spread_prices(prices, lengths.most)
    if len({entry.takes is Takes.COUNT for entry in entries.values()}) > 1:
        mean = float(lengths.draw(np.random.default_rng(seed), 1024).mean())
        of_kind[Takes.COUNT] = prices.of_documents(mean)
    found = tuple(
        _steps_of(name, entry, of_kind[entry.shares or entry.takes], drawn)
        for name, entry in entries.items()
    )
    batch = prices.batch
    memory = batch.job.memory
    assert memory is not None
    assert memory.capacity_bytes is not None
    return BatchStudy(
        job=batch.job_words,
        source=drawn.source,
        drawn=lengths,
        seed=seed,
        planned_ps=batch.step_times([{}])[0],
        capacity_bytes=memory.capacity_bytes,
        packed=found,
        warnings=batch.job.warnings,
    )


def draw_batches(
    packer: str,
    lengths: Lengths,
    shape: BatchShape,
    entry: PackerEntry,
    generator: np.random.Generator,
) -> Packing:
    """Documents of all steps of a shape, drawn and packed by the entry of a packer.

    More are drawn until the microbatches are full, where a packer takes a stream. Raises PlanError
    for a packer that loses or makes tokens.
    """
    sample = lengths.draw(np.random.default_rng(0), 1024)
    count = documents_for(entry, shape, float(sample.mean()))
    drawn = lengths.draw(generator, count)
    packing = entry.pack(drawn, shape)
    streams = entry.takes is Takes.STREAM
    while streams and not np.bincount(packing.slot, minlength=packing.shape.slots).all():
        drawn = np.concatenate([drawn, lengths.draw(generator, max(count // 4, 1))])
        packing = entry.pack(drawn, shape)
    packing.check(packer, drawn, whole=entry.takes is Takes.STEP)
    return packing


def _steps_of(
    packer: str, entry: PackerEntry, prices: MicrobatchPrices, asked: DrawnBatches
) -> BatchSteps:
    """Steps under one packer; windows of them have random streams of their own."""
    steps, job = asked.steps, prices.batch.job
    plan, memory = job.graph.plan, job.memory
    assert memory is not None
    if plan.dp * plan.microbatches * steps > _MOST_LOADS:
        most = _MOST_LOADS // (plan.dp * plan.microbatches)
        raise PlanError(f"steps is {steps}: expected at most {most} of so many microbatches")
    shape = prices.shape(min(steps, _WINDOW))
    streams = np.random.SeedSequence(asked.seed).spawn(-(-steps // shape.steps))
    drawn = [
        draw_batches(packer, asked.lengths, shape, entry, np.random.default_rng(stream)).loads()
        for stream in streams
    ]
    parts = zip(*map(astuple, drawn), strict=True)
    loads = Loads(*(np.concatenate(column)[:steps] for column in parts))
    whole = prices.features(loads.tokens, loads.squares)
    bare = prices.features(loads.real, loads.real_squares)
    step_ps = prices.step_ps(whole)
    typical, slowest = (
        shape.cost(loads.tokens[step], loads.squares[step]) / shape.full_tokens
        for step in (median_place(step_ps), step_ps.argmax())
    )
    return BatchSteps(
        packer=packer,
        step_time_ps=step_ps,
        even_ps=prices.step_ps(_evened(whole)),
        work_ps=prices.step_ps(_evened(bare)),
        tokens=loads.tokens.sum(axis=(1, 2)).astype(np.int64),
        real=loads.real.sum(axis=(1, 2)).astype(np.int64),
        fullest=float(loads.tokens.max()) / shape.full_tokens,
        memory_bytes=fullest_bytes(memory, loads.tokens / shape.full_tokens),
        typical=typical,
        slowest=slowest,
    )


def _evened(features: Floats) -> Floats:
    """The mean of each step in place of its microbatches', with one rank for all."""
    mean = features.mean(axis=(2, 3), keepdims=True)
    return np.asarray(np.broadcast_to(mean, (*features.shape[:2], 1, features.shape[3])))


def fullest_bytes(memory: StepMemory, filled: Floats) -> int:
    """What the fullest rank holds at most, in bytes.

    `filled` are the tokens of microbatches in parts of a full one, of shape (steps, ranks,
    microbatches). A stage keeps the activations of some microbatches that follow each other, and
    works on one: logits and what is recomputed are those of the fullest.
    """
    largest, held = float(filled.max()), []
    for peak in memory.peaks:
        together = _most_together(filled, max(peak.kept, default=1))
        kept = peak.parts.get(MemoryPart.ACTIVATIONS, 0)
        worked = sum(peak.parts.get(p, 0) for p in (MemoryPart.LOGITS, MemoryPart.RECOMPUTED))
        held.append(peak.total + kept * (together - 1) + worked * (largest - 1))
    return round(max(held))


def _most_together(filled: Floats, kept: int) -> float:
    """The largest mean of so many microbatches of a rank, one behind the other."""
    width = min(max(kept, 1), filled.shape[2])
    windows = np.lib.stride_tricks.sliding_window_view(filled, width, axis=2)
    return float(windows.mean(axis=-1).max())


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
