"""Monte-Carlo runs: step times when tasks do not take what was planned, and ranks straggle.

A lognormal factor of mean 1 and coefficient of variation c is exp of a normal variable of variance
v = ln(1 + c**2) and mean -v / 2 (closed form of its moments).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log, sqrt

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import PlanError
from stepsim.engine.lay_out import Times
from stepsim.explore.batch.evaluation import Batch, make_batch
from stepsim.explore.batch.lengths import CommLength
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.workload.rows import Workload

_SAMPLES_AT_ONCE = 256
"""Part of what a seed means: samples are drawn so many at a time."""

_MOST_TASKS = 250_000
"""Jobs of more tasks, all ranks together, are evaluated with one draw per class of ranks."""

_MOST_SAMPLES = 10_000_000
_DEFAULTS = StepOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseModel:
    """How durations vary: lognormal factors of mean 1 with these coefficients of variation.

    `task` is drawn for every compute (and host) task, `communication` for every transfer, `rank`
    once per rank and step, on all of its compute. With `straggler_probability` a rank straggles in
    a step: its compute takes `straggler_factor` times as long.
    """

    task: float = 0.0
    communication: float = 0.0
    rank: float = 0.0
    straggler_probability: float = 0.0
    straggler_factor: float = 1.0

    def __post_init__(self) -> None:
        for name in ("task", "communication", "rank"):
            if not 0 <= getattr(self, name) <= 10:
                raise PlanError(f"{name} noise is {getattr(self, name)}: expected 0 to 10")
        if not 0 <= self.straggler_probability <= 1:
            raise PlanError(
                f"straggler probability is {self.straggler_probability}: expected 0 to 1"
            )
        if not 0 < self.straggler_factor <= 1e6:
            raise PlanError(
                f"straggler factor is {self.straggler_factor}: expected above 0, at most 1e6"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoiseResult:
    """Step times of the samples in ps, in the order drawn, and the one without noise.

    `every_rank` says whether each rank had draws of its own; else each class of ranks that behave
    alike had, which leaves out that the slowest of many ranks is slower than one.
    """

    model: NoiseModel
    seed: int
    step_time_ps: Times
    planned_ps: int
    every_rank: bool
    warnings: tuple[str, ...]

    @property
    def mean_ps(self) -> float:
        """Mean step time."""
        return float(self.step_time_ps.mean())

    def percentile_ps(self, percent: float) -> float:
        """Step time that so many per cent of the samples do not exceed, interpolated."""
        return float(np.percentile(self.step_time_ps, percent))


def simulate_noise(
    workload: Workload,
    topology: Topology,
    options: StepOptions = _DEFAULTS,
    *,
    model: NoiseModel,
    samples: int = 1000,
    seed: int = 0,
    notes: Sequence[str] = (),
) -> NoiseResult:
    """Distribution of the step time of a job under noise.

    Without `fold_ranks` each rank has draws of its own, however many there are. Equal arguments
    give equal samples. Raises PlanError for a number of samples or a seed that cannot be, and the
    errors of `make_batch`.
    """
    if not 1 <= samples <= _MOST_SAMPLES:
        raise PlanError(f"samples is {samples}: expected 1 to {_MOST_SAMPLES}")
    if seed < 0:
        raise PlanError(f"seed is {seed}: expected at least 0")
    batch = make_batch(workload, topology, options, notes=notes, coalesce=False)
    every_rank = len(batch.actors) == batch.job.graph.plan.npus
    if not every_rank and _tasks_of_all_ranks(batch) <= _MOST_TASKS:
        unfolded, every_rank = replace(options, fold_ranks=False), True
        batch = make_batch(workload, topology, unfolded, notes=notes, coalesce=False)
    return NoiseResult(
        model=model,
        seed=seed,
        step_time_ps=_samples(batch, model, samples, seed),
        planned_ps=int(batch.evaluate({}).step_time_ps[0]),
        every_rank=every_rank,
        warnings=batch.job.warnings,
    )


def _tasks_of_all_ranks(batch: Batch) -> int:
    counts: list[int] = batch.actors.counts.tolist()
    return sum(len(laid.after) * n for laid, n in zip(batch.programs, counts, strict=True))


def _samples(batch: Batch, model: NoiseModel, samples: int, seed: int) -> Times:
    """Step times; a batch of samples has a random stream of its own, so their number is free."""
    found = np.zeros(samples, dtype=np.int64)
    firsts = range(0, samples, _SAMPLES_AT_ONCE)
    streams = np.random.SeedSequence(seed).spawn(len(firsts))
    for first, stream in zip(firsts, streams, strict=True):
        draws = _Draws(batch=batch, model=model, random=np.random.default_rng(stream))
        times = batch.passes.totals(draws.lengths(), _SAMPLES_AT_ONCE).step_time_ps
        found[first : first + _SAMPLES_AT_ONCE] = times[: samples - first]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draws:
    """Random durations of the nodes of a program, in its order."""

    batch: Batch
    model: NoiseModel
    random: np.random.Generator

    def lengths(self) -> Iterator[Times]:
        """A vector of samples per node."""
        program = self.batch.passes.program
        values = self.batch.lengths(self.batch.scenarios({}))
        sent = [isinstance(length, CommLength) for length in self.batch.table.lengths]
        ranks, actor = self._ranks(), self._actors()
        for node, number in enumerate(program.length):
            planned = values[number]
            if not planned[0]:
                yield planned
            elif sent[number]:
                yield self._noisy(planned * self._factors(self.model.communication))
            else:
                yield self._noisy(planned * self._factors(self.model.task) * ranks[actor[node]])

    def _actors(self) -> Ints:
        """The actor of each node, that of one member for transfers."""
        actor = np.zeros(len(self.batch.passes.program), dtype=np.int64)
        for number, nodes in enumerate(self.batch.passes.program.nodes):
            actor[nodes] = number
        return actor

    def _ranks(self) -> Floats:
        """Factor on the compute of every actor, of shape (actors, samples)."""
        shape = len(self.batch.actors), _SAMPLES_AT_ONCE
        straggles = self.random.random(shape) < self.model.straggler_probability
        factors = np.where(straggles, self.model.straggler_factor, 1.0)
        return factors * np.stack([self._factors(self.model.rank) for _ in factors])

    def _factors(self, variation: float) -> Floats:
        """Lognormal factors of mean 1 with a coefficient of variation."""
        if not variation:
            return np.ones(1)
        variance = log(1 + variation**2)
        return self.random.lognormal(-variance / 2, sqrt(variance), _SAMPLES_AT_ONCE)

    def _noisy(self, times: Floats) -> Times:
        return np.rint(times).astype(np.int64)
