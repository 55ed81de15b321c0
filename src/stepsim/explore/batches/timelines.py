"""A step of real batches as every other step is shown: when each task of each rank runs.

Ranks whose microbatches have the same loads are one actor, others are apart; the engine runs them
with the durations that the prices of microbatches give.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from stepsim.base.arrays import Floats, Ints, Small, row_numbers
from stepsim.base.structs import replace
from stepsim.engine.lay_out import GROUPS, MESSAGES, LaidOut, Runnable, Times, lay_out
from stepsim.engine.timeline import LaidOutStep, Timeline
from stepsim.explore.batches.draws import BatchSteps
from stepsim.explore.batches.prices import MicrobatchPrices, microbatch_prices
from stepsim.explore.batches.spread import with_degree
from stepsim.network.fold import fold
from stepsim.network.groups import lowered
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.modes import Engine
from stepsim.parallel.packers import Loads
from stepsim.step.prepared import SimulatedStep
from stepsim.workload.model.model import Model


def shown_steps(
    steps: BatchSteps, model: Model, topology: Topology, options: StepOptions
) -> list[tuple[str, SimulatedStep]]:
    """The typical and the slowest of drawn steps of a job, simulated task by task.

    Raises the errors of `microbatch_prices`. Tasks are rounded one by one here and whole actions in
    a study, so that step times differ by picoseconds, or by little where transfers run beside
    compute.
    """
    prices = microbatch_prices(model, topology, options, coalesce=False)
    plan = prices.batch.job.graph.plan
    if plan.dp != steps.shape.ranks:  # ranks of a group share documents one by one
        alone = with_degree(prices.options, 1, plan.cp)
        prices = microbatch_prices(model, topology, alone, coalesce=False)
    named = (("typical step", steps.typical), ("slowest step", steps.slowest))
    return [(name, simulated_loads(prices, loads)) for name, loads in named]


def simulated_loads(prices: MicrobatchPrices, loads: Loads) -> SimulatedStep:
    """The step whose microbatches have some loads, of shape (1, ranks, microbatches).

    The prices are those of single tasks: `microbatch_prices(..., coalesce=False)`.
    """
    batch, job = prices.batch, prices.batch.job
    plan = job.graph.plan
    features = prices.features(loads.tokens, loads.squares)[:, 0]
    replica = np.arange(plan.npus) % plan.stage_ranks // (plan.tp * plan.cp)
    slow = np.ones(plan.npus) if job.slow is None else job.slow
    loaded = features.transpose(1, 0, 2).reshape(plan.dp, -1)
    loaded = loaded if loads.scale is None else np.hstack((loaded, loads.scale[0]))
    own = np.column_stack((loaded[replica], slow))
    kinds = np.unique(own, axis=0, return_inverse=True)[1].reshape(-1)
    # numbers that differ where ranks do keep them apart, as factors on their compute would
    actors = fold(job.prices, job.graph.uses, kinds.astype(np.float64))
    laid = lay_out(job.graph, actors, job.prices, coalesce=False)
    scale = np.ones(features.shape[1:]) if loads.scale is None else loads.scale[0]
    durations = _TaskDurations(prices=prices, features=features, scale=scale, replica=replica)
    programs = [
        durations.laid_out(program, rank, batch.passes.program.nodes[batch.actors.of(rank)])
        for program, rank in zip(laid.programs, actors.ranks.tolist(), strict=True)
    ]
    step = LaidOutStep(
        graph=job.graph,
        actors=actors,
        runnable=Runnable(programs=programs, transfers=laid.transfers),
        contention=None,
        engine=job.options.engine or Engine.LEVELS,
    )
    return job.reported(step.timeline())


def telling_ranks(timeline: Timeline) -> list[int]:
    """The first ranks of each stage of the replicas with most work, with the median, and least."""
    plan = timeline.graph.plan
    replica = plan.tp * plan.cp
    work = np.zeros(plan.dp, dtype=np.int64)
    for cohort in timeline.cohorts:
        own_ps = int(cohort.laid.duration_ps[cohort.laid.group < 0].sum())
        held = timeline.actors.ranks[cohort.actors] % plan.stage_ranks // replica
        np.maximum.at(work, held, own_ps)
    order = np.argsort(-work, kind="stable")
    order = order[: int((work > 0).sum())]  # those of alike replicas are shown by one
    chosen = dict.fromkeys(order[[0, len(order) // 2, -1]].tolist())
    return [
        stage * plan.stage_ranks + first * replica for first in chosen for stage in range(plan.pp)
    ]


class _TaskDurations(Struct, frozen=True, kw_only=True):
    """How long the tasks of ranks take, whose `replica` has `features` of each microbatch.

    Computes take `scale` times as long.
    """

    prices: MicrobatchPrices
    features: Floats
    scale: Floats
    replica: Ints

    def laid_out(self, laid: LaidOut, rank: int, nodes: Small) -> LaidOut:
        """The program of a rank with its own durations; `nodes` are those of its tasks."""
        own = np.column_stack((laid.row, self.prices.row[nodes], self.prices.microbatch[nodes]))
        first, number = row_numbers(own.astype(np.int64))
        order = np.argsort(first)  # rows stand as they appear
        tasks = first[order]
        return replace(
            laid,
            row=np.argsort(order)[number],
            rows=tuple(laid.rows[row] for row in laid.row[tasks].tolist()),
            row_ps=self._of_tasks(nodes[tasks], laid.group[tasks], rank),
        )

    def _of_tasks(self, nodes: Small, group: NDArray[np.int8], rank: int) -> Times:
        """How long some tasks of a rank take; a transfer as long as its member with most does."""
        found = self._of_replicas(nodes, self.replica[rank : rank + 1])
        held = (group < 0) & (self.prices.microbatch[nodes] >= 0)
        scale = self.scale[self.replica[rank], self.prices.microbatch[nodes[held]]]
        found[held] = np.rint(found[held] * scale).astype(np.int64)
        plan = self.prices.batch.job.graph.plan
        for kind in set(group.tolist()) - {-1, MESSAGES}:
            met = lowered(np.arange(plan.npus), [plan.span(GROUPS[kind])])
            members = np.unique(self.replica[met == met[rank]])
            own = group == kind
            found[own] = self._of_replicas(nodes[own], members)
        return found

    def _of_replicas(self, nodes: Small, replicas: Ints) -> Times:
        """How long nodes take on the one of some replicas that takes longest."""
        microbatch, weights = self.prices.microbatch[nodes], self.prices.weights
        of_tasks = self.features[:, replicas][:, :, microbatch]
        times = np.einsum("tf,frt->rt", weights[self.prices.row[nodes]], of_tasks)
        longest = np.maximum(np.rint(times), 0.0).max(axis=0).astype(np.int64)
        found: Times = np.where(microbatch < 0, self.prices.whole_ps[nodes], longest)
        return found
