"""Steps of real batches: documents drawn, packed into microbatches, and how long that takes."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import PlanError
from stepsim.engine.lay_out import Times
from stepsim.explore.batch.evaluation import Batch
from stepsim.explore.batches.prices import MicrobatchPrices, microbatch_prices
from stepsim.explore.batches.works import WorkDurations, drawn_works, known_packers
from stepsim.explore.noise.columns import ColumnNode, NodeColumns
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
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
from stepsim.parallel.ranks import ParallelPlan
from stepsim.workload.documents import Lengths, ListedWorks
from stepsim.workload.model.model import Model

_MOST_LOADS = 1 << 27
"""Most microbatches of all steps and ranks: what their columns hold is 3 GB."""
_WINDOW = 50
"""Steps whose documents are drawn and packed together: a loader's window, and part of a seed."""
_AT_ONCE = 1 << 15
"""Ranks times steps that are evaluated together, so that what is in use fits the cache."""
_DEFAULTS = StepOptions()


class BatchSteps(Struct, frozen=True, kw_only=True, eq=False):
    """Steps of drawn batches under one packer, in the order drawn.

    `step_ps` are their times, `even_ps` those of the same steps if every microbatch had the mean
    load of its step: the difference is waiting for the longest. `tokens` are computed and `real`
    of them no padding, by step. `fullest` is the largest microbatch in parts of a full one,
    `loads` are those of the microbatches of the first steps.
    """

    packer: str
    step_ps: Times
    even_ps: Times
    tokens: Ints
    real: Ints
    fullest: float
    loads: Loads

    @property
    def mean_ps(self) -> float:
        """Mean step time."""
        return float(self.step_ps.mean())

    @property
    def waiting(self) -> float:
        """Share of the steps' time in which ranks wait for the longest microbatches."""
        return 1.0 - float(self.even_ps.sum()) / float(self.step_ps.sum())

    @property
    def padding(self) -> float:
        """Share of the computed tokens that is padding."""
        return 1.0 - float(self.real.sum()) / float(self.tokens.sum())

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of all ranks, net of padding."""
        return float(self.real.sum()) / float(self.step_ps.sum()) * 1e12

    def percentile_ps(self, percent: float) -> float:
        """Step time that so many per cent of the steps do not exceed, interpolated."""
        return float(np.percentile(self.step_ps, percent))


class BatchStudy(Struct, frozen=True, kw_only=True, eq=False):
    """Real batches of a job: one entry of `packed` for each packer.

    `planned_ps` is the step whose microbatches are full of one document a sample, as `simulate`
    has it. `job` says in a line what was simulated, `source` where the lengths `drawn` are from.
    """

    job: str
    source: str
    drawn: Lengths | ListedWorks
    seed: int
    planned_ps: int
    packed: tuple[BatchSteps, ...]
    warnings: tuple[str, ...]


def simulate_batches(
    model: Model,
    topology: Topology,
    options: StepOptions = _DEFAULTS,
    *,
    lengths: Lengths | ListedWorks,
    source: str = "",
    packers: Sequence[str | Packer] = ("padded",),
    steps: int = 1000,
    seed: int = 0,
    notes: Sequence[str] = (),
) -> BatchStudy:
    """Steps of drawn batches under each packer; equal arguments give equal steps.

    A packer is a name of the list or a function of one's own, which takes the documents of whole
    steps; works of a profile are `recorded` or `recorded+swap`. Raises PlanError for a packer, a
    number of steps or a seed that cannot be, and the errors of `make_batch`.
    """
    if steps < 1:
        raise PlanError(f"steps is {steps}: expected at least 1")
    if seed < 0:
        raise PlanError(f"seed is {seed}: expected at least 0")
    makers = _makers(lengths, packers, steps=steps, seed=seed)
    prices = microbatch_prices(model, topology, options, notes)
    evaluator = _Evaluator(prices)
    found = tuple(make(prices, evaluator) for make in makers)
    batch = prices.batch
    return BatchStudy(
        job=batch.job_words,
        source=source,
        drawn=lengths,
        seed=seed,
        planned_ps=int(batch.evaluate({}).step_time_ps[0]),
        packed=found,
        warnings=batch.job.warnings,
    )


def _makers(
    lengths: Lengths | ListedWorks, packers: Sequence[str | Packer], *, steps: int, seed: int
) -> "list[Callable[[MicrobatchPrices, _Evaluator], BatchSteps]]":
    """What makes the steps of each packer; raises PlanError for one that cannot be."""
    if isinstance(lengths, ListedWorks):
        names = known_packers(packers)
        return [partial(_steps_of_works, name, lengths, steps=steps, seed=seed) for name in names]
    entries = {_name_of(packer): packer_of(packer) for packer in packers}
    return [
        partial(_steps_of, name, entry, lengths, steps=steps, seed=seed)
        for name, entry in entries.items()
    ]


def _name_of(packer: str | Packer) -> str:
    return packer if isinstance(packer, str) else getattr(packer, "__name__", "own")


def draw_batches(
    lengths: Lengths, shape: BatchShape, entry: PackerEntry, generator: np.random.Generator
) -> Packing:
    """Documents of all steps of a shape, drawn and packed.

    More are drawn until the microbatches are full, where a packer takes a stream.
    """
    sample = lengths.draw(np.random.default_rng(0), 1024)
    count = documents_for(entry, shape, float(sample.mean()))
    drawn = lengths.draw(generator, count)
    packing = entry.pack(drawn, shape)
    while entry.takes is Takes.STREAM and not _is_full(packing):
        drawn = np.concatenate([drawn, lengths.draw(generator, max(count // 4, 1))])
        packing = entry.pack(drawn, shape)
    return packing


def _is_full(packing: Packing) -> bool:
    """Whether every microbatch has documents."""
    return bool(np.bincount(packing.slot, minlength=packing.shape.slots).all())


def _steps_of(
    packer: str,
    entry: PackerEntry,
    lengths: Lengths,
    prices: MicrobatchPrices,
    evaluator: "_Evaluator",
    *,
    steps: int,
    seed: int,
) -> BatchSteps:
    """Steps under one packer: windows have random streams of their own."""
    plan = _checked_plan(prices, steps)
    shape = BatchShape(
        ranks=plan.dp,
        microbatches=plan.microbatches,
        count=prices.samples,
        full_tokens=prices.full_tokens,
        steps=min(steps, _WINDOW),
        attention=prices.attention,
    )
    windows = -(-steps // shape.steps)
    streams = np.random.SeedSequence(seed).spawn(windows)
    drawn = [
        draw_batches(lengths, shape, entry, np.random.default_rng(stream)).loads()
        for stream in streams
    ]
    loads = Loads(
        **{
            name: np.concatenate([getattr(window, name) for window in drawn])[:steps]
            for name in Loads.__struct_fields__
        }
    )
    even = Loads(tokens=_evened(loads.tokens), real=loads.real, squares=_evened(loads.squares))
    return BatchSteps(
        packer=packer,
        step_ps=evaluator.step_ps(loads),
        even_ps=evaluator.step_ps(even),
        tokens=loads.tokens.sum(axis=(1, 2)).astype(np.int64),
        real=loads.real.sum(axis=(1, 2)).astype(np.int64),
        fullest=float(loads.tokens.max()) / shape.full_tokens,
        loads=drawn[0],
    )


def _checked_plan(prices: MicrobatchPrices, steps: int) -> ParallelPlan:
    """The job's plan; raises PlanError for more microbatches than memory holds."""
    plan = prices.batch.job.graph.plan
    if plan.dp * plan.microbatches * steps > _MOST_LOADS:
        most = _MOST_LOADS // (plan.dp * plan.microbatches)
        raise PlanError(f"steps is {steps}: expected at most {most} of so many microbatches")
    return plan


