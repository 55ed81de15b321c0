"""Groups that act together share links: folded or not, batched or not, never faster than alone."""

from typing import Any

import pytest
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jobs import make_batch
from random_jobs import Job, jobs, networks

import stepsim
from stepsim.face import Result
from stepsim.network.topology import Topology


def run(job: Job, network: Topology, **options: Any) -> Result:
    return stepsim.simulate(job.workload, network, **job.options(), **options)


@examples(40)
@given(job=jobs(), network=networks())
def test_folding_changes_no_time(job: Job, network: Topology) -> None:
    folded, full = (run(job, network, fold_ranks=fold) for fold in (True, False))
    assert folded.report.step_time_ps == full.report.step_time_ps
    for rank in range(full.report.npus):
        mine, theirs = folded.timeline.tasks(rank), full.timeline.tasks(rank)
        assert (mine.start == theirs.start).all(), rank
        assert (mine.end == theirs.end).all(), rank


@examples(40)
@given(job=jobs(), network=networks())
def test_no_task_is_earlier_than_with_the_links_to_itself(job: Job, network: Topology) -> None:
    """Orders do not depend on prices, so a longer price delays, or changes nothing."""
    shared = run(job, network, fold_ranks=False).timeline
    alone = run(job, network, fold_ranks=False, contention="none").timeline
    for rank in range(shared.graph.plan.npus):
        assert (shared.tasks(rank).end >= alone.tasks(rank).end).all(), rank


def batch_equals_engine(job: Job, network: Topology, contention: str) -> None:
    batch = make_batch(job.workload, network, contention=contention, **job.options())
    found = batch.evaluate({}, parts=True)
    report = run(job, network, contention=contention).report
    assert found.step_time_ps[0] == report.step_time_ps
    assert found.pipeline_time_ps[0] == report.pipeline_time_ps
    assert found.parts_ps is not None
    assert found.parts_ps[0].tolist() == list(report.breakdown_ps.values())


@examples(60)
@given(job=jobs(), network=networks(), contention=st.sampled_from(["none", "siblings"]))
def test_batch_equals_engine(job: Job, network: Topology, contention: str) -> None:
    batch_equals_engine(job, network, contention)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(job=jobs(), network=networks())
def test_batch_equals_engine_on_1000_random_jobs(job: Job, network: Topology) -> None:
    batch_equals_engine(job, network, "siblings")
