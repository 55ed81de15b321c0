"""Monte-Carlo runs: step times when tasks do not take what was planned, and ranks straggle.

Where all ranks of a group start a task together, and the group's collective alone waits for them,
only the slowest of them matters: it is drawn by itself (`factors`). Tasks that wait for nothing but
each other are drawn as one.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.arguments import check_fields
from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.engine.lay_out import Times
from stepsim.explore.batch.evaluation import Batch, make_batch
from stepsim.explore.noise.columns import ColumnNode, NodeColumns
from stepsim.explore.noise.factors import FactorLaw, has_table
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.step.inputs import WorkSource
from stepsim.workload.expert_load import ExpertLaw

_SAMPLES_AT_ONCE = 256
"""Part of what a seed means: samples are drawn so many at a time."""

_MOST_TASKS = 250_000
"""Jobs of more tasks, all ranks together, are evaluated folded, with a column per rank."""

_MOST_DRAWS = 50_000_000_000
"""Most tasks times samples: minutes of computing."""

_AT_ONCE = 16384
"""Ranks times samples evaluated together, so that what is in use fits the cache: measured."""

_MOST_LAWS = 64
"""Tables of draws, half a megabyte each: tasks of other sums are drawn one by one."""

_MOST_SAMPLES = 10_000_000
_DEFAULTS = StepOptions()


class NoiseModel(Struct, frozen=True, kw_only=True):
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

    @property
    def ranks_are_alike(self) -> bool:
        """Whether no rank is slower than others throughout a step."""
        return not (self.rank or self.straggler_probability)

    def __post_init__(self) -> None:
        check_fields(self)
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


def noise_model(numbers: Mapping[str, float]) -> NoiseModel:
    """The model of some of its numbers; raises PlanError naming those there are."""
    known = NoiseModel.__struct_fields__
    for name in numbers:
        if name not in known:
            raise PlanError(f"noise model: {name!r} is unknown: expected {', '.join(known)}")
    return NoiseModel(**numbers)


class NoiseResult(Struct, frozen=True, kw_only=True, eq=False):
    """Step times of the samples in ps, in the order drawn, and the one without noise.

    Each rank has draws of its own, so that the slowest of many is slower than one. `job` says in a
    line what was simulated.
    """

    job: str
    model: NoiseModel
    seed: int
    step_time_ps: Times
    planned_ps: int
    warnings: tuple[str, ...]

    @property
    def mean_ps(self) -> float:
        """Mean step time over the samples, in ps."""
        return float(self.step_time_ps.mean())

    def percentile_ps(self, percent: float) -> float:
        """Step time that so many per cent of the samples do not exceed, interpolated."""
        return float(np.percentile(self.step_time_ps, percent))


def simulate_noise(
    workload: WorkSource,
    topology: Topology,
    options: StepOptions = _DEFAULTS,
    *,
    model: NoiseModel,
    samples: int = 1000,
    seed: int = 0,
    notes: Sequence[str] = (),
) -> NoiseResult:
    """Distribution of the step time of a job under noise.

    Large jobs are evaluated folded, unless `fold_ranks` is off: it takes other draws from the same
    distribution. Where loads of experts follow a law the samples have up to 16 loads, one after the
    other, of as many seeds from `expert_seed` on. Equal arguments give equal samples. Raises
    PlanError for a number of samples or a seed that cannot be, and the errors of `make_batch`.
    """
    if not 1 <= samples <= _MOST_SAMPLES:
        raise PlanError(f"samples is {samples}: expected 1 to {_MOST_SAMPLES}")
    if seed < 0:
        raise PlanError(f"seed is {seed}: expected at least 0")
    counts = _counts_of_loads(options, samples)
    drawn = []
    for number, count in enumerate(counts):
        loaded = replace(options, expert_seed=options.expert_seed + number) if number else options
        batch = _batch(workload, topology, loaded, notes=notes, samples=samples)
        stream = np.random.SeedSequence([seed, number] if number else seed)
        drawn.append((batch, _samples(batch, model, count, stream)))
    first = drawn[0][0]
    return NoiseResult(
        job=first.job_words,
        model=model,
        seed=seed,
        step_time_ps=np.concatenate([times for _, times in drawn]),
        planned_ps=int(first.evaluate({}).step_time_ps[0]),
        warnings=first.job.warnings,
    )


_MOST_LOADS = 16
"""Loads of experts that are drawn for the samples of a job whose loads follow a law."""


def _counts_of_loads(options: StepOptions, samples: int) -> list[int]:
    """Samples of each of the loads of experts that are drawn: of one, where none is."""
    loads = min(_MOST_LOADS, samples) if isinstance(options.expert_load, ExpertLaw) else 1
    return [samples // loads + (number < samples % loads) for number in range(loads)]


def _batch(
    workload: WorkSource,
    topology: Topology,
    options: StepOptions,
    *,
    notes: Sequence[str],
    samples: int,
) -> Batch:
    """What evaluates the job, folded if it is large; raises PlanError where it is too large."""
    batch = make_batch(workload, topology, options, notes=notes, coalesce=False)
    tasks = _tasks_of_all_ranks(batch)
    if tasks * samples > _MOST_DRAWS:
        most = f"at most {_MOST_DRAWS // tasks} of a job of {tasks:,} tasks"
        raise PlanError(f"samples is {samples}: expected {most}")
    if len(batch.actors) < batch.job.graph.plan.npus and tasks <= _MOST_TASKS:
        unfolded = replace(options, fold_ranks=False)
        return make_batch(workload, topology, unfolded, notes=notes, coalesce=False)
    return batch


def _tasks_of_all_ranks(batch: Batch) -> int:
    counts: list[int] = batch.actors.counts.tolist()
    return sum(len(laid) * n for laid, n in zip(batch.programs, counts, strict=True))


def _samples(batch: Batch, model: NoiseModel, samples: int, seed: np.random.SeedSequence) -> Times:
    """Step times; a batch of samples has a random stream of its own, so their number is free."""
    folded = len(batch.actors) < batch.job.graph.plan.npus
    columns = NodeColumns(batch, alike=model.ranks_are_alike) if folded else None
    widest = int(batch.actors.counts.max())
    at_once = max(1, min(_SAMPLES_AT_ONCE, _AT_ONCE // widest))
    found = np.zeros(samples, dtype=np.int64)
    firsts = range(0, samples, at_once)
    streams = seed.spawn(len(firsts))
    laws = _Laws(batch, model.task)
    for first, stream in zip(firsts, streams, strict=True):
        random = np.random.default_rng(stream)
        draws = _Draws(batch=batch, model=model, random=random, samples=at_once, laws=laws)
        if columns:
            times = columns.step_time_ps(draws, at_once)
        else:
            times = batch.passes.totals(draws.lengths(), at_once).step_time_ps
        found[first : first + at_once] = times[: samples - first]
    return found


class _Laws:
    """What the tasks of nodes are planned to take, and the laws of that: tabulated once for all."""

    def __init__(self, batch: Batch, variation: float) -> None:
        self._length = batch.passes.program.length
        self._variation = variation
        self._planned = [int(each[0]) for each in batch.lengths(batch.scenarios({}))]
        self._laws: dict[tuple[float, tuple[float, ...], int], FactorLaw] = {}
        self._nodes: dict[int, tuple[tuple[int, ...], FactorLaw | None]] = {}

    def planned_ps(self, node: int) -> int:
        """What a node of the program is planned to take."""
        return self._planned[self._length[node]]

    def of(self, node: ColumnNode) -> tuple[tuple[int, ...], FactorLaw | None]:
        """What the tasks of a node are planned to take, those that take any time, and their law.

        Without a law they do not vary, or are drawn one by one.
        """
        assert node.node is not None
        if node.node not in self._nodes:
            every = map(self.planned_ps, (node.node, *node.chained))
            planned = tuple(filter(None, every))
            law = self.law(self._variation, planned, node.members) if self._variation else None
            self._nodes[node.node] = planned, law
        return self._nodes[node.node]

    def law(
        self, variation: float, planned: tuple[int, ...] = (1,), members: int = 1
    ) -> FactorLaw | None:
        """The law of tasks one after the other; None where it is not tabulated."""
        weights = tuple(one / sum(planned) for one in planned) if len(planned) > 1 else (1.0,)
        key = variation, weights, members
        if key not in self._laws:
            many = len(weights) > 1 and len(self._laws) >= _MOST_LAWS
            if many or not has_table(variation, weights):
                return None
            self._laws[key] = FactorLaw.of(variation, weights, members)
        return self._laws[key]


class _Draws:
    """Random durations: node by node, or of all ranks of an actor and all groups at once."""

    def __init__(
        self,
        batch: Batch,
        model: NoiseModel,
        random: np.random.Generator,
        samples: int,
        laws: _Laws,
    ) -> None:
        self._batch = batch
        self._model = model
        self._random = random
        self._samples = samples
        self._laws = laws
        self._counts = batch.actors.counts.tolist()
        self._ranks = [*map(self._slowness, self._counts)]
        self._steady: dict[tuple[tuple[int, ...], int | None], Times] = {}

    def lengths(self) -> Iterator[Times]:
        """A vector of samples per node of an unfolded program."""
        program = self._batch.passes.program
        is_sent = np.zeros(len(program), dtype=bool)
        actor = np.zeros(len(program), dtype=np.int64)
        for number, (laid, nodes) in enumerate(
            zip(self._batch.programs, program.nodes, strict=True)
        ):
            is_sent[nodes] = laid.group >= 0
            actor[nodes] = number
        for node in range(len(program)):
            if is_sent[node]:
                yield self.sent(ColumnNode(node=node, width=1))[0]
            else:
                yield self.computed(ColumnNode(node=node, actor=int(actor[node])))[0]

    def sent(self, node: ColumnNode) -> Times:
        """A transfer in every group: (groups or 1, samples)."""
        assert node.node is not None
        planned, variation = self._laws.planned_ps(node.node), self._model.communication
        if not variation:
            return self._without_noise((planned,))
        return self._noisy(planned, self._factors(variation, node.width))

    def computed(self, node: ColumnNode) -> Times:
        """Tasks on every rank of an actor, or on the slowest of every group: (columns, samples)."""
        planned, law = self._laws.of(node)
        if not self._model.task:
            return self._without_noise(planned, node.actor)
        columns = node.width or self._counts[node.actor]
        if law is None:
            return self._one_by_one(planned, columns, node.members)
        factors = law.draw(self._random, (columns, self._samples))
        if not self._model.ranks_are_alike:
            factors *= self._ranks[node.actor]
        return self._noisy(sum(planned), factors)

    def _without_noise(self, planned: tuple[int, ...], actor: int | None = None) -> Times:
        """A transfer, or tasks that take longer on the slower ranks of an actor only."""
        key = planned, actor
        if key not in self._steady:
            factors = np.ones((1, 1)) if actor is None else self._ranks[actor].copy()
            self._steady[key] = self._noisy(sum(planned), factors)
        return self._steady[key]

    def _one_by_one(self, planned: tuple[int, ...], columns: int, members: int) -> Times:
        """Tasks one after the other, of all ranks of every group: then those of the slowest."""
        each = [
            self._noisy(one, self._factors(self._model.task, columns * members)) for one in planned
        ]
        took: Times = sum(each[1:], each[0]).reshape(columns, members, self._samples)
        return np.asarray(took.max(axis=1))

    def _noisy(self, planned: int, factors: Floats) -> Times:
        """Planned ps times factors, which are changed on the way, rounded."""
        if not planned:
            return np.zeros((1, 1), dtype=np.int64)
        factors *= planned
        return np.rint(factors, out=factors).astype(np.int64)

    def _slowness(self, ranks: int) -> Floats:
        """Factor on the compute of ranks, of shape (ranks, samples); of one for all alike."""
        if self._model.ranks_are_alike:
            return np.ones((1, 1))
        shape = ranks, self._samples
        straggles = self._random.random(shape) < self._model.straggler_probability
        factors = np.where(straggles, self._model.straggler_factor, 1.0)
        return factors * self._factors(self._model.rank, ranks)

    def _factors(self, variation: float, columns: int) -> Floats:
        """Lognormal factors of mean 1 with a coefficient of variation."""
        law = self._laws.law(variation) if variation else None
        return np.ones((1, 1)) if law is None else law.draw(self._random, (columns, self._samples))
