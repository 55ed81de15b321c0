"""The path that makes a step as long as it is: by hand, and gapless in random jobs."""

from itertools import pairwise
from typing import Any

import pytest
from helpers import examples, pipeline_graph, prices_of
from hypothesis import given, strategies as st
from random_jobs import Job, jobs, networks

import stepsim
from stepsim.base.arrays import Lists, ints
from stepsim.base.axes import Part
from stepsim.base.errors import SimulationError
from stepsim.base.structs import replace
from stepsim.core.ends import freed_by
from stepsim.core.path import path_runs
from stepsim.core.timeline import Timeline, run_graph
from stepsim.core.write import Program
from stepsim.explain.breakdown import path_parts
from stepsim.network.topology import Topology
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import build

HOP = 3


def timeline(forward: list[int], backward: list[int], microbatches: int) -> Timeline:
    """1F1B of a rank per stage; messages take 3 ps."""
    schedule = build("1f1b", ranks=len(forward), microbatches=microbatches)
    graph = pipeline_graph(schedule, forward, backward, P2PMode.EAGER)
    return run_graph(graph, prices_of(graph, HOP))


def test_of_one_microbatch_it_is_the_whole_pipeline() -> None:
    """Down and up again: F 5, hop, F 7, B 9, hop, B 11."""
    run = timeline([5, 7], [11, 9], 1)
    path = run.path
    durations = [run.end_ps(place) - run.start_ps(place) for place in path]
    assert [time for time in durations if time] == [5, HOP, 7, 9, HOP, 11]
    assert run.step_time_ps == sum(durations) == 5 + 7 + 9 + 11 + 2 * HOP
    parts = path_parts(path_runs(run))
    assert parts[Part.COMPUTE] == 32
    assert parts[Part.EXPOSED_PP] == 2 * HOP


def test_the_slowest_stage_is_what_it_runs_along() -> None:
    """Stage 1 computes 50 for each of four microbatches and never waits between them."""
    run = timeline([1, 20, 1], [1, 30, 1], 4)
    path = run.path
    on_slow = sum(run.end_ps(each) - run.start_ps(each) for each in path if each[0] == 1)
    assert on_slow >= 4 * 50
    assert run.step_time_ps == 4 * 50 + 2 * (1 + HOP)


def test_a_step_of_the_path_looks_at_no_whole_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time of a path grows with the square of its microbatches."""
    run = timeline([5, 7], [11, 9], 9)
    for name in ("kind", "peer_stage"):
        monkeypatch.setattr(Program, name, None)
    assert len(run.path) > 2 * 9


@given(job=jobs(), network=networks(), data=st.data())
@examples(60)
def test_it_has_no_gap_and_its_parts_are_the_step(
    job: Job, network: Topology, data: st.DataObject
) -> None:
    slow: dict[str, Any] = data.draw(st.sampled_from([{}, {"slow": "0:1.4"}]))
    run = stepsim.simulate(job.workload, network, **job.options(), **slow).timeline
    path = run.path
    assert run.start_ps(path[0]) == 0
    assert run.end_ps(path[-1]) == run.step_time_ps
    for before, after in pairwise(path):
        assert run.end_ps(before) == run.start_ps(after)
    runs = path_runs(run)
    assert path_parts(runs).sum() == run.step_time_ps
    spent = sum(int((each.end_ps - each.start_ps).sum()) for each in runs)
    assert spent == run.step_time_ps


def test_the_last_of_several_that_end_when_one_starts_frees_it() -> None:
    """3 waits for 1 and 2, which end together; 2 waits for 0, 1 starts at 0."""
    after = Lists.of([(), (), (0,), (0, 1, 2)])
    start, end = ints([0, 0, 2, 5]), ints([2, 5, 5, 9])
    assert freed_by(after, start, end).tolist() == [-1, -1, 0, 2]


def test_a_gap_is_an_error() -> None:
    run = timeline([5, 7], [11, 9], 1)
    late = replace(run, start=run.start + 1)
    with pytest.raises(SimulationError, match="nothing ends at"):
        _ = late.path
