"""A simulated step as a profile: its replay is the step, operation by operation."""

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, strategies as st
from random_jobs import Job, circumstances, jobs, networks

import stepsim
from stepsim.base.axes import Part
from stepsim.base.errors import PlanError
from stepsim.explain import as_profile
from stepsim.explain.as_profile import profile_of_step
from stepsim.explain.shares import device_shares
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.network.topology import Topology
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase


@given(job=jobs(), network=networks(), data=st.data())
@examples(25)
def test_the_replay_is_the_step(job: Job, network: Topology, data: st.DataObject) -> None:
    asked = data.draw(circumstances(job))
    result = stepsim.simulate(job.workload, network, **job.options(), **asked)
    profile = profile_of_step(result.timeline, source="job")
    waits = pipeline_waits(profile)
    assert (waits.ends_ps(waits.own_ps) == profile.events.end_ps).all()
    assert not waits.delay_ps.any()
    for rank in range(result.report.npus):
        mine = profile.events.taken((profile.events.rank == rank).nonzero()[0])
        times = result.timeline.tasks(rank)
        assert (mine.end_ps == times.end).all()
        own = mine.meeting == UNKNOWN
        assert (mine.start_ps[own] == times.start[own]).all()


def test_a_profile_tells_groups_peers_and_parts_of_the_step() -> None:
    result = stepsim.simulate("workloads/gpt_1024.txt", "hgx-h100", npus=64, pp=2, microbatches=4)
    profile = profile_of_step(result.timeline, source="gpt")
    events, width = profile.events, 32
    assert [each.stage for each in profile.ranks] == [0] * width + [1] * width
    sends = events.of_kind(TaskKind.SEND)
    assert (abs(events.peer[sends] - events.rank[sends]) == width).all()
    assert {*events.microbatch[sends].tolist()} == {0, 1, 2, 3}
    tensor = profile.named("tp reduce_scatter", "tp all_gather")
    groups = {profile.groups[i].ranks for i in {*events.group[tensor].tolist()}}
    assert groups == {tuple(range(first, first + 8)) for first in range(0, 64, 8)}
    forward = events.of_kind(TaskKind.COMPUTE) & (events.phase == TaskPhase.FORWARD)
    assert (events.chunk[forward] == events.rank[forward] // width).all()
    compute = [each.compute_ps for each in device_shares(profile)]
    assert compute[0] == result.report.stages[0].breakdown_ps[Part.COMPUTE.key]


def test_a_message_of_a_pair_is_of_what_it_carries() -> None:
    """A pair sends activations and gradients, each of its own microbatch."""
    result = stepsim.simulate(
        "workloads/gpt_tp4.txt", "hgx-h100", schedule="dualpipe", pp=2, microbatches=8
    )
    events = profile_of_step(result.timeline, source="gpt").events
    sends = events.taken(events.of_kind(TaskKind.SEND))
    told = np.stack((sends.rank, sends.phase, sends.microbatch), axis=1)
    assert len(np.unique(told, axis=0)) == len(told)


def test_columns_are_of_one_type_of_integers() -> None:
    """C's `long long` is another: `ufunc.at` has no fast way for it."""
    result = stepsim.simulate("workloads/gpt_tp4.txt", "hgx-h100")
    events = profile_of_step(result.timeline, source="gpt_tp4").events
    assert {column.dtype.char for column in events.columns().values()} == {np.dtype(np.int64).char}


def test_a_step_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result = stepsim.simulate("workloads/gpt_tp4.txt", "hgx-h100")
    monkeypatch.setattr(as_profile, "MOST_TASKS", 10)
    with pytest.raises(PlanError, match=r"5,744 tasks on 16 ranks: expected 10 at most"):
        profile_of_step(result.timeline, source="gpt_tp4")
