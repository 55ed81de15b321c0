"""Jobs under noise: folded with a column per rank, equal to the unfolded job."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import collective, uniform_workload
from jobs import asked, make_batch

from stepsim import noise
from stepsim.base.arrays import Floats, Ints
from stepsim.base.axes import Group, ParallelAxis
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.core.timeline import run_graph
from stepsim.explore.batch.columns import ColumnNode, NodeColumns
from stepsim.explore.batch.evaluation import Batch
from stepsim.explore.noise.draws import NoiseModel
from stepsim.files.asked import StepInputs
from stepsim.files.load import topology_of, workload_of
from stepsim.step.prepared import prepare
from stepsim.workload.rows import Work, Workload

SAMPLES = 2


class Slowed:
    """Planned times, those of compute times a factor per rank and sample."""

    def __init__(self, batch: Batch, factors: Floats) -> None:
        self.batch = batch
        self.factors = factors
        self.planned = batch.planned_ps().tolist()

    def planned_ps(self, node: ColumnNode) -> int:
        return int(self.planned[node.node])

    def took(self, node: ColumnNode) -> Ints:
        if node.width:
            return np.full((node.width, 1), self.planned_ps(node))
        ranks = np.flatnonzero(self.batch.actors.actor_of == node.actor)
        return np.rint(self.planned_ps(node) * self.factors[ranks]).astype(np.int64)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"schedule": "zb-v", "microbatches": 4},
        {"p2p": "eager", "dp_overlap": True},
        {"ep_layout": "folded", "rank_order": "pp-tp-dp"},
    ],
)
def test_columns_equal_the_unfolded_job(options: dict[str, Any], moe: Path) -> None:
    """Every rank slowed by a factor of its own, twice."""
    batch = make_batch(moe, "hgx-h100", coalesce=False, **options)
    assert len(batch.actors) < batch.job.graph.plan.npus == 128
    random = np.random.default_rng(3)
    factors = np.round(random.choice([1.0, 1.0, 1.2, 1.5], (128, SAMPLES)), 1)
    found = NodeColumns(batch).step_time_ps(Slowed(batch, factors).took, SAMPLES)
    ready = prepare(StepInputs(workload_of(moe), topology_of("hgx-h100"), asked(**options)))
    for sample in range(SAMPLES):
        timeline = run_graph(ready.graph, ready.prices, slow=factors[:, sample])
        assert timeline.step_time_ps == found[sample]


def data_parallel(npus: int, reduced: int = 0) -> Workload:
    """One rank computes 1 ms; all reduce their gradients at the end."""
    work = uniform_workload(forward=10**9, backward=0, pp=1, microbatches=1)
    block = work.microbatches[0]
    row = block.layers[0][0]
    gradients = collective(reduced, Group.DP)
    assert gradients.axis is ParallelAxis.DP
    reducing = replace(row, weight_grad=Work(comms=(gradients,)))
    return replace(
        work,
        microbatches=(replace(block, layers=((reducing,),)),),
        npus=npus,
    )


@pytest.mark.parametrize("npus", [8, 64, 1024])
def test_stragglers_follow_the_closed_form(npus: int) -> None:
    """The step is slow if any rank straggles: 1 - (1 - p)^n."""
    probability = 0.5 / npus
    model = NoiseModel(straggler_probability=probability, straggler_factor=1.2)
    found = noise(data_parallel(npus), "ideal", model=model, samples=2000, seed=1)
    slow = found.step_time_ps == round(1.2e9)
    assert np.all(slow | (found.step_time_ps == 10**9))
    expected = 1 - (1 - probability) ** npus
    assert slow.mean() == pytest.approx(expected, abs=3.5 * (0.25 / 2000) ** 0.5)


def test_the_slowest_of_many_has_the_distribution_of_a_maximum() -> None:
    """P(max <= x) = P(one <= x)^n: the median is the 0.5^(1/n) quantile of a lognormal."""
    npus, variation = 1024, 0.05
    found = noise(
        data_parallel(npus), "ideal", model=NoiseModel(rank=variation), samples=1000, seed=2
    )
    variance = np.log(1 + variation**2)
    one = np.random.default_rng(0).lognormal(-variance / 2, variance**0.5, 2_000_000)
    median = float(np.quantile(one, 0.5 ** (1 / npus)))
    assert found.percentile_ps(50) == pytest.approx(1e9 * median, rel=0.002)
    assert median > 1.15


def test_more_draws_than_can_be_made_are_refused(workloads: Path) -> None:
    with pytest.raises(PlanError, match=r"samples is 1000000: expected at most \d+ of a job of"):
        noise(workloads / "gpt_1024.txt", "hgx-h100", model=NoiseModel(), samples=10**6)
