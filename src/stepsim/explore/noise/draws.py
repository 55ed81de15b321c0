"""Monte-Carlo runs: step times when tasks do not take what was planned, and ranks straggle.

Every rank draws the times of its own tasks, here, in documents, and over the axes of a sweep. Where
the machine is faster or slower as a whole from one step to the next, all compute of a step shares
one factor, and the bandwidth of each class of links another, so that a step is one scenario of a
batch.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isinf
from typing import Self

import numpy as np
from msgspec import UNSET, UnsetType

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import PlanError, within
from stepsim.base.fields import check_fields
from stepsim.base.structs import Document, Entry, Names, Noun, Picoseconds, replace
from stepsim.explore.batch.columns import ColumnNode, NodeColumns, NodeTimes
from stepsim.explore.batch.evaluation import Batch, make_batch
from stepsim.explore.batch.samples import StepSamples, lognormal
from stepsim.explore.batch.scenarios import PHASES
from stepsim.explore.sampled_sweep import sample_sweep
from stepsim.explore.sweep.study import Study
from stepsim.files.asked import StepInputs
from stepsim.workload.expert_load import ExpertLaw

# Part of what a seed means: samples are drawn so many at a time.
_SAMPLES_AT_ONCE = 256

# Most tasks times samples: minutes of computing.
_MOST_DRAWS = 50_000_000_000

# Ranks times samples evaluated together, so that what is in use fits the cache: measured.
_AT_ONCE = 16384

_MOST_SAMPLES = 10_000_000


class NoiseModel(Noun):
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

    @property
    def words(self) -> str:
        """What varies, e.g. `tasks 3.0%, transfers 10.0%`; `none` where nothing does."""
        straggling = f"{self.straggler_probability:.2%} of ranks x{self.straggler_factor:g}"
        parts = [
            (self.task, f"tasks {self.task:.1%}"),
            (self.communication, f"transfers {self.communication:.1%}"),
            (self.rank, f"ranks {self.rank:.1%}"),
            (self.straggler_probability, straggling),
        ]
        return ", ".join(text for amount, text in parts if amount) or "none"

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("task", "communication", "rank"):
            within(f"{name} noise", getattr(self, name), 0, 10)
        within("straggler probability", self.straggler_probability, 0, 1)
        if not 0 < self.straggler_factor <= 1e6:
            raise PlanError(
                f"straggler factor is {self.straggler_factor}: expected above 0, at most 1e6"
            )


def noise_model(numbers: Mapping[str, float]) -> NoiseModel:
    """The model of some of its numbers; raises PlanError naming those there are."""
    known = NoiseModel.__struct_fields__
    for name in numbers:
        if name not in known:
            raise PlanError(f"noise model: {name!r} is unknown: expected {', '.join(known)}")
    return NoiseModel(**numbers)


class NoiseResult(StepSamples, eq=False):
    """Step times of the samples, and the one without noise.

    Each rank has draws of its own, so that the slowest of many is slower than one. `job` says in a
    line what was simulated.
    """

    job: str
    model: NoiseModel
    seed: int
    planned_ps: int
    warnings: Names


def simulate_noise(job: StepInputs, *, model: NoiseModel, samples: int, seed: int) -> NoiseResult:
    """Distribution of the step time of a job under noise.

    Jobs are evaluated folded, with a column per rank. Where loads of experts follow a law the
    samples have up to 16 loads, one after the other, of as many seeds from the law's own on. Equal
    arguments give equal samples. Raises PlanError for a number of samples or a seed that cannot be,
    and the errors of `make_batch`.
    """
    within("samples", samples, 1, _MOST_SAMPLES)
    within("seed", seed, 0)
    load, drawn = job.options.expert_load, []
    loads = min(_MOST_LOADS, samples) if isinstance(load, ExpertLaw) else 1
    for number in range(loads):
        loaded, count = job, samples // loads + (number < samples % loads)
        if number and isinstance(load, ExpertLaw):
            loaded = job.asking(expert_load=replace(load, seed=load.seed + number))
        batch = _batch(loaded, samples)
        stream = np.random.SeedSequence([seed, number] if number else seed)
        drawn.append((batch, _samples(batch, model, count, stream)))
    first = drawn[0][0]
    return NoiseResult(
        job=first.job_words,
        model=model,
        seed=seed,
        step_time_ps=np.concatenate([times for _, times in drawn]),
        planned_ps=first.step_times([{}])[0],
        warnings=first.job.warnings,
    )


# Loads of experts that are drawn for the samples of a job whose loads follow a law.
_MOST_LOADS = 16


def _batch(job: StepInputs, samples: int) -> Batch:
    """What evaluates the job; raises PlanError where it is too large."""
    batch = make_batch(job, coalesce=False)
    counts: list[int] = batch.actors.counts.tolist()
    tasks = sum(len(laid) * n for laid, n in zip(batch.flat.programs, counts, strict=True))
    if tasks * samples > _MOST_DRAWS:
        most = f"at most {_MOST_DRAWS // tasks} of a job of {tasks:,} tasks"
        raise PlanError(f"samples is {samples}: expected {most}")
    return batch


def _samples(batch: Batch, model: NoiseModel, samples: int, seed: np.random.SeedSequence) -> Ints:
    """Step times; a batch of samples has a random stream of its own, so their number is free."""
    columns, counts = NodeColumns(batch), batch.actors.counts.tolist()
    at_once = max(1, min(_SAMPLES_AT_ONCE, _AT_ONCE // max(counts)))
    planned, found = batch.planned_ps().tolist(), []
    for stream in seed.spawn(-(-samples // at_once)):
        took = _drawn(model, np.random.default_rng(stream), at_once, counts, planned)
        found.append(columns.step_time_ps(took, at_once))
    return np.concatenate(found)[:samples]


def _drawn(
    model: NoiseModel,
    random: np.random.Generator,
    samples: int,
    counts: Sequence[int],
    planned: Sequence[int],
) -> NodeTimes:
    """Random durations of all ranks of an actor, and of all groups, at once.

    `counts` are the ranks of every actor, `planned` is what nodes take without noise, in ps.
    """

    def factors(variation: float, columns: int) -> Floats:
        """Lognormal factors of mean 1 with a coefficient of variation."""
        if not variation:
            return np.ones((1, 1))
        return lognormal(random.standard_normal((columns, samples)), variation)

    # factors on the compute of every actor's ranks, of shape (ranks, samples); of one for all alike
    slowness = list[Floats]()
    for ranks in counts:
        straggles = np.zeros((1, 1), bool)
        if model.rank or model.straggler_probability:
            straggles = random.random((ranks, samples)) < model.straggler_probability
        slow = np.where(straggles, model.straggler_factor, 1.0)
        slowness.append(slow * factors(model.rank, ranks))

    def took(node: ColumnNode) -> Ints:
        """What a node is planned to take, times factors of its own, rounded."""
        if node.width:
            own = factors(model.communication, node.width)
        else:
            own = factors(model.task, counts[node.actor]) * slowness[node.actor]
        return np.rint(own * planned[node.node]).astype(np.int64)

    return took


class NoiseDocument(Document):
    """`stepsim noise --json`: step times of the samples, and without noise (`planned_ps`)."""

    model: NoiseModel
    seed: int
    planned_ps: Picoseconds
    mean_ps: Picoseconds
    p50_ps: Picoseconds
    p95_ps: Picoseconds
    p99_ps: Picoseconds
    step_time_ps: tuple[Picoseconds, ...]
    warnings: Names

    @classmethod
    def of(cls, found: NoiseResult) -> Self:
        """The document of a distribution."""
        return cls.taken_from(
            found,
            **found.rounded(50, 95, 99),
            step_time_ps=found.step_time_ps.tolist(),
        )


class _ScenarioEntry(Entry):
    """A scenario's step times, or why it failed."""

    settings: dict[str, str]
    planned_ps: Picoseconds | UnsetType = UNSET
    mean_ps: Picoseconds | UnsetType = UNSET
    p5_ps: Picoseconds | UnsetType = UNSET
    p50_ps: Picoseconds | UnsetType = UNSET
    p95_ps: Picoseconds | UnsetType = UNSET
    error: str | UnsetType = UNSET