def _steps_of_works(
    packer: str,
    law: ListedWorks,
    prices: MicrobatchPrices,
    evaluator: "_Evaluator",
    *,
    steps: int,
    seed: int,
) -> BatchSteps:
    """Steps whose microbatches have works of a law and equal tokens.

    Loads show work as squares: those of a full microbatch for the mean's.
    """
    plan, full = _checked_plan(prices, steps), float(prices.full_tokens)
    shape = steps, plan.dp, plan.microbatches
    works = drawn_works(law, packer, shape, np.random.default_rng(seed))
    tokens = np.full(steps, round(full) * plan.dp * plan.microbatches)
    first, whole = works[:_WINDOW], np.full_like(works[:_WINDOW], full)
    return BatchSteps(
        packer=packer,
        step_ps=evaluator.works_ps(works),
        even_ps=evaluator.works_ps(_evened(works)),
        tokens=tokens,
        real=tokens,
        fullest=1.0,
        loads=Loads(tokens=whole, real=whole, squares=first * full**2),
    )


def _evened(values: Floats) -> Floats:
    """The mean of each step in place of its microbatches', with one rank for all."""
    mean = values.mean(axis=(1, 2), keepdims=True)
    return np.asarray(np.broadcast_to(mean, (len(values), 1, values.shape[2])))


