"""Compute beside communication: how much longer it takes, alone and in a step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepsim
from stepsim.base.errors import PlanError
from stepsim.base.units import PS_PER_S
from stepsim.core.beside import OverlapCost, runs_beside
from stepsim.core.timeline import Cohort
from stepsim.files.asked import read_inputs
from stepsim.network.topology.nested import with_values
from stepsim.run.spans import TaskKind
from stepsim.step.prepared import PreparedStep, prepare
from stepsim.workload.overlap import Kernel, row_slowdown

ROOT = Path(__file__).parents[3]
UNKNOWN = (Kernel(name="", operator="", weight=1.0),)


def test_pairs_that_run_together_share_the_time_of_the_communication() -> None:
    compute = np.array([10, 0, 30]), np.array([30, 10, 40])
    comm = np.array([5, 40, 7]), np.array([25, 60, 7])
    found = runs_beside(compute, comm)
    assert [*zip(found.compute.tolist(), found.comm.tolist(), strict=True)] == [(1, 0), (0, 0)]
    assert found.share.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("options", [{"tp": 2, "pp": 2, "global_batch": 32}, {"zero": 3}])
def test_compute_takes_its_time_alone_and_what_it_lost(options: dict[str, Any]) -> None:
    """What it lost is taken from the run itself, pair by pair of what ran at the same time."""
    asked = {"npus": 8, "global_batch": 16, "sequence": 4096, "overlap_cost": True} | options
    job = read_inputs("llama-3-8b", "hgx-h100", asked)
    step = prepare(job)
    assert step.overlap
    timeline = step.timeline()
    longer = lost = 0.0
    for cohort in timeline.cohorts:
        rank = int(timeline.actors.ranks[cohort.actors[0]])
        longer += float(cohort.longer_ps[:, 0].sum())
        lost += lost_ps(cohort, rank, step.overlap, step)
    assert longer == pytest.approx(lost, rel=0.02)
    assert longer > 0
    for spans in (*timeline.spans(), *timeline.spans(whole=True)):
        took = spans.end_ps - spans.start_ps
        assert spans.slowed.any()
        assert (spans.alone_ps[spans.slowed] < took[spans.slowed]).all()


def lost_ps(cohort: Cohort, rank: int, cost: OverlapCost, step: PreparedStep) -> float:
    """What the law says that compute of a rank loses beside its communications."""
    tasks, start, end = cohort.tasks, cohort.start[:, 0], cohort.end[:, 0]
    rows = [tasks.rows[row] for row in tasks.row.tolist()]
    demands = [row.use and cost.demand(row.use, rank, step.prices) for row in rows]
    lost = 0.0
    for i, row in enumerate(rows):
        task = row.task(tasks.program)
        if task is None or task.kind is not TaskKind.COMPUTE:
            continue
        others = np.flatnonzero((start < end[i]) & (end > start[i]))
        for other in others.tolist():
            if demand := demands[other]:
                alone_s = int(tasks.duration_ps[i]) / PS_PER_S
                kernels = task.kernels or UNKNOWN
                factor = row_slowdown(kernels, alone_s, [demand], cost.gpu)
                both = min(end[i], end[other]) - max(start[i], start[other])
                lost += float(both) * (1 - 1 / factor)
    return lost


def step(**options: Any) -> stepsim.Result:
    return stepsim.simulate(
        "llama-3-8b", "hgx-h100", npus=8, global_batch=16, sequence=4096, **options
    )


FSDP: dict[str, Any] = {"framework": "torch-fsdp-compiled"}


def test_copy_engines_slow_less_than_rings_and_nothing_least() -> None:
    """The sign of a step on 8 H100 whose collectives were moved to copy engines: 2.4 % faster."""
    copies, rings, more = (step(**FSDP, overlap_cost=sms).report for sms in ("0", "on", "32"))
    assert copies.step_time_ps < rings.step_time_ps < more.step_time_ps
    assert 1.01 < rings.step_time_ps / copies.step_time_ps < 1.05


def test_the_law_takes_the_place_of_the_factor_beside_gathers() -> None:
    """Else compute beside gathered parameters would be slowed twice."""
    plain, slowed = (step(**FSDP, overlap_cost=cost).report for cost in (False, True))
    assert plain.slowed_by_communication_ps is None
    assert slowed.slowed_by_communication_ps
    alone = slowed.step_time_ps - slowed.slowed_by_communication_ps
    assert alone < plain.step_time_ps < slowed.step_time_ps


def test_large_losses_settle_where_they_would_swing() -> None:
    job: dict[str, Any] = {"framework": "torchtitan", "microbatch_size": 1, "overlap_cost": "on"}
    job |= {"npus": 8, "tp": 1, "global_batch": 16, "sequence": 8192}
    network = stepsim.load_topology("hgx-h100")
    slow, fast = (
        stepsim.simulate("kimi-linear-48b-a3b", each, **job).report.step_time_ps
        for each in (network, with_values(network, {"nvlink.bandwidth": 900e9}))
    )
    assert fast < 1.03 * slow, "with three runs it was 1.53 times as long"


def test_sms_do_not_matter_where_nothing_overlaps() -> None:
    """One GPU after the other computes and reduces: no compute runs beside communication."""
    options: dict[str, Any] = {
        "tp": 1,
        "dp_overlap": False,
        "framework": "megatron-core",
    }
    plain = step(**options).report.step_time_ps
    for sms in (0, 4, 24, 64):
        slowed = step(**options, overlap_cost=str(sms)).report
        assert slowed.step_time_ps == plain
        assert slowed.slowed_by_communication_ps == 0


def test_what_cannot_be_known_is_refused_by_name() -> None:
    workload = ROOT / "workloads" / "gpt_tp4.txt"
    with pytest.raises(PlanError, match="is of an unknown device"):
        stepsim.simulate(workload, "ideal", overlap_cost="on")