class NoiseSweepDocument(Document):
    """`stepsim noise --set ... --json`: distributions of every scenario."""

    workload: str
    topology: str
    model: NoiseModel
    seed: int
    samples: int
    scenarios: tuple[_ScenarioEntry, ...]


def noisy_speeds(
    batch: Batch,
    columns: Mapping[str, float],
    *,
    compute: float = 0.0,
    links: float = 0.0,
    samples: int,
    seed: int,
) -> Ints:
    """Step times in ps of so many draws around the scenario that `columns` ask for.

    `compute` and `links` are coefficients of variation of the time of all compute, and of the time
    of a byte on links: factors are lognormal with mean 1, drawn once per step. More noise of a kind
    stretches the same draws. Raises PlanError for one that cannot be, and where the batch cannot
    vary what is noisy.
    """
    for name, variation in (("compute", compute), ("links", links)):
        within(f"noise of {name}", variation, 0, 1)
    base = {**batch.setting.base(), **columns}
    phases = [f"compute_scale.{phase}" for phase in PHASES]
    classes = [name for name in base if name.endswith(".bandwidth") and not isinf(base[name])]
    draws = np.random.default_rng(seed).standard_normal((1 + len(classes), samples))
    found: dict[str, Floats] = {name: np.array([value]) for name, value in columns.items()}
    if compute:
        found |= {name: base[name] * lognormal(draws[0], compute) for name in phases}
    if links:
        for name, own in zip(classes, draws[1:], strict=True):
            found[name] = base[name] / lognormal(own, links)
    return batch.evaluate(found).step_time_ps


def sweep_noise(
    study: Study,
    *,
    model: NoiseModel,
    samples: int = 1000,
    seed: int = 0,
    progress: Callable[[int, int, int], None] | None = None,
) -> NoiseSweepDocument:
    """Draw `samples` steps of every scenario of a study, all from one seed, as `sample_sweep`."""

    def find(scenario: int) -> dict[str, int]:
        job = study.job(study.grid.parsed(scenario))
        found = simulate_noise(job, model=model, samples=samples, seed=seed)
        return {"planned_ps": found.planned_ps, **found.rounded(5, 50, 95)}

    return NoiseSweepDocument(
        workload=study.workload.source,
        topology=study.topology.name,
        model=model,
        seed=seed,
        samples=samples,
        scenarios=sample_sweep(study.grid, _ScenarioEntry, find, progress),
    )