class _Evaluator:
    """Step times of loads: the nodes of a job with a column for each data-parallel rank."""

    def __init__(self, prices: MicrobatchPrices) -> None:
        self._prices = prices
        self._replicas = [_first_of_replicas(prices.batch, a) for a in _actors(prices.batch)]
        self._columns = NodeColumns(prices.batch, [ranks for ranks, _ in self._replicas])

    def step_ps(self, loads: Loads) -> Times:
        """Step time of every step, in ps."""
        parts = [self._some(loads.tokens[i], loads.squares[i]) for i in _parts(loads.tokens)]
        return np.concatenate(parts)

    def works_ps(self, works: Floats) -> Times:
        """Step time of every step whose computes take so many times what was planned."""
        return np.concatenate([self._some_works(works[i]) for i in _parts(works)])

    def _some_works(self, works: Floats) -> Times:
        replicas = [replicas for _, replicas in self._replicas]
        of_replicas = works.transpose(1, 0, 2)
        durations = WorkDurations(prices=self._prices, works=of_replicas, replicas=replicas)
        return self._columns.step_time_ps(durations, len(works))

    def _some(self, tokens: Floats, squares: Floats) -> Times:
        durations = _LoadDurations(
            prices=self._prices,
            features=self._prices.features(tokens, squares).transpose(0, 2, 1, 3),
            replicas=[replicas for _, replicas in self._replicas],
        )
        return self._columns.step_time_ps(durations, len(tokens))


def _parts(values: Floats) -> list[slice]:
    """Steps of (steps, ranks, microbatches) that are evaluated together."""
    at_once = max(_AT_ONCE // values.shape[1], 1)
    return [slice(low, low + at_once) for low in range(0, len(values), at_once)]


def _actors(batch: Batch) -> range:
    return range(len(batch.actors))


def _first_of_replicas(batch: Batch, actor: int) -> tuple[Ints, Ints]:
    """One rank of an actor for every data-parallel replica that it has, and these replicas."""
    plan = batch.job.graph.plan
    ranks = np.flatnonzero(batch.actors.actor_of == actor)
    replica = ranks % plan.stage_ranks // (plan.tp * plan.cp)
    replicas, first = np.unique(replica, return_index=True)
    return ranks[first], replicas


class _LoadDurations(Struct, frozen=True, kw_only=True, dict=True):
    """NodeDurations of nodes in steps of given loads.

    `features` have shape (features, replicas, steps, microbatches), `replicas` are those of each
    actor's columns.
    """

    prices: MicrobatchPrices
    features: Floats
    replicas: list[Ints]

    def computed(self, node: ColumnNode) -> Times:
        """Of a task on every replica of an actor: (replicas, steps), or one number for all."""
        return self._of_actor(node, node.actor)

    def sent(self, node: ColumnNode) -> Times:
        """Of a transfer in every group: as long as its member with most to send takes."""
        latest = [
            place.latest(self._of_actor(node, actor), node.width)
            for actor, place in node.places.items()
        ]
        if not latest:
            return self._of_actor(node, node.actor)
        longest: Times = np.maximum.reduce(latest)
        return longest

    def _of_actor(self, node: ColumnNode, actor: int) -> Times:
        """Of a node as the replicas of an actor would have it."""
        assert node.node is not None
        microbatch = int(self.prices.microbatch[node.node])
        if microbatch < 0:
            return self._fixed(node.node)
        own = self._of(node.node, microbatch)
        return own if len(own) == 1 else own[self.replicas[actor]]

    def _fixed(self, node: int) -> Times:
        return np.array([[int(self.prices.whole_ps[node])]])

    def _of(self, node: int, microbatch: int) -> Times:
        """Of a node with the load of a microbatch of every replica: (replicas, steps)."""
        row = int(self.prices.rows[1][node])
        key = row, microbatch
        if key not in self._known:
            weights = self.prices.rows[0][row]
            value = np.einsum("f,frs->rs", weights, self.features[:, :, :, microbatch])
            self._known[key] = np.maximum(np.rint(value), 0.0).astype(np.int64)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[int, int], Times]:
        return {}
